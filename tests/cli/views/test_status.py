"""``kavip status``: the Service and the node of each VIP, in every mode of a group."""

import json
from typing import Any

import msgspec
import pytest
import yaml

from kavip import names
from kavip.api.group import GroupStatus, GroupVirtualIPStatus, Instances, InstanceStatus, KeepalivedGroup, NodesStatus
from kavip.api.meta import Condition
from kavip.api.pool import PoolRouting
from kavip.api.service import Service
from kavip.cli.views.status import VirtualIPRow, report
from kavip.cli.views.statusoutput import output, text
from kavip.names import Reason
from kavip.snapshot import Object
from tests.reconcile.service.planning import with_condition
from tests.support import build

GROUP = "lb/edge"


def served(key: str, *vips: str, reason: str = "Master", **more: Any) -> Service:
    """A Service that has its addresses, with the *reason* of Advertised."""
    service = build.service(key, group=GROUP, holds=vips, **more)
    status = "True" if reason == "Master" else "False"
    return with_condition(
        service, names.ConditionType.ADVERTISED, status, reason, message="" if reason == "Master" else "why"
    )


def instance(name: str, number: int, node: str = "n1", *, family: int = 4) -> InstanceStatus:
    """One instance in the status of the group."""
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
    return {each.address: (each.service, each.node, each.state) for each in report(objects).virtual_ips}


def test_a_vip_that_waits_for_a_switch_is_in_the_instance_of_its_service() -> None:
    """It has a VRID of its own already, and no node runs that instance yet."""
    ids = {"shop/web": 7, "shop/web/192.0.2.130": 8, "shop/web/192.0.2.131": 9}
    edge = group(instance("shop/web", 7), instance("shop/web/192.0.2.131", 9, "n2"), ids=ids)
    assert seen(edge, served("shop/web", "192.0.2.130", "192.0.2.131")) == {
        "192.0.2.130": ("shop/web", "n1", "Master"),
        "192.0.2.131": ("shop/web", "n2", "Master"),
    }


def test_both_families_have_instances() -> None:
    """They share one VRID."""
    edge = group(instance("shop/web", 7), instance("shop/web/v6", 7, "n2", family=6), ids={"shop/web": 7})
    assert seen(edge, served("shop/web", "192.0.2.130", "2001:db8::5")) == {
        "192.0.2.130": ("shop/web", "n1", "Master"),
        "2001:db8::5": ("shop/web", "n2", "Master"),
    }


def test_spread_vips_have_a_vrid_each() -> None:
    """The key of the VRID ends with the address."""
    ids = {"shop/web/192.0.2.130": 7, "shop/web/192.0.2.131": 8}
    edge = group(instance("shop/web/192.0.2.130", 7), instance("shop/web/192.0.2.131", 8, "n2"), ids=ids)
    found = seen(edge, served("shop/web", "192.0.2.130", "192.0.2.131"))
    assert [node for _, node, _ in found.values()] == ["n1", "n2"]


def test_a_service_is_in_the_shared_instance_of_its_name() -> None:
    """Also an address of a Service with spreadvips that has no instance of its own; a Local Service is in none."""
    ids = {"group/0": 12, "shop/spread/192.0.2.132": 13, "shop/web": 12}  # kavip 0.1 named Services too
    running = instance("group/0", 12, "n2"), instance("shop/spread/192.0.2.132", 13, "n3")
    edge = group(*running, ids=ids, instances=Instances(mode="Shared", count=1))
    spread = served("shop/spread", "192.0.2.131", "192.0.2.132", annotations={names.SPREAD_ANNOTATION: "true"})
    local = served("shop/local", "192.0.2.133", external_traffic_policy="Local")
    assert {
        vip: node for vip, (_, node, _) in seen(edge, served("shop/web", "192.0.2.130"), spread, local).items()
    } == {
        "192.0.2.130": "n2",
        "192.0.2.131": "n2",
        "192.0.2.132": "n3",
        "192.0.2.133": "",
    }


