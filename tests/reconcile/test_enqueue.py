"""The keys that a change enqueues."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.cluster import NodeCondition
from kavip.api.group import GroupVirtualIP
from kavip.api.meta import Condition, LabelSelector
from kavip.api.service import Service, ServiceStatus
from kavip.names import ConditionType
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import KINDS, Object, Snapshot
from tests.reconcile.simulatedcluster import GROUP, cluster
from tests.support import build

WEB, EDGE, POOL = Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.GROUP, GROUP), Key(KeyKind.POOL, "edge")


def web(**more: Any) -> Any:
    """A Service of the group."""
    return build.service("shop/web", group=GROUP, **more)


def woken(snapshot: Snapshot, old: Object | None, new: Object | None) -> set[Key]:
    """The keys that a change enqueues, after it is in the Snapshot."""
    if new is not None:
        snapshot.put(new)
    elif old is not None:
        snapshot.drop(KINDS[type(old)], old.metadata.key)
    return set(enqueue.of(snapshot, old, new))


def groups_in(keys: set[Key]) -> set[Key]:
    """Those of *keys* that are of groups."""
    return {each for each in keys if each.kind == KeyKind.GROUP}


def test_a_new_service_enqueues_itself_and_its_group() -> None:
    """The group renders it."""
    assert woken(cluster(build.group(), build.pool()), None, web()) == {WEB, EDGE}


def test_an_address_enqueues_group_and_pool() -> None:
    """The VIP goes into the text, and the pool counts it."""
    old, new = web(), web(holds=["192.0.2.129"])
    assert woken(cluster(build.group(), build.pool(), old), old, new) == {WEB, EDGE, POOL}


def test_a_condition_enqueues_only_the_service() -> None:
    """A condition that kavip has just written enqueues no other key."""
    old = web(holds=["192.0.2.129"])
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, resource_version="2"))
    assert woken(cluster(build.group(), build.pool(), old), old, new) == {WEB}


def test_a_service_that_moves_enqueues_both_groups() -> None:
    """One group removes it, and the other adds it."""
    old, new = web(), build.service("shop/web", group="lb/other")
    found = woken(cluster(build.group(), build.group("lb/other"), old), old, new)
    assert found == {WEB, EDGE, Key(KeyKind.GROUP, "lb/other")}


def test_a_group_that_does_not_exist_has_no_plan_until_it_comes() -> None:
    """One of many Services that wait for a group does not enqueue the others; the group enqueues all of them."""
    snapshot = cluster(build.pool())
    assert woken(snapshot, None, web()) == {WEB}
    assert woken(snapshot, web(), web(holds=["192.0.2.129"])) == {WEB, POOL}
    assert woken(snapshot, None, build.group()) == {WEB, EDGE}
    assert woken(snapshot, build.group(), None) == {WEB, EDGE}


def test_a_freed_address_enqueues_a_waiting_service() -> None:
    """The oldest waiting Service that can use it is among the keys."""
    holder = build.service("shop/a", group=GROUP, holds=["192.0.2.128"])
    snapshot = cluster(build.group(), build.pool("edge", "192.0.2.128/32"), holder, web())
    from kavip.ipam.request import read_request

    snapshot.ledger.wait(read_request(web())[0], ["edge"])
    snapshot.ledger.drain_requeues()
    assert WEB in woken(snapshot, holder, None)


def test_a_heartbeat_enqueues_nothing_and_readiness_the_groups() -> None:
    """A node sends a heartbeat every few seconds."""
    snapshot = cluster(build.group(), nodes=1)
    node = snapshot.nodes["n1"]
    beat = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version="2"))
    assert woken(snapshot, node, beat) == set()
    down = msgspec.structs.replace(
        beat, status=msgspec.structs.replace(beat.status, conditions=[NodeCondition(type="Ready", status="Unknown")])
    )
    assert woken(snapshot, beat, down) == {EDGE}


def test_an_own_address_of_a_node_or_a_group_enqueues_its_pool() -> None:
    """The pool has one assignable address less, or one more."""
    snapshot = cluster(build.group(), build.pool(), nodes=1)
    old, new = snapshot.nodes["n1"], build.node("n1", "192.0.2.130")
    assert POOL in woken(snapshot, old, new)
    assert POOL in woken(snapshot, new, old)
    plain, own = build.group(), build.group(virtual_ips=[GroupVirtualIP(address="192.0.2.131/24")])
    assert POOL in woken(snapshot, plain, own)
    assert POOL in woken(snapshot, own, plain)


def test_a_group_in_deletion_enqueues_its_services() -> None:
    """The Services report it even while a finalizer keeps the group."""
    group = build.group()
    metadata = msgspec.structs.replace(group.metadata, deletion_timestamp="2026-02-01T00:00:00Z")
    leaving = msgspec.structs.replace(group, metadata=metadata)
    assert woken(cluster(group, build.pool(), web()), group, leaving) >= {WEB, EDGE}


def test_a_deleted_pool_enqueues_a_service_with_an_open_write() -> None:
    """The write has not been seen yet. When it is, it counts as an own write, which enqueues nothing."""
    snapshot = cluster(build.group(), build.pool(), web())
    snapshot.ledger.expect(WEB.name, [parse_address("192.0.2.128")], resource_version="1")
    pool = snapshot.pools["edge"]
    snapshot.drop(names.VIP_POOL, "edge")
    assert WEB in set(enqueue.of(snapshot, pool, None))


def test_an_address_of_a_write_that_was_not_done_enqueues_its_pool() -> None:
    """The pool's status may count the address as assigned."""
    old = web()
    snapshot = cluster(build.group(), build.pool(), old)
    snapshot.ledger.expect(WEB.name, [parse_address("192.0.2.128")], resource_version="1")
    assert POOL in woken(snapshot, old, None)


