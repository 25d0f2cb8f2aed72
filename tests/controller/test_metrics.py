"""The metrics of the ledger."""

from dataclasses import replace
from typing import Any

import msgspec
from prometheus_client import Metric
from prometheus_client.samples import Sample

from kavip import names, telemetry
from kavip.api.address import parse_address
from kavip.api.group import GroupVirtualIPStatus
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.controller.metrics import GroupMetrics, PoolMetrics
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.request import read_request
from kavip.names import Contest
from kavip.reconcile.observed.agentstates import AgentStates, ClaimedAddress, Collision, Contact, NodeState
from kavip.reconcile.observed.foreignclaims import PATIENCE
from kavip.snapshot import Snapshot
from tests.reconcile.service.planning import with_condition
from tests.support import build

GROUP, WEB = "lb/edge", "192.0.2.129"


def web(key: str = "shop/web", **more: Any) -> Service:
    """A Service of the group."""
    return build.service(key, group=GROUP, **more)


def shown(name: str) -> dict[tuple[str, ...], float]:
    """The values of the metric *name*, by the values of its labels in the order of their names."""
    (found,) = [each for each in telemetry.REGISTRY.collect() if each.name == name.removesuffix("_total")]
    return {tuple(value for _, value in sorted(each.labels.items())): each.value for each in _plain(found, name)}


def _plain(metric: Metric, name: str) -> list[Sample]:
    return [each for each in metric.samples if each.name == name]


def waiting(ledger: Ledger, key: str, *pools: str, reason: str, names: str = "") -> None:
    """Let a Service wait, which *names* a pool."""
    request, _ = read_request(web(key, pool=names))
    ledger.wait(request, pools, reason=reason)


def measured(snapshot: Snapshot, *, leads: bool = True) -> PoolMetrics:
    """The metrics of *snapshot*."""
    addresses = PoolMetrics()
    addresses.update(snapshot, leads=leads)
    return addresses


def test_a_pool_has_the_metrics_of_its_status_for_each_family() -> None:
    """Total, assigned and available, limited to what the status can hold. A deleted pool has no metrics."""
    pool, huge = build.pool("edge", "192.0.2.128/30"), build.pool("huge", "2001:db8::/48")
    snapshot = Snapshot.from_objects([pool, huge, web(holds=["192.0.2.129"])])
    addresses = measured(snapshot)
    values = shown("kavip_pool_addresses")
    assert values["ipv4", "edge", "total"] == 4
    assert values["ipv4", "edge", "assigned"] == 1
    assert values["ipv4", "edge", "available"] == 3
    assert values["ipv6", "huge", "total"] == float(2**63 - 1)
    snapshot.drop("VIPPool", "edge")
    snapshot.drop("VIPPool", "huge")
    addresses.update(snapshot, leads=True)
    assert not {pool for _, pool, _ in shown("kavip_pool_addresses")} & {"edge", "huge"}


def test_waiting_services_are_counted_once_by_pool_and_reason() -> None:
    """They count for the first pool that they wait for, and for none if it does not exist. A stand-by counts none."""
    snapshot = Snapshot.from_objects([build.pool("edge"), build.pool("lab", "198.51.100.0/24")])
    assert snapshot.parsed_pools.get("edge")
    waiting(snapshot.ledger, "shop/a", "lab", "edge", reason="PoolExhausted")
    waiting(snapshot.ledger, "shop/b", "lab", reason="PoolExhausted")
    waiting(snapshot.ledger, "shop/c", "nosuch", reason="PoolNotFound")
    waiting(snapshot.ledger, "shop/d", "*", reason="NoPool")
    waiting(snapshot.ledger, "shop/e", reason="InvalidRequest")
    waiting(snapshot.ledger, "shop/f", "edge", reason="")  # has enough
    waiting(snapshot.ledger, "shop/g", "*", reason="PoolSelectorMismatch", names="edge")
    addresses = measured(snapshot)
    assert shown("kavip_services_waiting") == {
        ("lab", "PoolExhausted"): 2,
        ("", "PoolNotFound"): 1,
        ("", "NoPool"): 1,
        ("", "InvalidRequest"): 1,
        ("edge", "PoolSelectorMismatch"): 1,
    }
    assert "shop/e" not in snapshot.ledger.waiters.by_age()  # only an edit of the Service itself can help
    snapshot.ledger.observe("shop/b", None)
    snapshot.ledger.expect("shop/c", [parse_address("192.0.2.130")])
    addresses.update(snapshot, leads=True)
    assert shown("kavip_services_waiting")["lab", "PoolExhausted"] == 1
    assert ("", "PoolNotFound") not in shown("kavip_services_waiting")
    addresses.update(snapshot, leads=False)
    assert shown("kavip_services_waiting") == {}