def test_a_vip_on_an_interface_of_a_pool_has_the_instance_there() -> None:
    """In mode Shared each interface has instances of its own; a Local Service has its own on any interface."""
    dmz = build.pool("dmz", "198.51.100.0/24", interface="vlan20")
    ids = {"group/0": 12, "group/0.vlan20": 13, "shop/local": 14}
    running = (instance("group/0", 12), instance("group/0.vlan20", 13, "n2"), instance("shop/local", 14, "n3"))
    edge = group(*running, ids=ids, instances=Instances(mode="Shared", count=1))
    web = served("shop/web", "192.0.2.130", "198.51.100.130")
    local = served("shop/local", "198.51.100.131", external_traffic_policy="Local")
    assert [(vip, node) for vip, (_, node, _) in seen(edge, dmz, web, local).items()] == [
        ("192.0.2.130", "n1"),
        ("198.51.100.130", "n2"),
        ("198.51.100.131", "n3"),
    ]


def test_a_pool_shows_its_interface_and_gateways() -> None:
    """They are in the table and in JSON."""
    routing = PoolRouting(gateway="198.51.100.1", gateway_ipv6="2001:db8:20::1", table=120)
    dmz = build.pool("dmz", "198.51.100.128/25", interface="vlan20", routing=routing)
    found = report([dmz, build.pool("edge")])
    assert [(each.interface, each.gateways, each.table) for each in found.pools] == [
        ("vlan20", ("198.51.100.1", "2001:db8:20::1"), 120),
        ("", (), 0),
    ]
    lines = [line for line in text(found).splitlines() if line.startswith(("dmz", "edge"))]
    assert "vlan20" in lines[0] and "198.51.100.1, 2001:db8:20::1 (table 120)" in lines[0]
    assert lines[1].split()[-3:] == ["-", "-", "Pending"]


def test_services_that_share_an_address_have_the_same_node() -> None:
    """Only one of them has the instance."""
    edge = group(instance("shop/web", 7, "n2"), ids={"shop/web": 7, "shop/api": 8})
    found = report([edge, served("shop/web", "192.0.2.130"), served("shop/api", "192.0.2.130")])
    assert [(each.service, each.node) for each in found.virtual_ips] == [("shop/api", "n2"), ("shop/web", "n2")]
    assert found.nodes[0].virtual_ips == 1  # one VIP, used by two Services


def test_the_first_false_condition_is_shown() -> None:
    """The row has its reason and message, and the exit status is 1."""
    waits = with_condition(
        build.service("shop/late", group=GROUP),
        names.ConditionType.ADDRESS_ASSIGNED,
        "False",
        "PoolExhausted",
        message="full",
    )
    edge = group(instance("shop/web", 7, ""), ids={"shop/web": 7})
    found = report([edge, served("shop/web", "192.0.2.130", reason="NoMaster"), waits])
    assert found.virtual_ips == (
        VirtualIPRow("192.0.2.130", "shop/web", GROUP, "", "", "NoMaster", "why", 7, "eth0"),
        VirtualIPRow("", "shop/late", GROUP, "", "", "PoolExhausted", "full"),
    )
    assert found.status == 1
    assert report([]).status == 0


def test_a_service_that_waits_for_more_than_it_has_is_shown() -> None:
    """Its VIP has a master, and the request that waits has a row of its own; the exit status is that of explain."""
    kept = with_condition(
        served("shop/web", "192.0.2.130"),
        names.ConditionType.ADDRESS_ASSIGNED,
        "False",
        "QuotaExceeded",
        message="has 1 of 2",
    )
    found = report([group(instance("shop/web", 7), ids={"shop/web": 7}), kept])
    assert [(each.address, each.state, each.message) for each in found.virtual_ips] == [
        ("192.0.2.130", "Master", ""),
        ("", "QuotaExceeded", "has 1 of 2"),
    ]
    assert found.status == 1


