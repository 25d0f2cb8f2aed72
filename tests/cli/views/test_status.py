"""``kavip status`` over objects: whose VIP it is and which node has it, however a group keeps its VRIDs."""

import json
from typing import Any

import msgspec
import pytest
import yaml

from kavip import names
from kavip.api.group import GroupStatus, GroupVirtualIPStatus, Instances, InstanceStatus, KeepalivedGroup, NodesStatus
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.cli.views import status as overview
from kavip.cli.views.status import VirtualIP
from kavip.snapshot import Object
from tests.reconcile.service.planning import told
from tests.support import build

GROUP = "lb/edge"


def served(key: str, *vips: str, reason: str = "Master", **more: Any) -> Service:
    """A Service that has its addresses, and says *reason*."""
    service = build.service(key, group=GROUP, holds=vips, **more)
    status = "True" if reason == "Master" else "False"
    return told(service, names.Condition.ADVERTISED, status, reason, message="" if reason == "Master" else "why")


def instance(name: str, number: int, node: str = "n1", *, family: int = 4) -> InstanceStatus:
    """What the group's status says of one instance."""
    return InstanceStatus(name=name, router_id=number, family=family, node=node, state="MASTER" if node else "BACKUP")


def group(
    *instances: InstanceStatus, ids: dict[str, int], own: tuple[GroupVirtualIPStatus, ...] = (), **spec: Any
) -> KeepalivedGroup:
    """A group with its status."""
    made = build.group(GROUP, **spec)
    status = GroupStatus(
        router_ids=ids,
        instances=list(instances),
        virtual_ips=list(own),
        nodes=NodesStatus(desired=2, ready=2, current=1),
        conditions=[Condition(type="Programmed", status="False", reason="Pending", message="1 of 2 nodes")],
    )
    return msgspec.structs.replace(made, status=status)


def seen(*objects: Object) -> dict[str, tuple[str, str, str]]:
    """Service, node and state, by address."""
    return {each.address: (each.service, each.node, each.state) for each in overview.overview(objects).virtual_ips}


def test_both_families_have_their_instances() -> None:
    """Under one VRID, in two instances."""
    edge = group(instance("shop/web", 7), instance("shop/web/v6", 7, "n2", family=6), ids={"shop/web": 7})
    assert seen(edge, served("shop/web", "192.0.2.130", "2001:db8::5")) == {
        "192.0.2.130": ("shop/web", "n1", "Master"),
        "2001:db8::5": ("shop/web", "n2", "Master"),
    }


def test_spread_vips_have_a_vrid_each() -> None:
    """Kept under the address."""
    ids = {"shop/web/192.0.2.130": 7, "shop/web/192.0.2.131": 8}
    edge = group(instance("shop/web/192.0.2.130", 7), instance("shop/web/192.0.2.131", 8, "n2"), ids=ids)
    found = seen(edge, served("shop/web", "192.0.2.130", "192.0.2.131"))
    assert [node for _, node, _ in found.values()] == ["n1", "n2"]


def test_shared_instances_are_found_by_their_vrid() -> None:
    """A Service's VRID is that of its instance, which has another name."""
    edge = group(instance("group/3", 12, "n2"), ids={"group/3": 12, "shop/web": 12}, instances=Instances(mode="Shared"))
    assert seen(edge, served("shop/web", "192.0.2.130")) == {"192.0.2.130": ("shop/web", "n2", "Master")}


def test_services_that_share_an_address_share_its_node() -> None:
    """Only one of the two has the instance."""
    edge = group(instance("shop/web", 7, "n2"), ids={"shop/web": 7, "shop/api": 8})
    found = overview.overview([edge, served("shop/web", "192.0.2.130"), served("shop/api", "192.0.2.130")])
    assert [(each.service, each.node) for each in found.virtual_ips] == [("shop/api", "n2"), ("shop/web", "n2")]
    assert found.nodes[0].virtual_ips == 1  # one VIP, however many Services use it


