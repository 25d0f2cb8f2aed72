"""Events about VIPs that have moved to another node, as the plan of their group decides."""

from collections.abc import Mapping
from typing import Any

import pytest

from kavip.api.address import parse_address
from kavip.api.group import GroupVirtualIP, Instances
from kavip.reconcile.group import moves
from kavip.reconcile.observed.agentstates import InstanceState, NodeState
from kavip.reconcile.plan import Allowance, Key, KeyKind, Notice
from tests.reconcile.group.settledgroup import API, WEB, serving
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, cluster
from tests.support import build

VIPS = {WEB: "192.0.2.130", API: "192.0.2.131"}


def moved(key: str, text: str) -> Notice:
    """The Event that says *text* about a Service."""
    return Notice("MasterChanged", text, warning=False, about=Key(KeyKind.SERVICE, key))


def answers(masters: Mapping[str, str], instances: Mapping[str, tuple[str, ...]]) -> dict[str, NodeState]:
    """What both agents answer about *instances* with their VIPs; *masters*: the node that holds each."""
    found = {}
    for node in ("n1", "n2"):
        held = [name for name in instances if masters.get(name) == node]
        found[node] = NodeState(
            instances=tuple(
                InstanceState(name, number, 4, "MASTER" if name in held else "BACKUP", len(vips))
                for number, (name, vips) in enumerate(sorted(instances.items()), 1)
            ),
            instance_of={parse_address(vip): name for name, vips in instances.items() for vip in vips},
            runs=frozenset(parse_address(vip) for vips in instances.values() for vip in vips),
            masters=frozenset(parse_address(vip) for name in held for vip in instances[name]),
        )
    return found


class Site:
    """A group and its Services, which report their masters."""

    def __init__(self, *objects: Any, instances: Mapping[str, tuple[str, ...]]) -> None:
        self.cluster, self.instances = SimulatedCluster(cluster(*objects)), instances
        self.keys = [Key(KeyKind.GROUP, GROUP)]
        self.keys += [Key(KeyKind.SERVICE, key) for key in sorted(self.cluster.snapshot.services)]

    def settle(self, masters: Mapping[str, str]) -> None:
        """Let every status show *masters*."""
        self.cluster.agents = agent_states(**answers(masters, self.instances))
        self.cluster.settle(*self.keys)

    def events(self, masters: Mapping[str, str]) -> list[Notice]:
        """The Events about moves of the group's next plan, with other *masters*."""
        self.cluster.agents = agent_states(**answers(masters, self.instances))
        return [each for each in self.cluster.group().events if each.reason == "MasterChanged"]


@pytest.fixture
def site() -> Site:
    """Two Services, each with an instance of its own, both on n1."""
    services = [serving(key, vip) for key, vip in VIPS.items()]
    found = Site(build.group(), *services, instances={key: (vip,) for key, vip in VIPS.items()})
    found.settle(dict.fromkeys(VIPS, "n1"))
    return found


def test_a_move_is_one_event_about_the_service(site: Site) -> None:
    """It names the VIP and both nodes, and there is none for what stays."""
    after = {WEB: "n2", API: "n1"}
    assert site.events(after) == [moved(WEB, "192.0.2.130 moved from node n1 to node n2")]
    assert site.events(after) == []


def test_a_new_leader_sends_nothing_about_masters_that_stayed(site: Site) -> None:
    """It has no memory and no answers at first; only the master that changed meanwhile is an Event."""
    started = SimulatedCluster(site.cluster.snapshot)
    started.objects = site.cluster.objects
    site.cluster = started
    started.agents = agent_states(**dict.fromkeys(("n1", "n2"), NodeState()))
    assert [each for each in started.group().events if each.reason == "MasterChanged"] == []
    assert site.events({WEB: "n1", API: "n2"}) == [moved(API, "192.0.2.131 moved from node n1 to node n2")]


