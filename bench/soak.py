"""
An hour of changes and roll-outs on a real cluster: ``make soak SECONDS=3600``. It needs root.

Services of one group come, change, are refused and go without a pause. The pods of a second group, whose Services stay,
are replaced again and again. All other processes of kavip must live to the end and keep their memory and their open
files. No write may be lost, and each VIP of a Service that stays must be on a node.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.goal import row
from bench.large import GROWTH, SAMPLES
from bench.site import resident, service
from bench.timing import plain
from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.endurance import endurancerun
from hack.endurance.endurancerun import Run, object_of
from hack.endurance.writer import GROUP, NAMESPACE
from hack.testbed import programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.process import Process, wait_for
from hack.testbed.progress import step
from hack.upgrade.measure import LONGEST_SILENCE
from hack.upgrade.presence import watching
from kavip import names

SECONDS: Final = 3_600
RATE: Final = 20.0  # writes a second: two Services are created and two deleted
NODES: Final = 3
SERVICES: Final = 200  # that stay
STEADY: Final = f"{NAMESPACE}/steady"
ROLL_OUTS: Final = 4  # for each sample
MORE_FILES: Final = 16  # connections that happen to be open
PATIENCE: Final = 600.0
LASTING: Final = {"agent": NODES, "controller": 2, "webhook": 2}
"""Processes by role, without the agents that are replaced."""


@dataclass(frozen=True, slots=True)
class Size:
    """The resident memory of a process in MiB, and the number of its open files."""

    memory: int
    files: int

    @classmethod
    def of(cls, process: Process) -> "Size":
        """The size of *process* now; raises :class:`OSError` if it has ended."""
        return cls(resident(process.pid), sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir()))


@dataclass
class History:
    """The sizes of the processes of kavip in one *cluster*, by sample; *roles*: of every process that was found."""

    cluster: Cluster
    samples: list[dict[Process, Size]] = field(default_factory=list)
    roles: dict[Process, str] = field(default_factory=dict)

    def take(self) -> None:
        """Take a sample."""
        sizes: dict[Process, Size] = {}
        for node in self.cluster.nodes:
            for process in node.processes():
                with suppress(OSError):  # it has ended
                    if role := _role(process):
                        sizes[process] = Size.of(process)
                        self.roles[process] = f"{role} on {node.name}"
        self.samples.append(sizes)

    def report(self) -> bool:
        """Print how the processes that are in each sample have grown; return whether all goals are met."""
        lasting = sorted(set.intersection(*map(set, self.samples)), key=lambda each: (self.roles[each], each.pid))
        found = Counter(self.roles[each].partition(" ")[0] for each in lasting)
        met = [found == LASTING]
        row("processes that lived to the end", _counts(found), goal=_counts(LASTING), met=met[0])
        for process in lasting:
            sizes = [sample[process] for sample in self.samples]
            memory = " ".join(str(each.memory) for each in sizes)
            plain(f"{self.roles[process]}: MiB at first, and after each fifth", memory)
            grown, more = sizes[-1].memory / sizes[1].memory, sizes[-1].files - sizes[1].files
            met += [grown < GROWTH, more <= MORE_FILES]
            row("  memory at the end, to that after a fifth", f"{grown:.2f} x", goal=f"under {GROWTH:g} x", met=met[-2])
            row("  open files, more than after a fifth", str(more), goal=f"at most {MORE_FILES}", met=met[-1])
        plain("processes that were replaced", str(len(self.roles) - len(lasting)))
        return all(met)


def _role(process: Process) -> str:
    """The role of a container's process of kavip: ``kavip controller`` has that of a controller. "" for all others."""
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    program = next((at for at, word in enumerate(words[:2]) if word.endswith("/kavip")), None)
    role = "" if program is None or "--once" in words else words[program + 1]
    return role if role in LASTING else ""


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {role}s" for role, number in sorted(found.items()))