def test_a_new_leader_enqueues_everything() -> None:
    """The oldest Services first, then groups and pools."""
    young = build.service("shop/a", group=GROUP, created="2026-02-01T00:00:00Z")
    snapshot = cluster(young, web(), build.group(), build.pool())
    assert list(enqueue.everything(snapshot)) == [WEB, Key(KeyKind.SERVICE, "shop/a"), EDGE, POOL]


def test_a_new_leader_begins_with_services_without_an_address() -> None:
    """A new Service does not wait until thousands of settled ones are planned."""
    content = build.service("shop/content", group=GROUP, holds=["192.0.2.128"], created="2025-01-01T00:00:00Z")
    disputed = build.service("shop/disputed", group=GROUP, holds=["192.0.2.128"], created="2025-01-02T00:00:00Z")
    moving = build.service("shop/moving", group=GROUP, holds=["192.0.2.129"], wants="192.0.2.131")
    half = build.service("shop/half", group=GROUP, holds=["192.0.2.130"], families=("IPv4", "IPv6"))
    other = build.service("shop/other", group=GROUP, holds=["192.0.2.132"], pool="lab")
    leaving = build.service(
        "shop/leaving", group=GROUP, holds=["192.0.2.133"], annotations={names.REASSIGN_ANNOTATION: "true"}
    )
    lacking = [disputed, half, leaving, moving, other, web()]
    snapshot = cluster(build.group(), build.pool(), content, *lacking)
    found = [key.name for key in enqueue.everything(snapshot) if key.kind is KeyKind.SERVICE]
    assert found == [*(each.key for each in lacking), "shop/content"]


def test_the_platforms_configuration_enqueues_services_and_pools() -> None:
    """It decides which controller assigns, and which addresses the pools may assign."""
    network = build.network(rejected_cidrs=["192.0.2.128/28"])
    assert {WEB, POOL} <= woken(cluster(build.group(), build.pool(), web()), None, network)


def test_a_service_that_kavip_cannot_manage_enqueues_nothing() -> None:
    """Most Services of a cluster are of type ClusterIP, and none of them is planned."""
    inner = build.service("shop/inner", type="ClusterIP")
    assert woken(cluster(build.group(), build.pool()), None, inner) == set()
    assert Key(KeyKind.SERVICE, "shop/inner") not in set(enqueue.everything(cluster(inner, web())))