def test_contests_are_counted_when_they_begin() -> None:
    """A second holder and a node's own address count; sharing, externalIPs and a repeated event do not."""
    before = shown("kavip_address_conflicts_total")
    snapshot = Snapshot.from_objects([build.pool(), web("shop/a", holds=["192.0.2.129"])])
    addresses = measured(snapshot)

    def grown() -> dict[str, float]:
        addresses.update(snapshot, leads=True)
        after = shown("kavip_address_conflicts_total")
        return {reason: after[reason,] - before[reason,] for reason in Contest if after[reason,] != before[reason,]}

    snapshot.put(web("shop/x", external_ips=["192.0.2.129"], type="ClusterIP"))
    snapshot.put(web("shop/c", holds=["192.0.2.130"], annotations={"kavip.io/sharing-key": "k"}))
    snapshot.put(web("shop/d", holds=["192.0.2.130"], annotations={"kavip.io/sharing-key": "k"}, port=81))
    assert grown() == {}
    snapshot.put(web("shop/b", holds=["192.0.2.129"]))
    snapshot.put(web("shop/b", holds=["192.0.2.129"], port=81))
    assert grown() == {Contest.TWO_SERVICES: 1}
    snapshot.put(build.node("n1", "192.0.2.130"))
    snapshot.put(build.node("n1", "192.0.2.130"))
    snapshot.put(web("shop/e", holds=["192.0.2.131"]))
    snapshot.put(build.node("n2", "192.0.2.131"))
    assert grown() == {Contest.TWO_SERVICES: 1, Contest.NODE_OR_GROUP: 2}


def test_masters_collisions_and_silent_agents_are_measured_per_group() -> None:
    """A deleted group and an ended term have no metrics."""
    service = with_condition(web(), names.ConditionType.ADVERTISED, "False", "SplitBrain")
    snapshot = Snapshot.from_objects([build.group(), service])
    shown_now = GroupMetrics()
    shown_now.update(snapshot, AgentStates())
    assert shown("kavip_group_vrid_collisions") == {(GROUP,): 0}
    found = tuple(Collision(f"shop/{name}", number, "eth0", "x") for name, number in (("a", 7), ("b", 7), ("c", 8)))
    states = {"n1": NodeState(collisions=found), "n2": NodeState(collisions=found[:1])}
    shown_now.update(snapshot, AgentStates({GROUP: states}, contacts={GROUP: {"n2": Contact(is_silent=True)}}))
    assert shown("kavip_group_vrid_collisions") == {(GROUP,): 2}
    assert shown("kavip_agents") == {(GROUP, "answering"): 1, (GROUP, "silent"): 1}
    assert {key: number for key, number in shown("kavip_services_advertised").items() if number} == {
        (GROUP, "SplitBrain"): 1
    }
    shown_now.update(Snapshot(), AgentStates())
    assert not shown("kavip_agents") and not shown("kavip_services_advertised")


def test_each_condition_of_a_group_is_one_series() -> None:
    """The series has the present status and reason; other conditions, and a deleted group, have none."""
    group = build.group()

    def shown_with(*found: tuple[str, str, str]) -> dict[tuple[str, ...], float]:
        own = [Condition(type=kind, status=status, reason=reason) for kind, status, reason in found]
        status = msgspec.structs.replace(group.status, conditions=own)
        metrics.update(Snapshot.from_objects([msgspec.structs.replace(group, status=status)]), AgentStates())
        return shown("kavip_group_conditions")

    metrics = GroupMetrics()
    before = shown_with(("Programmed", "False", "Pending"), ("Accepted", "True", "Accepted"), ("Other", "True", "Odd"))
    assert before == {(GROUP, "Pending", "False", "Programmed"): 1, (GROUP, "Accepted", "True", "Accepted"): 1}
    assert shown_with(("Programmed", "False", "RefusedByAgent")) == {
        (GROUP, "RefusedByAgent", "False", "Programmed"): 1
    }
    metrics.update(Snapshot(), AgentStates())
    assert not shown("kavip_group_conditions")