def prepare(cluster: Cluster) -> None:
    """Create both groups, their pools, and the Services that stay; wait until these are advertised."""
    pool = f"{names.KAVIP_GROUP}/{names.VERSION}", names.VIP_POOL
    group = f"{names.REDHATCOP_GROUP}/{names.VERSION}", names.KEEPALIVED_GROUP
    edge, steady = (each.partition("/")[2] for each in (GROUP, STEADY))
    shared = {"image": f"{REPOSITORY}:{TAG}", "interface": "eth0"}
    objects = [
        object_of("v1", "Namespace", name=NAMESPACE),
        object_of(*pool, name=edge) | {"spec": {"addresses": ["198.51.100.0/26"], "groups": [GROUP]}},
        object_of(*pool, name=steady) | {"spec": {"addresses": ["203.0.113.0/24"], "groups": [STEADY]}},
        object_of(*group, name=edge, namespace=NAMESPACE) | {"spec": shared},
        object_of(*group, name=steady, namespace=NAMESPACE) | {"spec": {**shared, "instances": {"mode": "Shared"}}},
    ]
    cluster.apply(*objects)
    for name in (edge, steady):
        group_name = f"keepalivedgroup/{name}"
        cluster.kubectl("wait", "--for=condition=Accepted", group_name, f"--namespace={NAMESPACE}", "--timeout=100s")
    notes = {names.GROUP_ANNOTATION: STEADY}
    cluster.apply(*(service(NAMESPACE, f"steady{number}", annotations=notes) for number in range(SERVICES)))
    wait_for(
        f"{SERVICES} Services are served", lambda: len(advertised(cluster)) == SERVICES, timeout=PATIENCE, interval=2
    )


def advertised(cluster: Cluster) -> dict[str, str]:
    """The addresses of the Services that stay and are advertised."""
    found = json.loads(cluster.kubectl("get", "services", f"--namespace={NAMESPACE}", "--output=json").stdout)
    return {
        each["metadata"]["name"]: each["status"]["loadBalancer"]["ingress"][0]["ip"]
        for each in found["items"]
        if each["metadata"]["name"].startswith("steady")
        and any(
            condition["type"] == names.ConditionType.ADVERTISED and condition["status"] == "True"
            for condition in each["status"].get("conditions") or ()
        )
    }


def roll_out(cluster: Cluster) -> None:
    """Replace the pods of the group whose Services stay."""
    target = "daemonset", STEADY.partition("/")[2], f"--namespace={NAMESPACE}"
    cluster.kubectl("rollout", "restart", *target)

    def is_rolled_out() -> bool:
        found = json.loads(cluster.kubectl("get", *target, "--output=json").stdout)
        status = found["status"]
        counts = {status.get(each, 0) for each in ("updatedNumberScheduled", "numberAvailable")}
        return status["observedGeneration"] == found["metadata"]["generation"] and counts == {NODES}

    wait_for("the pods are replaced", is_rolled_out, timeout=PATIENCE, interval=1)


def soak(cluster: Cluster, seconds: int) -> bool:
    """Change and roll out for *seconds*; print the table, and return whether all goals are met."""
    history, run, before = History(cluster), Run(cluster), advertised(cluster)
    history.take()
    with watching(cluster.nodes, {STEADY: before.values()}) as seen, run.writing(rate=RATE):
        began = time.monotonic()
        for sample in range(SAMPLES):
            with step(f"Sample {sample + 1} of {SAMPLES}"):
                for number in range(ROLL_OUTS):
                    roll_out(cluster)
                    due = began + (sample * ROLL_OUTS + number + 1) * seconds / (SAMPLES * ROLL_OUTS)
                    time.sleep(max(0.0, due - time.monotonic()))
                history.take()
        took = time.monotonic() - began
    wait_for("all are served", lambda: len(advertised(cluster)) == SERVICES, timeout=PATIENCE, interval=2)
    moved = [name for name, address in advertised(cluster).items() if before[name] != address]
    print(f"{len(run.record.writes):,} writes in {took:,.0f} s, {SAMPLES * ROLL_OUTS} roll-outs, {NODES} nodes")
    kept = history.report()
    lost = len(run.record.wrong) + run.counters.lost + run.counters.fail_open
    row("writes failed, lost or not reviewed", str(lost), goal="0", met=not lost)
    row("Services that stay with another address", str(len(moved)), goal="0", met=not moved)
    away = max(seen[STEADY].absent, seen[STEADY].gap)
    row("a VIP of theirs on no node", f"{away:.2f} s", goal=f"under {LONGEST_SILENCE:g} s", met=away < LONGEST_SILENCE)
    plain("their VIPs that moved, in all roll-outs", f"{seen[STEADY].moves:,}")
    print(run.table(), flush=True)
    return kept and not lost and not moved and away < LONGEST_SILENCE


def main(seconds: int = SECONDS) -> None:
    """Run it on a new cluster; the exit status is 1 if a goal is not met."""
    archive = image()
    with runs.temporary() as state, Cluster(programs.ensure(), state, nodes=NODES, images=[archive]) as cluster:
        with step("Install kavip"):
            endurancerun.install(cluster)
        with step("Make Services", f"{SERVICES} that stay"):
            prepare(cluster)
        kept = soak(cluster, seconds)
    sys.exit(not kept)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
