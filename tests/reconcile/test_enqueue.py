"""Which keys a change concerns."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.address import parse_address
from kavip.api.cluster import NodeCondition
from kavip.api.group import GroupVirtualIP
from kavip.api.meta import Condition
from kavip.api.service import ServiceStatus
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import KINDS, Object, Snapshot
from tests.reconcile.world import GROUP, cluster
from tests.support import build

WEB, EDGE, POOL = Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.GROUP, GROUP), Key(KeyKind.POOL, "edge")


def web(**more: Any) -> Any:
    """A Service of the group."""
    return build.service("shop/web", group=GROUP, **more)


def woken(snapshot: Snapshot, old: Object | None, new: Object | None) -> set[Key]:
    """The keys that a change wakes, after the Snapshot has taken it."""
    if new is not None:
        snapshot.put(new)
    elif old is not None:
        snapshot.drop(KINDS[type(old)], old.metadata.key)
    return set(enqueue.of(snapshot, old, new))


def test_a_new_service_concerns_itself_and_its_group() -> None:
    """Its group will render it."""
    assert woken(cluster(build.group(), build.pool()), None, web()) == {WEB, EDGE}


def test_an_address_concerns_group_and_pool() -> None:
    """The VIP goes into the text, and the pool counts it."""
    old, new = web(), web(holds=["192.0.2.129"])
    assert woken(cluster(build.group(), build.pool(), old), old, new) == {WEB, EDGE, POOL}


def test_a_condition_concerns_the_service_alone() -> None:
    """What kavip has just written wakes nobody else."""
    old = web(holds=["192.0.2.129"])
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, resource_version="2"))
    assert woken(cluster(build.group(), build.pool(), old), old, new) == {WEB}


def test_a_service_that_moves_concerns_both_groups() -> None:
    """The one lets it go, the other takes it up."""
    old, new = web(), build.service("shop/web", group="lb/other")
    found = woken(cluster(build.group(), build.group("lb/other"), old), old, new)
    assert found == {WEB, EDGE, Key(KeyKind.GROUP, "lb/other")}


def test_a_freed_address_concerns_those_who_wait() -> None:
    """The oldest that can use it is in the keys."""
    holder = build.service("shop/a", group=GROUP, holds=["192.0.2.128"])
    snapshot = cluster(build.group(), build.pool("edge", "192.0.2.128/32"), holder, web())
    from kavip.ipam.request import read_request

    snapshot.ledger.wait(read_request(web())[0], ["edge"])
    snapshot.ledger.drain_requeues()
    assert WEB in woken(snapshot, holder, None)


def test_a_heartbeat_concerns_nobody_and_readiness_the_groups() -> None:
    """A node says that it is well every few seconds, and that it is not once."""
    snapshot = cluster(build.group(), nodes=1)
    node = snapshot.nodes["n1"]
    beat = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version="2"))
    assert woken(snapshot, node, beat) == set()
    down = msgspec.structs.replace(
        beat, status=msgspec.structs.replace(beat.status, conditions=[NodeCondition(type="Ready", status="Unknown")])
    )
    assert woken(snapshot, beat, down) == {EDGE}


def test_what_a_node_or_a_group_has_itself_concerns_its_pool() -> None:
    """The pool has one address less to give, or one more."""
    snapshot = cluster(build.group(), build.pool(), nodes=1)
    old, new = snapshot.nodes["n1"], build.node("n1", "192.0.2.130")
    assert POOL in woken(snapshot, old, new)
    assert POOL in woken(snapshot, new, old)
    plain, own = build.group(), build.group(virtual_ips=[GroupVirtualIP(address="192.0.2.131/24")])
    assert POOL in woken(snapshot, plain, own)
    assert POOL in woken(snapshot, own, plain)


def test_a_group_that_is_to_go_concerns_its_services() -> None:
    """They are to name another one, however long a finalizer keeps it."""
    group = build.group()
    metadata = msgspec.structs.replace(group.metadata, deletion_timestamp="2026-02-01T00:00:00Z")
    leaving = msgspec.structs.replace(group, metadata=metadata)
    assert woken(cluster(group, build.pool(), web()), group, leaving) >= {WEB, EDGE}


def test_a_pool_that_goes_concerns_who_is_being_written_an_address_of_it() -> None:
    """The write has not come back yet; when it does, it is a mere echo that wakes nobody."""
    snapshot = cluster(build.group(), build.pool(), web())
    snapshot.ledger.expect(WEB.name, [parse_address("192.0.2.128")], resource_version="1")
    pool = snapshot.pools["edge"]
    snapshot.drop(names.VIP_POOL, "edge")
    assert WEB in set(enqueue.of(snapshot, pool, None))


def test_what_a_write_was_to_give_and_did_not_concerns_its_pool() -> None:
    """The pool may have been told meanwhile that the address is held."""
    old = web()
    snapshot = cluster(build.group(), build.pool(), old)
    snapshot.ledger.expect(WEB.name, [parse_address("192.0.2.128")], resource_version="1")
    assert POOL in woken(snapshot, old, None)


def test_a_new_leader_begins_with_everything() -> None:
    """The oldest Services first, then groups and pools."""
    young = build.service("shop/a", group=GROUP, created="2026-02-01T00:00:00Z")
    snapshot = cluster(young, web(), build.group(), build.pool())
    assert list(enqueue.everything(snapshot)) == [WEB, Key(KeyKind.SERVICE, "shop/a"), EDGE, POOL]


def test_a_new_leader_begins_with_those_who_lack_something() -> None:
    """Among thousands that hold what they ask for, nobody waits for an address until all of those are looked at."""
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


def test_the_platforms_word_concerns_services_and_pools() -> None:
    """Whose turn it is to assign, and how much the pools have to give."""
    network = build.network(rejected_cidrs=["192.0.2.128/28"])
    assert {WEB, POOL} <= woken(cluster(build.group(), build.pool(), web()), None, network)


def test_a_service_that_cannot_be_ours_wakes_nobody() -> None:
    """Most Services of a cluster are of type ClusterIP: none of them is looked at."""
    inner = build.service("shop/inner", type="ClusterIP")
    assert woken(cluster(build.group(), build.pool()), None, inner) == set()
    assert Key(KeyKind.SERVICE, "shop/inner") not in set(enqueue.everything(cluster(inner, web())))


def test_a_service_that_was_ours_is_looked_at() -> None:
    """Its conditions are to be taken back, whatever type it has by now."""
    told = ServiceStatus(conditions=[Condition(type=names.Condition.ADDRESS_ASSIGNED, status="True")])
    old = msgspec.structs.replace(web(), status=told)
    new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, type="ClusterIP"))
    assert WEB in woken(cluster(build.group(), build.pool(), old), old, new)
    assert WEB in set(enqueue.everything(cluster(new)))


def test_a_pool_concerns_no_other_pool_but_those_that_are_not_in_force() -> None:
    """Who overlapped it may be in force when it goes; nobody else gives more or less for it."""
    condition = Condition(type=names.Condition.ACCEPTED, status="True", reason="Accepted")
    fine = build.pool("fine", "198.51.100.0/24")
    fine = msgspec.structs.replace(fine, status=msgspec.structs.replace(fine.status, conditions=[condition]))
    clash = build.pool("clash", "192.0.2.130", created="2027-01-01T00:00:00Z")
    snapshot = cluster(fine, clash, build.pool())
    pool = snapshot.pools["edge"]
    snapshot.drop(names.VIP_POOL, "edge")
    assert set(enqueue.of(snapshot, pool, None)) == {POOL, Key(KeyKind.POOL, "clash")}


def test_endpoints_concern_the_group_whose_vips_follow_them() -> None:
    """Where they are on other nodes than before; not a change of anything else, nor slices of strangers."""
    service = web(type="NodePort", external_ips=["192.0.2.1"], external_traffic_policy="Local")
    snapshot, old = cluster(build.group(), service), build.endpoints("shop/web", "n1")
    assert woken(snapshot, None, old) == {EDGE}
    assert woken(snapshot, old, build.endpoints("shop/web", "n1", addresses=["10.0.0.1"])) == set()
    assert woken(snapshot, old, build.endpoints("shop/web", "n2")) == {EDGE}
    assert woken(snapshot, build.endpoints("shop/web", "n2"), None) == {EDGE}
    assert woken(snapshot, None, build.endpoints("shop/db", "n2")) == set()


def test_where_the_api_server_is_concerns_the_pool() -> None:
    """Its address is not to be had, or is again."""
    snapshot, found = cluster(build.pool()), build.endpoints("default/kubernetes", addresses=["192.0.2.129"])
    assert woken(snapshot, None, found) == {POOL}
    assert woken(snapshot, found, None) == {POOL}


def test_the_range_of_services_concerns_nobody() -> None:
    """Admission reads it."""
    assert woken(cluster(build.pool(), web()), None, build.service_range("10.96.0.0/16")) == set()
