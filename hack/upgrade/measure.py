"""Carries out the changes of a way while a client asks a VIP and Services are written, and measures both."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from hack.demo.session import MANIFESTS, Outage, Session
from hack.endurance import endurancerun
from hack.endurance.endurancerun import Run
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from hack.testbed.progress import step
from hack.upgrade import crowd
from hack.upgrade.crowd import KEPT, Crowd
from hack.upgrade.presence import Presence
from hack.upgrade.ways import OLDER, Way
from kavip import names

GROUP, SERVICE = "lb/edge", "shop/web"
PATIENCE: Final = 900.0
LONGEST_SILENCE: Final = 5.0
"""Seconds: pods of the group are replaced node by node, and each hand-over of a VIP may take a second."""
RATE: Final = 5.0
"""Writes of Services a second."""


@dataclass(slots=True)
class Upgrade:
    """The steps on one cluster, and what the client saw during each."""

    session: Session
    run: Run
    many: Crowd | None = None
    outages: dict[str, Outage] = field(default_factory=dict)
    presences: dict[str, Mapping[str, Presence]] = field(default_factory=dict)

    def wait_replaced(self, image: str) -> None:
        """Wait until every pod of kavip and of the group runs *image*, and the group is settled."""

        def is_replaced() -> bool:
            pods = self.session.get("pods", "-A")["items"]
            replaced = (pod for pod in pods if pod["metadata"]["labels"].get(names.GROUP_LABEL) != KEPT)
            ours = {
                each["image"] for pod in replaced for each in pod["spec"]["containers"] if "/kavip" in each["image"]
            }
            return ours == {image} and self.is_settled()

        wait_for(f"all pods run {image}", is_replaced, timeout=PATIENCE, interval=1)

    def is_settled(self) -> bool:
        """Whether the groups, if they exist, run on every node what the controller has published."""
        if self.session.get("keepalivedgroup", "edge", "-n", "lb") is None:
            return True
        groups = [GROUP, *([f"{crowd.NAMESPACE}/{crowd.REPLACED}"] if self.many else [])]
        kinds = ("Accepted", "Programmed", "Ready")
        condition = self.session.condition
        return all(condition("keepalivedgroup", each, kind)[0] == "True" for each in groups for kind in kinds)

    def measure(self, name: str, change: Callable[[], None], image: str) -> None:
        """Run one *change*, until all pods run *image*, while the client asks the VIP and Services are written."""

        def disturbance(_: Cluster) -> None:
            address = self.session.address(SERVICE)
            with ExitStack() as stack:
                self.outages[name] = stack.enter_context(self.session.measure_outage(address))
                if self.many:
                    self.presences[name] = stack.enter_context(self.many.watching())
                change()
                self.wait_replaced(image)

        with step(name):
            self.run.run_disturbance(name, disturbance)

    def facts(self) -> dict[str, Any]:
        """What an upgrade must not change."""
        group = self.session.get("keepalivedgroup", "edge", "-n", "lb")
        many: dict[str, Any] = {}
        if self.many:
            many["VRIDs of the groups with many VIPs"] = self.many.router_ids()
            many["images of the pods that stay"] = self.many.images_that_stay()
        return {
            **many,
            "addresses": self.session.addresses(SERVICE),
            "spec of the group": group["spec"],
            "VRIDs": group["status"]["routerIDs"],
        }

    def leader(self) -> str:
        """The holder of the Lease."""
        lease = self.session.get("lease", names.LEASE_NAME, "-n", "kavip") or {}
        return str(lease.get("spec", {}).get("holderIdentity", ""))


def measure(cluster: Cluster, way: Way, vips: int = 0) -> bool:
    """
    Upgrade, and roll back if the *way* can; returns whether nothing was lost or changed.

    *vips*: how many VIPs the groups with many VIPs (:mod:`.crowd`) have; without them there are no such groups.
    """
    session = Session(cluster)
    upgrade = Upgrade(session, Run(cluster), Crowd(session, vips) if vips else None)
    with step("Install the older version"):
        way.install()
        for name in ("pool", "group", "web"):
            cluster.kubectl("apply", f"--filename={MANIFESTS / f'{name}.yaml'}")
        endurancerun.prepare(cluster, is_default=False)
        wait_for("the VIP answers", lambda: _answers(upgrade.session), timeout=PATIENCE, interval=1)
        if upgrade.many:
            upgrade.many.create()
        upgrade.wait_replaced(OLDER)
    before, leaders, changed = upgrade.facts(), [upgrade.leader()], []
    with upgrade.run.writing(rate=RATE):
        for name, (change, image) in way.changes().items():
            upgrade.measure(name, change, image)
            if upgrade.many:
                print(f"the text of group {crowd.REPLACED} has {upgrade.many.describe_text()}", flush=True)
            leaders.append(upgrade.leader())
            changed.append(upgrade.facts())
    print(upgrade.run.table(), flush=True)
    for name, outage in upgrade.outages.items():
        print(f"the VIP during {name}: {outage}", flush=True)
    for name, found in upgrade.presences.items():
        for group, presence in found.items():
            print(f"group {group} during {name}: {presence}", flush=True)
    print(f"holders of the Lease: {', '.join(leaders)}", flush=True)
    for after in changed:
        for key in (key for key in before if before[key] != after[key]):
            print(f"CHANGED {key}: {json.dumps(before[key])} became {json.dumps(after[key])}", flush=True)
    if way.unreviewed:
        print("unreviewed writes are expected: nothing reviews Services until the webhooks are registered", flush=True)
    silent = any(each.silence > LONGEST_SILENCE for each in upgrade.outages.values())
    unsteady = any(is_unsteady(each) for each in upgrade.presences.values())
    return not (is_lost(upgrade.run, way) or silent or unsteady) and all(each == before for each in changed)


def is_unsteady(found: Mapping[str, Presence]) -> bool:
    """
    Whether a VIP was on no node, or on two, for longer than a hand-over takes, or looks were as far apart.

    One whose pods stay never moves.
    """
    kept = found[crowd.KEPT]
    slow = any(max(each.absent, each.doubled, each.gap) > LONGEST_SILENCE for each in found.values())
    return slow or bool(kept.moves or kept.absent or kept.doubled)


def is_lost(run: Run, way: Way) -> bool:
    """Whether a write failed, a call to a webhook is lost, or a write is unreviewed that *way* promises to review."""
    return bool(run.record.failures or run.counters.lost or (run.record.unreviewed and not way.unreviewed))


def _answers(session: Session) -> bool:
    address = session.address(SERVICE)
    return bool(address and session.answers(address))
