"""The nodes and the plans of one group while all nodes switch at one instant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

import msgspec

from kavip.api.agent import ProblemCode
from kavip.api.group import Instances, PasswordAuth, SecretRef
from kavip.api.instant import instant_text
from kavip.reconcile.observed.agentstates import BACKUP, InstanceState, NodeState
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of
from kavip.vrrp.identity import agree
from kavip.vrrp.running import RunningInstance, running_instances
from tests.reconcile.group.settledgroup import PROGRAMMED, WEB, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, pod
from tests.support import build

MULTICAST: dict[str, Any] = {"vrrp_version": 3, "unicast_enabled": False}
UNICAST: dict[str, Any] = {**MULTICAST, "unicast_enabled": True}
SHARED: dict[str, Any] = {**UNICAST, "instances": Instances(mode="Shared", count=2)}
SECOND: dict[str, Any] = {**MULTICAST, "vrrp_version": 2}
SECRET: dict[str, Any] = {**SECOND, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}
VIP, OTHER = "192.0.2.200", "192.0.2.201"
TICK = 1.0


@dataclass
class Node:
    """The part of an agent that matters to a switch: what is mounted, what runs, and why it cannot prepare."""

    name: str
    mounted: PublishedRevisions | None = None
    runs: Revision | None = None
    refuses: str = ""
    code: ProblemCode = ProblemCode.NONE
    stuck: bool = False
    is_silent: bool = False
    drift: float = 0.0
    is_old: bool = False
    bars: str = ""
    reports_vips: bool = False
    reports_anchors: bool = True

    def step(self, now: datetime) -> None:
        """Run the revision for this moment."""
        found = self.mounted
        if found is None:
            return
        is_due = found.next is not None and found.switch_at is not None and now >= found.switch_at
        wanted = found.next if is_due else found.current
        if wanted is None or wanted.hash != self.bars:
            self.runs = wanted

    def state(self, now: datetime) -> NodeState:
        """The agent's answer."""
        assert self.mounted
        following = self.mounted.next
        is_ahead = self.mounted.switch_at is None or now < self.mounted.switch_at
        is_asked = following is not None and is_ahead and not self.is_old
        running = self.runs.running.values() if self.runs and self.reports_vips else ()
        return NodeState(
            instance_of={vip.address: each.name for each in running for vip in each.virtual_ips},
            instances=tuple(
                InstanceState(
                    each.name,
                    each.identity.router_id,
                    each.identity.anchor.address.family,
                    BACKUP,
                    len(each.virtual_ips),
                    anchor=str(each.identity.anchor.address) if self.reports_anchors else "",
                )
                for each in running
            ),
            config_hash=self.runs.hash if self.runs else "",
            refused="" if self.runs else "no instance is left",
            prepared=following.digest if following and is_asked and not self.refuses else "",
            next_refused=self.refuses if is_asked else "",
            next_refused_code=self.code if is_asked else ProblemCode.NONE,
            switch_at=instant_text(self.mounted.switch_at) if is_asked and not self.refuses else "",
            drift=self.drift if is_asked else None,
        )


@dataclass
class Site:
    """A group with its nodes, and a controller without any memory except what it wrote."""

    simulation: SimulatedCluster
    nodes: list[Node]

    @classmethod
    def of(cls, *, nodes: int = 2, **spec: Any) -> "Site":
        """Nodes that run a group with one Service."""
        simulation = settled(build.group(GROUP, **spec), serving(WEB, VIP), nodes=nodes)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        with_pods(simulation, *(pod(f"edge-{name}", name) for name in names))
        site = cls(simulation, list(map(Node, names)))
        site.pass_time(2.0)
        return site

    @property
    def published(self) -> PublishedRevisions:
        """The revisions in the ConfigMap."""
        found = read_published(
            self.simulation.objects.configmaps[GROUP], settings_of(self.simulation.snapshot.groups[GROUP])
        )
        assert found
        return found

    @property
    def switch_at(self) -> datetime:
        """The announced instant."""
        assert self.published.switch_at
        return self.published.switch_at

    @property
    def seconds_left(self) -> float:
        """The seconds until the announced instant."""
        return (self.switch_at - self.simulation.now).total_seconds()

    @property
    def message(self) -> str:
        """The message of Programmed."""
        return condition(self.simulation, PROGRAMMED)[2]

    def edit(self, **spec: Any) -> None:
        """Edit the spec of the group."""
        old = self.simulation.snapshot.groups[GROUP]
        self.simulation.snapshot.put(msgspec.structs.replace(old, spec=build.group(GROUP, **spec).spec))

    def tick(self, *, controller: bool = True) -> None:
        """Let a second pass."""
        self.simulation.later(TICK)
        for node in self.nodes:
            if not node.stuck:
                node.mounted = self.published
            node.step(self.simulation.now)
            if not node.is_silent:
                state = node.state(self.simulation.now)
                self.simulation.agents = self.simulation.agents.with_state(GROUP, node.name, state=state)
        for _ in range(2 if controller else 0):  # first the status, then the objects
            self.simulation.group()
        self.check()

    def pass_time(self, seconds: float) -> None:
        """Let *seconds* pass."""
        for _ in range(round(seconds / TICK)):
            self.tick()

    def until(self, ready: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Let time pass until *ready* holds."""
        for _ in range(round(seconds / TICK)):
            if ready():
                return
            self.tick()
        raise AssertionError(self.message)

    def check(self) -> None:
        """Assert that no two nodes are masters of one instance, or of one VIP in two instances."""
        texts = {node.runs.text for node in self.nodes if node.runs}
        for one, other in combinations(map(running_instances, sorted(texts)), 2):
            self._check(one, other)

    @staticmethod
    def _check(one: Mapping[str, RunningInstance], other: Mapping[str, RunningInstance]) -> None:
        for name in one.keys() & other.keys():
            assert agree(one[name].identity, other[name].identity), name
        places = {vip.address: name for name, each in one.items() for vip in each.virtual_ips}
        for name, each in other.items():
            assert all(places.get(vip.address, name) == name for vip in each.virtual_ips)


def is_done(site: Site) -> bool:
    """Whether no switch is pending and all nodes run what is published."""
    return site.published.next is None and all(node.runs == site.published.current for node in site.nodes)
