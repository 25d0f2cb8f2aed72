"""
One run: Services are written during all disturbances, and each write is assigned to the disturbance of its time.

A lost call is a failed or an unreviewed write, or a call in the API server's metrics whose write was rejected because
kavip did not answer, or accepted without a review (``failurePolicy: Ignore``).
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from hack.demo.__main__ import REPOSITORY, TAG
from hack.endurance import disturb
from hack.endurance.disturb import CHART, NAMESPACE, Disturbance
from hack.endurance.metrics import WebhookCounters
from hack.endurance.writer import GROUP, Record
from hack.endurance.writer import NAMESPACE as WRITTEN
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names

DISTURBANCES: Final[Mapping[str, Disturbance]] = {
    "kubectl rollout restart": disturb.roll,
    "helm upgrade": disturb.upgrade,
    "kubectl delete pod": disturb.delete,
    "kubectl drain": disturb.drain,
    "CA rotated": disturb.rotate,
    "CA rotated, all restarted": disturb.rotate_and_roll,
}
KILL: Final = "kill -9"
CONNECTIONS: Final = 8
LATEST: Final = 5.0  # seconds after kill -9 in which a call may fail
_CALM: Final = 1.0  # seconds of writing before and after each disturbance
_SHOWN: Final = 20
_GRACE: Final = 120.0  # seconds in which the writer must end: it waits for its last responses


def _nothing() -> Record:
    return Record([])


@dataclass(frozen=True, slots=True)
class Period:
    """One disturbance: the time *at* which it began, the time when it was *over*, and the writes of the period."""

    name: str
    since: float
    at: float
    over: float
    until: float
    record: Record = field(default_factory=_nothing)

    @property
    def writes(self) -> int:
        """The number of writes."""
        return len(self.record.writes)

    @property
    def span(self) -> float:
        """Seconds from the disturbance to the last write that failed or was unreviewed; 0 if there is none."""
        wrong = (*self.record.failures[-1:], *self.record.unreviewed[-1:])
        return max((each.at - self.at for each in wrong), default=0.0)


@dataclass(slots=True)
class Run:
    """The results of a run on one *cluster*."""

    cluster: Cluster
    periods: list[Period] = field(default_factory=list)
    record: Record = field(default_factory=_nothing)
    counters: WebhookCounters = field(default_factory=lambda: WebhookCounters.parse(""))

    @contextmanager
    def writing(self, *, rate: float) -> Iterator[None]:
        """Write at *rate* during the block; then assign each write to its period, and add the results."""
        before = WebhookCounters.read(self.cluster)
        command = [sys.executable, "-m", "hack.endurance.writer", str(self.cluster.kubeconfig)]
        options = [f"--connections={CONNECTIONS}", f"--rate={rate}"]
        process = subprocess.Popen(
            self.cluster.control.command(*command, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            yield
        finally:
            output, _ = process.communicate(b"", timeout=_GRACE)
            self.record += msgspec.json.decode(output, type=Record)
            self.counters += WebhookCounters.read(self.cluster) - before
            self.periods = [
                replace(period, record=self.record.between(period.since, period.until)) for period in self.periods
            ]

    def run_disturbance(self, name: str, disturbance: Disturbance) -> None:
        """Run one disturbance while Services are written."""
        time.sleep(_CALM)
        since = time.monotonic()
        struck = disturbance(self.cluster)
        over = time.monotonic()
        time.sleep(_CALM)
        self.periods.append(Period(name, since, struck or since, over, time.monotonic()))

    def table(self) -> str:
        """The report, as a table."""
        rows = [f"{'':26}{'writes':>8}{'seconds':>9}{'failed':>8}{'unreviewed':>12}{'last after':>12}"]
        for period in self.periods:
            found = period.record
            after = f"{period.span:.2f} s" if found.failures or found.unreviewed else "-"
            seconds = f"{period.until - period.since:.0f}"
            counts = f"{len(found.failures):8}{len(found.unreviewed):12}"
            rows.append(f"{period.name:26}{period.writes:8}{seconds:>9}{counts}{after:>12}")
        total = self.record
        rows.append(f"{'total':26}{len(total.writes):8}{'':9}{len(total.failures):8}{len(total.unreviewed):12}")
        counters = self.counters
        codes = ", ".join(f"{code}: {n}" for code, n in counters.by_code.items())
        rows.append(f"the API server's own count: {counters.calls} calls of kavip's webhooks ({codes})")
        rows.append(f"  refused by kavip, as expected: {counters.refused}; rejected without an answer: {counters.lost}")
        rows.append(
            f"  accepted without a review (fail open): {counters.fail_open}; retried by request: {counters.retried}"
        )
        rows.append(f"  answered within: {counters.within(0.5):g} s (half), {counters.within(0.99):g} s (99 %)")
        for what, wrong in (("FAILED", total.failures), ("UNREVIEWED", total.unreviewed)):
            rows += [f"  {what} {each.verb} {self._when(each.at)}: {each.text}" for each in wrong[:_SHOWN]]
        return "\n".join(rows)

    def _when(self, at: float) -> str:
        """The time *at*, relative to the disturbance of its period."""
        found = (period for period in self.periods if period.since <= at < period.until)
        return next(
            (f"{at - period.at:.2f} s after {period.name}" for period in found),
            "between two disturbances",
        )


def install(cluster: Cluster, *values: str) -> None:
    """Install kavip with helm, and wait until all replicas are ready."""
    image = f"--set=image.repository={REPOSITORY},image.tag={TAG},image.pullPolicy=Never"
    own = (f"--namespace={NAMESPACE}", "--create-namespace", "--wait=watcher", image)
    cluster.helm("upgrade", "--install", "kavip", str(CHART), *own, *values)
    wait_for("every replica is ready", lambda: disturb.is_rolled_out(cluster), timeout=240, interval=0.3)


def prepare(cluster: Cluster, *, is_default: bool = True) -> None:
    """Create what the writer needs: a group without nodes, by default the default group, and a pool for it alone."""
    pool = {"addresses": ["198.51.100.0/26"], "groups": [GROUP]}
    nowhere = {"image": names.DEFAULT_IMAGE, "interface": "eth0", "nodeSelector": {"endurance": "nowhere"}}
    namespace, _, name = GROUP.partition("/")
    labels = {names.DEFAULT_GROUP_LABEL: "true"} if is_default else {}
    objects = [
        object_of("v1", "Namespace", name=WRITTEN),
        object_of(f"{names.KAVIP_GROUP}/{names.VERSION}", names.VIP_POOL, name=WRITTEN) | {"spec": pool},
        object_of(
            f"{names.REDHATCOP_GROUP}/{names.VERSION}",
            names.KEEPALIVED_GROUP,
            name=name,
            namespace=namespace,
            labels=labels,
        )
        | {"spec": nowhere},
    ]
    cluster.apply(*objects)
    wait_for("kavip has observed the group", lambda: _is_observed(cluster), timeout=240, interval=0.2)


def _is_observed(cluster: Cluster) -> bool:
    path = "--output=jsonpath={.status.conditions}"
    namespace, _, name = GROUP.partition("/")
    return bool(cluster.kubectl("get", "keepalivedgroup", name, f"--namespace={namespace}", path).stdout)


def object_of(version: str, kind: str, **metadata: Any) -> dict[str, Any]:
    """An object without a spec."""
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