def test_a_service_with_kavips_conditions_is_enqueued() -> None:
    """Its conditions must be removed, whatever its type."""
    reported = ServiceStatus(conditions=[Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True")])
    old = msgspec.structs.replace(web(), status=reported)
    new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, type="ClusterIP"))
    assert WEB in woken(cluster(build.group(), build.pool(), old), old, new)
    assert WEB in set(enqueue.everything(cluster(new)))


def test_a_pool_enqueues_only_pools_that_are_not_in_force() -> None:
    """A pool that overlapped a deleted one may come into force. No other pool changes."""
    condition = Condition(type=names.ConditionType.ACCEPTED, status="True", reason="Accepted")
    fine = build.pool("fine", "198.51.100.0/24")
    fine = msgspec.structs.replace(fine, status=msgspec.structs.replace(fine.status, conditions=[condition]))
    clash = build.pool("clash", "192.0.2.130", created="2027-01-01T00:00:00Z")
    snapshot = cluster(fine, clash, build.pool())
    pool = snapshot.pools["edge"]
    snapshot.drop(names.VIP_POOL, "edge")
    assert set(enqueue.of(snapshot, pool, None)) == {POOL, Key(KeyKind.POOL, "clash")}


def test_endpoints_enqueue_the_group_whose_vips_follow_them() -> None:
    """Only if they move to other nodes, and only slices of Services of the group."""
    service = web(type="NodePort", external_ips=["192.0.2.1"], external_traffic_policy="Local")
    snapshot, old = cluster(build.group(), service), build.endpoints("shop/web", "n1")
    assert woken(snapshot, None, old) == {EDGE}
    assert woken(snapshot, old, build.endpoints("shop/web", "n1", addresses=["10.0.0.1"])) == set()
    assert woken(snapshot, old, build.endpoints("shop/web", "n2")) == {EDGE}
    assert woken(snapshot, build.endpoints("shop/web", "n2"), None) == {EDGE}
    assert woken(snapshot, None, build.endpoints("shop/db", "n2")) == set()


def test_an_address_of_the_api_server_enqueues_its_pool() -> None:
    """The address can no longer be assigned, or can be again."""
    snapshot, found = cluster(build.pool()), build.endpoints("default/kubernetes", addresses=["192.0.2.129"])
    assert woken(snapshot, None, found) == {POOL}
    assert woken(snapshot, found, None) == {POOL}


def test_a_range_that_the_cluster_uses_itself_concerns_pools_and_services() -> None:
    """No pool assigns from it: a Service may be stranded, and the pool has fewer addresses."""
    everything = {Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.POOL, "edge")}
    assert woken(cluster(build.pool(), web()), None, build.service_range("192.0.2.128/30")) == everything


def test_a_pod_range_that_overlaps_a_pool_concerns_pools() -> None:
    """They report it. No Service is enqueued: a pod range takes no address from a pool."""
    everything = {Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.POOL, "edge")}
    joined = build.node("n7", "10.9.0.7", pod_cidrs=["192.0.2.128/30"])
    assert everything & woken(cluster(build.pool(), web()), None, joined) == {Key(KeyKind.POOL, "edge")}
    labelled = build.node("n7", "10.9.0.7", pod_cidrs=["192.0.2.128/30"], labels={"a": "b"})
    assert not everything & woken(cluster(build.pool(), web(), joined), joined, labelled)
    elsewhere = build.node("n7", "10.9.0.7", pod_cidrs=["10.244.7.0/24"])
    assert not everything & woken(cluster(build.pool(), web()), None, elsewhere)


def test_labels_of_a_namespace_enqueue_the_groups_that_it_leaves_or_joins() -> None:
    """The group renders only Services of namespaces that it allows."""
    closed = build.group(allowed_namespaces=LabelSelector(match_labels={"env": "prod"}))
    snapshot = cluster(closed, build.group("lb/open"), build.pool(), web(holds=["192.0.2.129"]))
    inside, outside = build.namespace("shop", env="prod"), build.namespace("shop")
    assert woken(snapshot, None, inside) == {WEB, EDGE}
    assert woken(snapshot, inside, outside) == {WEB, EDGE}
    assert woken(snapshot, outside, outside) == set()


