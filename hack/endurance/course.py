"""
One run: Services are written during all disturbances, and each write is assigned to the disturbance of its time.

A lost call is a failed write, or a call in the API server's metrics whose write was rejected because kavip did not
answer, or accepted without a review (``failurePolicy: Ignore``).
"""

import json
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
    return Record([], [])


@dataclass(frozen=True, slots=True)
class Leg:
    """One disturbance, the moment *at* which it struck, the moment when it was *over*, and the writes of its period."""

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
        """Seconds from the disturbance to the last failure; 0 if there is none."""
        return self.record.failures[-1].at - self.at if self.record.failures else 0.0


@dataclass(slots=True)
class Course:
    """The results of a run on one *cluster*."""

    cluster: Cluster
    legs: list[Leg] = field(default_factory=list)
    record: Record = field(default_factory=_nothing)
    counters: WebhookCounters = field(default_factory=lambda: WebhookCounters.parse(""))

    @contextmanager
    def writing(self, *, rate: float) -> Iterator[None]:
        """Write at *rate* during the block; then assign each write to its leg, and add the results."""
        before = WebhookCounters.read(self.cluster)
        command = [sys.executable, "-m", "hack.endurance.writer", str(self.cluster.kubeconfig)]
        options = [f"--connections={CONNECTIONS}", f"--rate={rate}"]
        process = subprocess.Popen(
            self.cluster.control.command(*command, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            yield
        finally:
            said, _ = process.communicate(b"", timeout=_GRACE)
            self.record += msgspec.json.decode(said, type=Record)
            self.counters += WebhookCounters.read(self.cluster) - before
            self.legs = [replace(leg, record=self.record.between(leg.since, leg.until)) for leg in self.legs]

    def leg(self, name: str, disturbance: Disturbance) -> None:
        """Run one disturbance while Services are written."""
        time.sleep(_CALM)
        since = time.monotonic()
        struck = disturbance(self.cluster)
        over = time.monotonic()
        time.sleep(_CALM)
        self.legs.append(Leg(name, since, struck or since, over, time.monotonic()))

    def table(self) -> str:
        """The report, as a table."""
        rows = [f"{'':26}{'writes':>8}{'seconds':>9}{'failed':>8}{'last after':>12}"]
        for leg in self.legs:
            after = f"{leg.span:.2f} s" if leg.record.failures else "-"
            seconds = f"{leg.until - leg.since:.0f}"
            rows.append(f"{leg.name:26}{leg.writes:8}{seconds:>9}{len(leg.record.failures):8}{after:>12}")
        whole = self.record
        rows.append(f"{'total':26}{len(whole.writes):8}{'':9}{len(whole.failures):8}")
        counters = self.counters
        codes = ", ".join(f"{code}: {n}" for code, n in counters.by_code.items())
        rows.append(f"the API server's own count: {counters.calls} calls of kavip's webhooks ({codes})")
        rows.append(f"  refused by kavip, as expected: {counters.refused}; rejected without an answer: {counters.lost}")
        rows.append(
            f"  accepted without a review (fail open): {counters.fail_open}; retried by request: {counters.retried}"
        )
        rows.append(f"  answered within: {counters.within(0.5):g} s (half), {counters.within(0.99):g} s (99 %)")
        rows += [f"  FAILED {each.verb} {self._when(each.at)}: {each.text}" for each in whole.failures[:_SHOWN]]
        return "\n".join(rows)

    def _when(self, at: float) -> str:
        """The leg of the course at that time."""
        found = (leg for leg in self.legs if leg.since <= at < leg.until)
        return next((f"{at - leg.at:.2f} s after {leg.name}" for leg in found), "between two disturbances")


def install(cluster: Cluster, *values: str) -> None:
    """Install kavip with helm, and wait until all replicas are ready."""
    image = f"--set=image.repository={REPOSITORY},image.tag={TAG},image.pullPolicy=Never"
    own = (f"--namespace={NAMESPACE}", "--create-namespace", "--wait=watcher", image)
    cluster.helm("upgrade", "--install", "kavip", str(CHART), *own, *values)
    wait_for("every replica is ready", lambda: disturb.whole(cluster), timeout=240, interval=0.3)


def prepare(cluster: Cluster) -> None:
    """Make what the writer needs: a pool, and a default group without nodes."""
    pool = {"addresses": ["192.0.2.128/26"]}
    nowhere = {"image": names.DEFAULT_IMAGE, "interface": "eth0", "nodeSelector": {"endurance": "nowhere"}}
    namespace, _, name = GROUP.partition("/")
    label = {names.DEFAULT_GROUP_LABEL: "true"}
    objects = [
        _object("v1", "Namespace", name=WRITTEN),
        _object(f"{names.KAVIP_GROUP}/{names.VERSION}", names.VIP_POOL, name=WRITTEN) | {"spec": pool},
        _object(
            f"{names.REDHATCOP_GROUP}/{names.VERSION}",
            names.KEEPALIVED_GROUP,
            name=name,
            namespace=namespace,
            labels=label,
        )
        | {"spec": nowhere},
    ]
    cluster.kubectl("apply", "--filename=-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    wait_for("kavip knows the group", lambda: _taken_up(cluster), timeout=240, interval=0.2)


def _taken_up(cluster: Cluster) -> bool:
    path = "--output=jsonpath={.status.conditions}"
    namespace, _, name = GROUP.partition("/")
    return bool(cluster.kubectl("get", "keepalivedgroup", name, f"--namespace={namespace}", path).stdout)


def _object(version: str, kind: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
