"""
``make upgrade FROM=COMMIT``: helm upgrade from the chart and the image of COMMIT to this one, and helm rollback.

Both while a client asks a VIP and while Services are written. The exit status is 1 if a call to a webhook is lost, if
an address or a VRID changes, or if the VIP is silent for longer than a fail-over takes.
"""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from hack import topology
from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.demo.session import MANIFESTS, Outage, Session
from hack.endurance import endurancerun
from hack.endurance.endurancerun import Run
from hack.testbed import images, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from hack.testbed.progress import say, step
from kavip import names

ROOT: Final = Path(__file__).parents[1]
GROUP, SERVICE = "lb/edge", "shop/web"
OLDER: Final = "older"
"""The tag of the image of the older commit."""
PATIENCE: Final = 400.0
LONGEST_SILENCE: Final = 5.0
"""Seconds: pods of the group are replaced node by node, and each hand-over of a VIP may take a second."""
RATE: Final = 20.0
"""Writes of Services a second."""


@contextmanager
def source_tree(commit: str) -> Iterator[Path]:
    """The files of *commit* in a temporary directory."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(folder, filter="data")
        yield Path(folder)


def older_image(tree: Path) -> Path:
    """The image of an older source tree, as an archive."""
    requirements = tree / "requirements" / "run.txt"
    return images.image(f"{REPOSITORY}:{OLDER}", dockerfile=tree / "Dockerfile", requirements=requirements)


@dataclass(slots=True)
class Upgrade:
    """The steps on one cluster, and what the client saw during each."""

    session: Session
    run: Run
    outages: dict[str, Outage] = field(default_factory=dict)

    def install(self, chart: Path, tag: str, *, replaced: tuple[str, ...] = ()) -> None:
        """
        Install the *chart*, or upgrade to it, and wait until the pods of kavip and of the group have the image.

        *replaced*: the Deployments that the chart does not have, and deletes.
        """
        values = f"--set=image.repository={REPOSITORY},image.tag={tag},image.pullPolicy=Never"
        where = ("--namespace=kavip", "--create-namespace", "--wait=watcher")
        command = ("upgrade", "--install", "kavip", str(chart), *where, values)
        topology.change(self.session.cluster, replaced, lambda: self.session.cluster.helm(*command))
        self.wait_replaced(tag)

    def roll_back(self, tag: str, *, replaced: tuple[str, ...] = ()) -> None:
        """Return to the previous release, whose image has the *tag*; it does not have the Deployments *replaced*."""
        command = ("rollback", "kavip", "--namespace=kavip", "--wait=watcher")
        topology.change(self.session.cluster, replaced, lambda: self.session.cluster.helm(*command))
        self.wait_replaced(tag)

    def wait_replaced(self, tag: str) -> None:
        """Wait until every pod of kavip and of the group runs *tag*, and the group is settled."""

        def is_replaced() -> bool:
            pods = self.session.get("pods", "-A")["items"]
            ours = {
                each["image"].rpartition(":")[2]
                for pod in pods
                for each in pod["spec"]["containers"]
                if each["image"].startswith(f"{REPOSITORY}:")
            }
            return ours == {tag} and self.is_settled()

        wait_for(f"all pods run {tag}", is_replaced, timeout=PATIENCE, interval=1)

    def is_settled(self) -> bool:
        """Whether the group, if it exists, runs on every node what the controller has published."""
        if self.session.get("keepalivedgroup", "edge", "-n", "lb") is None:
            return True
        kinds = ("Accepted", "Programmed", "Ready")
        return all(self.session.condition("keepalivedgroup", GROUP, kind)[0] == "True" for kind in kinds)

    def measure(self, name: str, change: Callable[[], None]) -> None:
        """Run one *change* while the client asks the VIP and Services are written."""

        def disturbance(_: Cluster) -> None:
            with self.session.measure_outage(self.session.address(SERVICE)) as outage:
                self.outages[name] = outage
                change()

        with step(name):
            self.run.run_disturbance(name, disturbance)

    def facts(self) -> dict[str, Any]:
        """What an upgrade must not change."""
        group = self.session.get("keepalivedgroup", "edge", "-n", "lb")
        return {
            "addresses": self.session.addresses(SERVICE),
            "spec of the group": group["spec"],
            "VRIDs": group["status"]["routerIDs"],
        }

    def leader(self) -> str:
        """The holder of the Lease."""
        lease = self.session.get("lease", names.LEASE_NAME, "-n", "kavip") or {}
        return str(lease.get("spec", {}).get("holderIdentity", ""))


def measure(cluster: Cluster, older: Path) -> bool:
    """Upgrade and roll back; returns whether nothing was lost or changed."""
    upgrade, newer = Upgrade(Session(cluster), Run(cluster)), ROOT / "charts" / "kavip"
    old, new = topology.of_chart(older / "charts" / "kavip"), topology.of_chart(newer)
    with step("Install the older release"):
        upgrade.install(older / "charts" / "kavip", OLDER)
        for name in ("pool", "group", "web"):
            cluster.kubectl("apply", f"--filename={MANIFESTS / f'{name}.yaml'}")
        endurancerun.prepare(cluster, is_default=False)
        wait_for("the VIP answers", lambda: _answers(upgrade.session), timeout=PATIENCE, interval=1)
        upgrade.wait_replaced(OLDER)
    before, leaders = upgrade.facts(), [upgrade.leader()]
    with upgrade.run.writing(rate=RATE):
        upgrade.measure("helm upgrade", lambda: upgrade.install(newer, TAG, replaced=_only(old, new)))
        leaders.append(upgrade.leader())
        changed = [upgrade.facts()]
        upgrade.measure("helm rollback", lambda: upgrade.roll_back(OLDER, replaced=_only(new, old)))
        leaders.append(upgrade.leader())
        changed.append(upgrade.facts())
    print(upgrade.run.table(), flush=True)
    for name, outage in upgrade.outages.items():
        print(f"the VIP during {name}: {outage}", flush=True)
    print(f"holders of the Lease: {', '.join(leaders)}", flush=True)
    for after in changed:
        for key in (key for key in before if before[key] != after[key]):
            print(f"CHANGED {key}: {json.dumps(before[key])} became {json.dumps(after[key])}", flush=True)
    lost = upgrade.run.record.failures or upgrade.run.counters.lost
    silent = any(each.silence > LONGEST_SILENCE for each in upgrade.outages.values())
    return not lost and not silent and changed == [before, before]


def _only(these: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in these if each not in others)


def _answers(session: Session) -> bool:
    address = session.address(SERVICE)
    return bool(address and session.answers(address))


@click.command()
@click.argument("commit")
def main(commit: str) -> None:
    """Upgrade from COMMIT on a new cluster, and roll back."""
    built = programs.ensure()
    with source_tree(commit) as older, runs.temporary() as state:
        cluster = Cluster(built, state, nodes=3, images=[older_image(older), image()])
        with step("Start a cluster", "three nodes"):
            cluster.start()
        try:
            good = measure(cluster, older)
        finally:
            cluster.stop()
    say("nothing was lost or changed" if good else "calls were lost, the VIP was silent, or something changed")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