def test_services_are_counted_by_each_reason_of_advertised() -> None:
    """No reason is left out of the count, also those of the policy Local."""
    reasons = names.ADVERTISED_REASONS
    services = [
        with_condition(web(f"shop/s{number}"), names.ConditionType.ADVERTISED, "False", reason)
        for number, reason in enumerate(reasons)
    ]
    metrics = GroupMetrics()
    metrics.update(Snapshot.from_objects([build.group(), *services]), AgentStates())
    assert shown("kavip_services_advertised") == {(GROUP, reason): 1 for reason in reasons}
    metrics.update(Snapshot(), AgentStates())


def test_vips_of_the_group_itself_are_counted() -> None:
    """They have no Service, and the same alerts; a state that kavip does not write is not counted."""
    group = build.group()
    states = ("MASTER", "NoMaster", "NoMaster", "SplitBrain", "else")
    own = [GroupVirtualIPStatus(address=f"192.0.2.{number}", state=state) for number, state in enumerate(states)]
    status = msgspec.structs.replace(group.status, virtual_ips=own)
    metrics = GroupMetrics()
    metrics.update(Snapshot.from_objects([msgspec.structs.replace(group, status=status)]), AgentStates())
    found = shown("kavip_group_virtual_ips")
    assert {key: number for key, number in found.items() if number} == {
        (GROUP, "Master"): 1,
        (GROUP, "NoMaster"): 2,
        (GROUP, "SplitBrain"): 1,
    }
    assert {reason for _, reason in found} == set(names.ADVERTISED_REASONS)
    metrics.update(Snapshot(), AgentStates())
    assert not shown("kavip_group_virtual_ips")


def test_vips_that_a_machine_has_that_is_no_node_are_counted_once() -> None:
    """Two nodes report the same stranger of a VIP; a node of another group is no stranger."""
    snapshot, metrics = Snapshot.from_objects([build.group(), build.group("lb/core")]), GroupMetrics()
    macs = [f"02:00:c0:00:02:0{number}" for number in range(4)]
    stranger, other = (ClaimedAddress(parse_address(WEB), mac, "eth0", is_held=False) for mac in (macs[0], macs[3]))
    states = {"n1": NodeState(hardware=(macs[1],), claimed=(stranger, other))}
    states["n2"] = NodeState(hardware=(macs[2],), claimed=(stranger,))
    agents = AgentStates({GROUP: states, "lb/core": {"n3": NodeState(hardware=(macs[3],), claimed=(other,))}})
    metrics.update(snapshot, agents)
    assert shown("kavip_group_duplicate_addresses") == {(GROUP,): 1, ("lb/core",): 0}
    for number in (1, 2, 3):
        snapshot.put(build.node(f"n{number}", f"192.0.2.1{number}"))
    metrics.update(snapshot, replace(agents, since=agents.at))
    assert shown("kavip_group_duplicate_addresses") == {(GROUP,): 0, ("lb/core",): 0}, "n3 has not answered for it yet"
    metrics.update(snapshot, replace(agents, since=agents.at - PATIENCE))
    assert shown("kavip_group_duplicate_addresses") == {(GROUP,): 1, ("lb/core",): 0}
    unknown = agents.with_state(GROUP, "n2", state=replace(states["n2"], hardware=()))
    metrics.update(snapshot, unknown)
    assert shown("kavip_group_duplicate_addresses") == {(GROUP,): 0, ("lb/core",): 0}, "the stranger may be n2"
    metrics.update(Snapshot(), AgentStates())
    assert not shown("kavip_group_duplicate_addresses")