def test_addresses_of_the_platform_do_not_wait() -> None:
    """AddressAssigned is Unknown then, and the VIP is all that is shown."""
    left = with_condition(
        served("shop/web", "192.0.2.130"), names.ConditionType.ADDRESS_ASSIGNED, "Unknown", "LeftToPlatform"
    )
    found = report([group(instance("shop/web", 7), ids={"shop/web": 7}), left])
    assert [each.state for each in found.virtual_ips] == ["Master"]
    assert found.status == 0


def test_a_service_that_no_controller_has_seen_waits() -> None:
    """While no controller runs, the Services of a group wait for it; those of another class or group do not."""
    waiting = (build.service("shop/web", group=GROUP), build.service("shop/held", group=GROUP, holds=("192.0.2.130",)))
    others = (
        build.service("shop/lost", group="lb/none", holds=("192.0.2.131",)),
        build.service("shop/plain"),
        build.service("shop/foreign", group=GROUP, load_balancer_class="example.com/other"),
    )
    found = report([build.group(GROUP), *waiting, *others])
    assert [(each.service, each.address, each.group, each.state) for each in found.virtual_ips] == [
        ("shop/held", "192.0.2.130", GROUP, "Pending"),
        ("shop/web", "", GROUP, "Pending"),
    ]
    assert all("kavip doctor" in each.message for each in found.virtual_ips)
    assert found.status == 1


def test_a_vip_is_shown_at_its_node_though_its_service_has_no_condition() -> None:
    """The group reports its master, for instance after the status of the Service was lost."""
    held = build.service("shop/web", group=GROUP, holds=("192.0.2.130",))
    found = report([group(instance("shop/web", 7), ids={"shop/web": 7}), held])
    assert [(each.address, each.node, each.state, each.message) for each in found.virtual_ips] == [
        ("192.0.2.130", "n1", "Master", "")
    ]
    assert found.status == 0


def test_vips_of_a_group_and_its_nodes_are_shown() -> None:
    """Nodes without a VIP are shown; Services that kavip does not manage are not."""
    own = GroupVirtualIPStatus(address="192.0.2.200", node="n1", state="MASTER")
    edge = group(ids={}, own=(own,))
    foreign = build.service("shop/other", holds=["192.0.2.9"])
    found = report([edge, foreign, build.node("n1", "192.0.2.11"), build.node("n2", "192.0.2.12")])
    assert [(each.address, each.service, each.state) for each in found.virtual_ips] == [("192.0.2.200", "", "Master")]
    assert [(each.node, each.virtual_ips, each.groups) for each in found.nodes] == [
        ("n1", 1, (GROUP,)),
        ("n2", 0, (GROUP,)),
    ]
    (only,) = found.groups
    assert (only.desired, only.ready, only.current, only.state, only.message) == (2, 2, 1, "Pending", "1 of 2 nodes")


def test_a_ready_group_shows_the_message_of_ready() -> None:
    """It holds the warnings of nodes, such as a health check that fails."""
    edge = group(ids={})
    for message in ("every pod is ready", "every pod is ready; node n1: web fails"):
        ready = [Condition(type="Ready", status="True", reason="Ready", message=message)]
        well = msgspec.structs.replace(edge, status=msgspec.structs.replace(edge.status, conditions=ready))
        (only,) = report([well]).groups
        assert (only.state, only.message) == ("Ready", message)


def conditioned(*conditions: Condition, own: tuple[GroupVirtualIPStatus, ...] = ()) -> KeepalivedGroup:
    """A group with *conditions*."""
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
def test_the_cause_of_a_pending_configuration_is_shown_first(
    conditions: tuple[Condition, ...], shown: tuple[str, str]
) -> None:
    """Without nodes or pods no configuration can run, and their condition has the remedy."""
    (only,) = report([conditioned(*conditions)]).groups
    assert (only.state, only.message) == shown