def test_what_keeps_a_service_waiting_is_told() -> None:
    """The first condition that does not hold, with its message; and the exit status says that something is wrong."""
    waits = told(
        build.service("shop/late", group=GROUP),
        names.Condition.ADDRESS_ASSIGNED,
        "False",
        "PoolExhausted",
        message="full",
    )
    edge = group(instance("shop/web", 7, ""), ids={"shop/web": 7})
    found = overview.overview([edge, served("shop/web", "192.0.2.130", reason="NoMaster"), waits])
    assert found.virtual_ips == (
        VirtualIP("192.0.2.130", "shop/web", GROUP, "", "", "NoMaster", "why"),
        VirtualIP("", "shop/late", GROUP, "", "", "PoolExhausted", "full"),
    )
    assert found.status == 1
    assert overview.overview([]).status == 0


def test_a_groups_own_vips_and_its_nodes_are_shown() -> None:
    """Without a Service; a node of the group that holds nothing is shown with the others, foreign Services are not."""
    own = GroupVirtualIPStatus(address="192.0.2.200", node="n1", state="MASTER")
    edge = group(ids={}, own=(own,))
    foreign = build.service("shop/other", holds=["192.0.2.9"])
    found = overview.overview([edge, foreign, build.node("n1", "192.0.2.11"), build.node("n2", "192.0.2.12")])
    assert [(each.address, each.service, each.state) for each in found.virtual_ips] == [("192.0.2.200", "", "Master")]
    assert [(each.node, each.virtual_ips, each.groups) for each in found.nodes] == [
        ("n1", 1, (GROUP,)),
        ("n2", 0, (GROUP,)),
    ]
    (only,) = found.groups
    assert (only.desired, only.ready, only.current, only.state, only.message) == (2, 2, 1, "Pending", "1 of 2 nodes")


def test_a_group_that_is_well_tells_what_its_nodes_note() -> None:
    """A health check that fails makes no group unready, and is what one looks for when a VIP is missed."""
    edge = group(ids={})
    for message, shown in (
        ("every pod is ready", ""),
        ("every pod is ready; node n1: web fails", "node n1: web fails"),
    ):
        ready = [Condition(type="Ready", status="True", reason="Ready", message=message)]
        well = msgspec.structs.replace(edge, status=msgspec.structs.replace(edge.status, conditions=ready))
        (only,) = overview.overview([well]).groups
        assert (only.state, only.message) == ("Ready", shown)


def conditioned(*conditions: Condition, own: tuple[GroupVirtualIPStatus, ...] = ()) -> KeepalivedGroup:
    """A group that says *conditions*."""
    edge = group(ids={}, own=own)
    return msgspec.structs.replace(edge, status=msgspec.structs.replace(edge.status, conditions=list(conditions)))


PENDING = Condition(type="Programmed", status="False", reason="Pending", message="0 of 3 nodes run it")
NO_NODES = Condition(type="Ready", status="False", reason="NoNodes", message="no node matches spec.nodeSelector")
NO_PODS = Condition(type="Ready", status="False", reason="PodsNotReady", message="0 of 3 pods; its DaemonSet says: no")
REFUSED = Condition(type="Programmed", status="False", reason="RefusedByAgent", message="node n1: line 3")


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ((PENDING, NO_NODES), ("NoNodes", "no node matches spec.nodeSelector")),
        ((PENDING, NO_PODS), ("PodsNotReady", "0 of 3 pods; its DaemonSet says: no; 0 of 3 nodes run it")),
        ((REFUSED, NO_PODS), ("RefusedByAgent", "node n1: line 3")),
        ((PENDING,), ("Pending", "0 of 3 nodes run it")),
    ],
    ids=lambda each: each[0] if isinstance(each[0], str) else "",
)
def test_why_a_group_waits_comes_before_that_it_does(conditions: tuple[Condition, ...], shown: tuple[str, str]) -> None:
    """Without nodes or pods nothing can run: what helps is there."""
    (only,) = overview.overview([conditioned(*conditions)]).groups
    assert (only.state, only.message) == shown


def test_a_vip_that_nobody_holds_says_what_its_group_says() -> None:
    """A VIP of the group itself has no conditions of its own; one that is held needs no word."""
    ready = Condition(type="Ready", status="True", reason="Ready", message="every pod is ready; node n1: web fails")
    lost = GroupVirtualIPStatus(address="192.0.2.200", node="", state="NoMaster")
    held = GroupVirtualIPStatus(address="192.0.2.201", node="n1", state="MASTER")
    found = overview.overview([conditioned(ready, own=(lost, held))])
    assert [(each.state, each.message) for each in found.virtual_ips] == [
        ("NoMaster", "node n1: web fails"),
        ("Master", ""),
    ]