def test_a_change_of_a_disputed_address_enqueues_the_groups_of_all_its_claimants() -> None:
    """Only one of the groups may have the VIP."""
    mine = web(type="ClusterIP", external_ips=["198.51.100.1"])
    older = build.service(
        "shop/old",
        group="lb/other",
        type="ClusterIP",
        external_ips=["198.51.100.1"],
        created="2025-01-01T00:00:00Z",
    )
    snapshot = cluster(build.group(), build.group("lb/other"), mine)
    assert EDGE in woken(snapshot, None, older)
    assert EDGE in woken(snapshot, older, None)


def test_a_pool_that_bars_another_one_enqueues_the_groups_on_it() -> None:
    """The interface of the younger pool counts no longer, because the pools overlap."""
    vlan = build.pool("edge", "192.0.2.128/30", created="2026-02-01T00:00:00Z", interface="vlan1")
    snapshot = cluster(build.group(), vlan, web(holds=["192.0.2.129"]))
    assert EDGE in woken(snapshot, None, build.pool("first", "192.0.2.128/31"))


def test_the_detection_of_a_pool_enqueues_the_groups_with_its_addresses() -> None:
    """Their agents ask the LAN for these no more."""
    asked, unasked = build.pool(), build.pool(conflict_detection=names.OFF)
    own = GroupVirtualIP(address="192.0.2.130/24")
    others = (build.group("lb/own", virtual_ips=[own]), build.group("lb/apart"))
    snapshot = cluster(build.group(), *others, asked, web(holds=["192.0.2.129"]))
    assert {EDGE, Key(KeyKind.GROUP, "lb/own")} == groups_in(woken(snapshot, asked, unasked))


def test_a_new_pool_without_an_interface_enqueues_no_group() -> None:
    """Nor do pools that are not in force yet; so many pools at once cost no search among all addresses."""
    vlan, young = build.pool("vlan", "198.51.100.0/24", interface="vlan1"), build.pool("a", "203.0.113.0/24")
    snapshot = cluster(build.group(), build.pool(), vlan, young, web(holds=["192.0.2.129"]))
    assert groups_in(woken(snapshot, None, build.pool("b", "203.0.114.0/24"))) == set()


CLOSED, DEFAULT = "lb/closed", "lb/default"


def chosen(*, by_condition: str) -> Service:
    """A Service that names no group, and whose condition says that kavip chose one."""
    found = build.service("shop/web", holds=["192.0.2.129"], load_balancer_class=names.LOAD_BALANCER_CLASS)
    message = f"192.0.2.129 from pool edge; group {by_condition} by default"
    assigned = Condition(type=ConditionType.ADDRESS_ASSIGNED, status="True", reason="Assigned", message=message)
    conditions = [assigned] if by_condition else None
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=conditions))


@pytest.mark.parametrize("now", [DEFAULT, ""], ids=["kavip's own write", "a status that another client has emptied"])
def test_a_condition_that_names_another_group_enqueues_both(now: str) -> None:
    """A write that began before a label of the namespace came back says what no longer is."""
    before, after = chosen(by_condition=CLOSED), chosen(by_condition=now)
    snapshot = cluster(build.group(CLOSED), build.group(DEFAULT, default=True), build.pool(), before)
    assert snapshot.group_of(before) != snapshot.group_of(after)
    assert groups_in(woken(snapshot, before, after)) == {Key(KeyKind.GROUP, each) for each in (CLOSED, DEFAULT)}


def test_a_label_that_comes_back_enqueues_the_default_group() -> None:
    """It had the Service meanwhile, and nothing was written about that."""
    closed = build.group(CLOSED, allowed_namespaces=LabelSelector(match_labels={"env": "prod"}))
    prod, plain = build.namespace("shop", env="prod"), build.namespace("shop")
    snapshot = cluster(closed, build.group(DEFAULT, default=True), build.pool(), chosen(by_condition=CLOSED), prod)
    both = {Key(KeyKind.GROUP, each) for each in (CLOSED, DEFAULT)}
    assert groups_in(woken(snapshot, prod, plain)) == both
    assert groups_in(woken(snapshot, plain, prod)) == both