def test_a_group_vip_without_a_master_has_the_message_of_its_group() -> None:
    """It has no conditions of its own; a VIP with a master needs no message."""
    ready = Condition(type="Ready", status="True", reason="Ready", message="every pod is ready; node n1: web fails")
    lost = GroupVirtualIPStatus(address="192.0.2.200", node="", state="NoMaster")
    held = GroupVirtualIPStatus(address="192.0.2.201", node="n1", state="MASTER")
    found = report([conditioned(ready, own=(lost, held))])
    assert [(each.state, each.message) for each in found.virtual_ips] == [
        ("NoMaster", "every pod is ready; node n1: web fails"),
        ("Master", ""),
    ]


@pytest.mark.parametrize(
    ("reason", "status"), [(Reason.NO_ENDPOINTS, 0), (Reason.ENDPOINTS_OUTSIDE_GROUP, 1), (Reason.ADDRESS_CONFLICT, 1)]
)
def test_a_held_vip_that_does_not_answer_shows_why(reason: Reason, status: int) -> None:
    """A Service without any ready endpoint is no failure of its VIP; a held VIP that answers needs no message."""
    edge = group(instance("shop/web", 7), instance("shop/api", 8), ids={"shop/web": 7, "shop/api": 8})
    web = build.service("shop/web", group=GROUP, holds=("192.0.2.130",), external_traffic_policy="Local")
    api = build.service("shop/api", group=GROUP, holds=("192.0.2.131",))
    web = with_condition(web, names.ConditionType.ADVERTISED, "True", reason, message="connections are dropped")
    both = "node n1 holds 192.0.2.131; node n2 holds 192.0.2.132"
    api = with_condition(api, names.ConditionType.ADVERTISED, "True", "Master", message=both)
    found = report([edge, web, api])
    assert [(each.state, each.message) for each in found.virtual_ips] == [
        (reason, "connections are dropped"),
        ("Master", ""),
    ]
    assert found.status == status


def test_each_node_shows_its_share() -> None:
    """Of all VIPs of its groups; a shared address counts once, and a VIP that no node holds counts too."""
    ids = {"shop/web/192.0.2.130": 7, "shop/web/192.0.2.131": 8, "shop/api": 9}
    edge = group(*(instance(name, number) for name, number in list(ids.items())[:2]), ids=ids)
    web = served("shop/web", "192.0.2.130", "192.0.2.131")
    objects: list[Object] = [
        edge,
        web,
        served("shop/api", "192.0.2.132"),
        served("shop/tls", "192.0.2.132"),
        build.node("n2"),
    ]
    found = report(objects)
    assert [(each.node, each.virtual_ips, each.group_virtual_ips) for each in found.nodes] == [
        ("n1", 2, 3),
        ("n2", 0, 3),
    ]
    lines = [line.split() for line in text(found).splitlines() if line.startswith("n")]
    assert [line[2:4] for line in lines] == [["2", "67%"], ["0", "0%"]]
    assert text(report([group(ids={}), build.node("n2")])).splitlines()[-1].split()[2:4] == ["0", "-"]


def test_a_cordoned_node_is_marked() -> None:
    """Pods of DaemonSets stay on it, and so do VIPs."""
    taint = "node.kubernetes.io/unschedulable:NoSchedule"
    found = report([group(ids={}), build.node("n1", "192.0.2.11", taints=[taint]), build.node("n2")])
    assert [(each.node, each.cordoned) for each in found.nodes] == [("n1", True), ("n2", False)]
    assert ", cordoned " in next(line for line in text(found).splitlines() if line.startswith("n1 "))


def test_a_drained_node_is_marked() -> None:
    """By the signals of its group."""
    node = build.node("n1", "192.0.2.11", labels={"node.kubernetes.io/exclude-from-external-load-balancers": ""})
    for signals, is_drained in ((None, False), (["ExcludeLabel"], True)):
        subject = build.group(GROUP, drain_on=signals)
        found = report([subject, node])
        assert [each.drained for each in found.nodes] == [is_drained]
        assert (", drained " in text(found)) is is_drained