def test_a_master_on_which_nobody_answers_is_told() -> None:
    """With the policy Local and no endpoint a VIP has its master, and clients have nothing of it."""
    edge = group(instance("shop/web", 7), instance("shop/api", 8), ids={"shop/web": 7, "shop/api": 8})
    in_vain = "node n1 holds 192.0.2.130; nobody answers there: no node has a ready endpoint"
    web, api = (
        build.service(f"shop/{name}", group=GROUP, holds=(vip,))
        for name, vip in (("web", "192.0.2.130"), ("api", "192.0.2.131"))
    )
    web = told(web, names.Condition.ADVERTISED, "True", "Master", message=in_vain)
    both = "node n1 holds 192.0.2.131; node n2 holds 192.0.2.132"
    api = told(api, names.Condition.ADVERTISED, "True", "Master", message=both)
    found = overview.overview([edge, web, api])
    assert [(each.state, each.message) for each in found.virtual_ips] == [
        ("Master", "nobody answers there: no node has a ready endpoint"),
        ("Master", ""),
    ]
    assert found.status == 0


def test_a_node_that_was_drained_is_seen() -> None:
    """Pods of DaemonSets stay on it, and so do VIPs."""
    taint = "node.kubernetes.io/unschedulable:NoSchedule"
    found = overview.overview([group(ids={}), build.node("n1", "192.0.2.11", taints=[taint]), build.node("n2")])
    assert [(each.node, each.cordoned) for each in found.nodes] == [("n1", True), ("n2", False)]
    assert ", cordoned " in next(line for line in overview.text(found).splitlines() if line.startswith("n1 "))


def test_addresses_are_in_the_order_of_their_numbers() -> None:
    """9 before 10, IPv4 before IPv6, waiting Services last: the same objects in any order give the same text."""
    objects = [served(f"shop/s{n}", vip) for n, vip in enumerate(("2001:db8::1", "192.0.2.10", "192.0.2.9"))]
    text = overview.text(overview.overview(objects))
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["192.0.2.9", "192.0.2.10", "2001:db8::1"]
    assert overview.text(overview.overview(objects[::-1])) == text


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_read_one_object(form: str) -> None:
    """JSON's names, and the counts of a pool as its status has them."""
    edge = group(instance("shop/web", 7), ids={"shop/web": 7})
    printed = overview.shown(
        overview.overview([edge, served("shop/web", "192.0.2.130"), build.pool()], ["a note"]), form
    )
    found = json.loads(printed) if form == "json" else yaml.safe_load(printed)
    assert sorted(found) == ["groups", "nodes", "notes", "pools", "virtualIPs"]
    assert found["virtualIPs"][0]["service"] == "shop/web"
    assert found["notes"] == ["a note"]
    assert found["nodes"] == [{"node": "n1", "ready": None, "groups": [GROUP], "virtualIPs": 1, "cordoned": False}]


def test_what_others_wrote_into_a_status_steers_no_terminal() -> None:
    """Escapes are spelled out, and no cell makes a line of its own."""
    hostile = instance("shop/web", 7, node="n1\x1b[2J\x07\r\nlb/fake\u202e\x9b31m")
    found = overview.text(overview.overview([group(hostile, ids={"shop/web": 7}), served("shop/web", "192.0.2.128")]))
    assert all(line.isprintable() for line in found.split("\n"))
    assert not any(line.startswith("lb/fake") for line in found.split("\n"))
    assert r"n1\x1b[2J\x07 lb/fake\u202e\x9b31m" in found


def test_who_may_not_read_the_group_sees_what_the_service_says() -> None:
    """A VIP of a group that is not shown has the master that its Service names; one that says nothing has none."""
    web = build.service("shop/web", group=GROUP, holds=("192.0.2.128",))
    web = told(web, names.Condition.ADVERTISED, "True", "Master", message="node n1 holds 192.0.2.128")
    (found,) = overview.overview([web]).virtual_ips
    assert (found.state, found.message) == ("Master", "node n1 holds 192.0.2.128")
    assert overview.overview([web]).status == 0
    lost = served("shop/lost", "192.0.2.129", reason="NoMaster")
    assert overview.overview([web, lost]).status == 1
    assert overview.overview([web, group(ids={})]).status == 1  # the group is seen, and knows of none
