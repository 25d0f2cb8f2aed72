"""
An hour of changes and roll-outs on a real cluster: ``make soak SECONDS=3600``. It needs root.

Services of one group come, change, are refused and go without a pause. The pods of a second group, whose Services stay,
are replaced again and again. Each process of kavip that lives from the start to the end must keep its memory and its
open files; no write may be lost, and no Service that stays may lose its address.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import goal
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
from kavip import names

SECONDS: Final = 3_600
RATE: Final = 20.0  # writes a second: two Services are created and two deleted
NODES: Final = 3
SERVICES: Final = 200  # that stay
STEADY: Final = f"{NAMESPACE}/steady"
SAMPLES: Final = 5
ROLL_OUTS: Final = 4  # for each sample
GROWTH: Final = 1.15
MORE_FILES: Final = 16  # connections that happen to be open
PATIENCE: Final = 600.0
ROLES: Final = ("controller", "webhook", "agent")


@dataclass(frozen=True, slots=True)
class Size:
    """The resident memory of a process in MiB, and the number of its open files."""

    memory: int
    files: int

    @classmethod
    def of(cls, process: Process) -> "Size":
        """The size of *process* now."""
        return cls(resident(process.pid), sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir()))


@dataclass
class History:
    """The sizes of the processes of kavip in one *cluster*, by sample; *all*: every process that a sample found."""

    cluster: Cluster
    samples: list[dict[Process, Size]] = field(default_factory=list)
    all: dict[Process, str] = field(default_factory=dict)

    def take(self) -> None:
        """Take a sample."""
        found = {process: f"{role} on {node}" for node, role, process in kavip_processes(self.cluster)}
        self.all |= found
        self.samples.append({process: Size.of(process) for process in found})

    def report(self) -> None:
        """Print the processes that are in each sample, and how their memory and files have grown after the first."""
        lasting = set.intersection(*map(set, self.samples))
        for process in sorted(lasting, key=lambda each: (self.all[each], each.pid)):
            sizes = [sample[process] for sample in self.samples]
            plain(f"{self.all[process]}: MiB", ", ".join(str(each.memory) for each in sizes))
            grown = sizes[-1].memory / sizes[1].memory
            goal.row("  after it", f"{grown:.2f} x", goal=f"under {GROWTH:g} x after a fifth", met=grown < GROWTH)
            more = sizes[-1].files - sizes[1].files
            goal.row("  more open files", str(more), goal=f"at most {MORE_FILES}", met=more <= MORE_FILES)
        plain("processes that were replaced", str(len(self.all) - len(lasting)))


def kavip_processes(cluster: Cluster) -> Iterator[tuple[str, str, Process]]:
    """The node, the role and the process of each container of kavip."""
    for node in cluster.nodes:
        for process in node.processes():
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            role = next((each for each in ROLES if each in words[:4]), "")
            if role and any("kavip" in word for word in words[:3]) and "--once" not in words:
                yield node.name, role, process


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
    ready = "--for=jsonpath={.status.conditions}"
    for name in (edge, steady):
        cluster.kubectl("wait", ready, f"keepalivedgroup/{name}", f"--namespace={NAMESPACE}", "--timeout=240s")
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
    """Change and roll out for *seconds*; print the table, and return whether nothing was lost."""
    history, run, before = History(cluster), Run(cluster), advertised(cluster)
    history.take()
    with run.writing(rate=RATE):
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
    history.report()
    lost = len(run.record.wrong) + run.counters.lost + run.counters.fail_open
    goal.row("writes failed, lost or not reviewed", str(lost), goal="0", met=not lost)
    goal.row("addresses changed", str(len(moved)), goal="0", met=not moved)
    print(run.table(), flush=True)
    return not lost and not moved


def main(seconds: int = SECONDS) -> None:
    """Run it on a new cluster; the exit status is 1 if something was lost."""
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