def test_addresses_are_sorted_by_number() -> None:
    """9 is before 10, IPv4 before IPv6, Services that wait last; the order of objects has no effect."""
    objects = [served(f"shop/s{n}", vip) for n, vip in enumerate(("2001:db8::1", "192.0.2.10", "192.0.2.9"))]
    printed = text(report(objects))
    assert [line.split()[0] for line in printed.splitlines()[1:4]] == ["192.0.2.9", "192.0.2.10", "2001:db8::1"]
    assert text(report(objects[::-1])) == printed


def test_wide_tables_have_more_columns() -> None:
    """VRID and interface of a VIP, that of the pool before that of the group; and the addresses of a pool."""
    edge = group(instance("shop/web", 7), ids={"shop/web": 7})
    dmz = build.pool("dmz", "192.0.2.0/25", interface="vlan20")
    lines = output(
        report([edge, served("shop/web", "192.0.2.130"), served("shop/far", "192.0.2.1"), build.pool(), dmz]), "wide"
    ).splitlines()
    assert lines[0].split()[-3:] == ["VRID", "INTERFACE", "MESSAGE"]
    assert [line.split()[6:8] for line in lines[1:3]] == [["-", "vlan20"], ["7", "eth0"]]
    assert next(line for line in lines if line.startswith("dmz ")).endswith("192.0.2.0/25")


def test_names_are_what_explain_takes() -> None:
    """One Service a line, also one that waits; a Service with two VIPs is there once."""
    edge = group(instance("shop/web", 7), ids={"shop/web": 7})
    found = report([edge, served("shop/web", "192.0.2.130", "2001:db8::1"), served("shop/api", "192.0.2.131")])
    assert output(found, "name") == "shop/api\nshop/web"
    assert output(report([]), "name") == ""


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_read_one_object(form: str) -> None:
    """JSON and YAML have the same names and values."""
    edge = group(instance("shop/web", 7), ids={"shop/web": 7})
    printed = output(report([edge, served("shop/web", "192.0.2.130"), build.pool()], ["a note"]), form)
    found = json.loads(printed) if form == "json" else yaml.safe_load(printed)
    assert sorted(found) == ["groups", "nodes", "notes", "pools", "virtualIPs"]
    assert found["virtualIPs"][0]["service"] == "shop/web"
    assert found["notes"] == ["a note"]
    counts = {"virtualIPs": 1, "groupVirtualIPs": 1}
    assert found["nodes"] == [
        {"node": "n1", "ready": None, "groups": [GROUP], "cordoned": False, "drained": False, **counts}
    ]


def test_control_characters_of_a_status_are_escaped() -> None:
    """No cell can break its line."""
    hostile = instance("shop/web", 7, node="n1\x1b[2J\x07\r\nlb/fake\u202e\x9b31m")
    found = text(report([group(hostile, ids={"shop/web": 7}), served("shop/web", "192.0.2.128")]))
    assert all(line.isprintable() for line in found.split("\n"))
    assert not any(line.startswith("lb/fake") for line in found.split("\n"))
    assert r"n1\x1b[2J\x07 lb/fake\u202e\x9b31m" in found


def test_a_vip_of_a_hidden_group_has_the_state_of_its_service() -> None:
    """Where the user may not read the group, the condition of the Service names the master."""
    web = build.service("shop/web", group=GROUP, holds=("192.0.2.128",))
    web = with_condition(web, names.ConditionType.ADVERTISED, "True", "Master", message="node n1 holds 192.0.2.128")
    (found,) = report([web]).virtual_ips
    assert (found.state, found.message) == ("Master", "node n1 holds 192.0.2.128")
    assert report([web]).status == 0
    lost = served("shop/lost", "192.0.2.129", reason="NoMaster")
    assert report([web, lost]).status == 1
    assert report([web, group(ids={})]).status == 1  # the group is visible, and has no master for the VIP