def test_the_first_master_is_no_move() -> None:
    """The Service reports it with the reason of its condition."""
    site = Site(build.group(), serving(WEB, VIPS[WEB]), instances={WEB: (VIPS[WEB],)})
    site.cluster.settle(*site.keys)
    assert site.events({WEB: "n1"}) == []


def test_a_master_after_none_is_no_move(site: Site) -> None:
    """That there was none is a reason of the condition, and so is the end of that."""
    site.cluster.agents = agent_states(**answers({API: "n1"}, site.instances))
    site.cluster.group()
    site.cluster.later(60)
    site.settle({API: "n1"})
    assert site.cluster.condition(WEB, "kavip.io/Advertised") == ("False", "NoMaster")
    assert site.events({WEB: "n2", API: "n1"}) == []


def test_vips_that_move_together_are_one_event() -> None:
    """VIPs of one Service between the same nodes are named together, and each Service of an instance has its own."""
    group = build.group(instances=Instances(mode="Shared", count=1))
    many = ("192.0.2.130", "192.0.2.132", "192.0.2.133", "192.0.2.134")
    instances = {"group/0": (*many, VIPS[API])}
    site = Site(group, serving(WEB, *many), serving(API, VIPS[API]), instances=instances)
    site.settle({"group/0": "n2"})
    assert site.events({"group/0": "n1"}) == [
        moved(API, "192.0.2.131 moved from node n2 to node n1"),
        moved(WEB, "192.0.2.130, 192.0.2.132, 192.0.2.133 and 1 more moved from node n2 to node n1"),
    ]


def test_a_new_service_of_an_instance_that_moves_has_its_first_master() -> None:
    """Its VIP was on no node before."""
    group = build.group(instances=Instances(mode="Shared", count=1))
    site = Site(group, serving(WEB, VIPS[WEB]), instances={"group/0": tuple(VIPS.values())})
    site.settle({"group/0": "n1"})
    site.cluster.snapshot.put(serving(API, VIPS[API]))
    site.cluster.group()
    assert [each.about and each.about.name for each in site.events({"group/0": "n2"})] == [WEB]


def test_vips_of_the_group_itself_are_events_about_the_group() -> None:
    """No Service has them."""
    vip = "192.0.2.140"
    group = build.group(virtual_ips=[GroupVirtualIP(address=f"{vip}/24")])
    site = Site(group, instances={"group/092.0.2.140": (vip,)})
    site.settle({"group/092.0.2.140": "n1"})
    expected = Notice("MasterChanged", f"{vip} moved from node n1 to node n2", warning=False)
    assert site.events({"group/092.0.2.140": "n2"}) == [expected]


def test_a_network_that_flaps_is_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the burst one Event about the group, always the same, stands for the others; with time there are more."""
    monkeypatch.setattr(moves, "BURST", 3)
    there, back = dict.fromkeys(VIPS, "n2"), dict.fromkeys(VIPS, "n1")
    assert len(site.events(there)) == 2
    first, others = site.events(back)
    assert first == moved(API, "192.0.2.131 moved from node n2 to node n1")
    assert others.about is None
    assert "VIPs of more Services have moved" in others.message
    for _ in range(5):
        assert site.events(there) == [others]
        assert site.events(back) == [others]
    site.cluster.later(moves.INTERVAL)
    assert site.events(there) == [moved(API, "192.0.2.131 moved from node n1 to node n2"), others]
    site.cluster.later(3 * moves.INTERVAL)
    assert len(site.events(back)) == 2


def test_an_allowance_is_regained_in_steps() -> None:
    """A part of an interval counts towards the next step."""
    spent = Allowance(3, 100.0)
    assert spent.after(104.9, interval=5.0) == Allowance(3, 100.0)
    assert spent.after(109.0, interval=5.0) == Allowance(2, 105.0)
    assert spent.after(109.0, interval=5.0).after(110.0, interval=5.0) == Allowance(1, 110.0)
    assert spent.after(120.0, interval=5.0) == Allowance(0, 120.0)
