"""A group among others: ports and nodes, namespaces that count, Services that follow their endpoints."""

from typing import Any

import msgspec
import pytest

from kavip.admission import policy
from kavip.admission.verdict import Verdict
from kavip.api.group import KeepalivedGroup
from kavip.api.review import Operation, Review
from kavip.snapshot import Object, Snapshot
from tests.support.build import group, node, service

NODES = (node("n1", "192.0.2.1", labels={"rack": "1"}), node("n2", "192.0.2.2", labels={"rack": "2"}))


def judged(asked: KeepalivedGroup, *world: Object, old: KeepalivedGroup | None = None, counting: str = "") -> Verdict:
    """The verdict on *asked* in *world*, made of *old* or new."""
    snapshot = Snapshot.from_objects([*world, *([old] if old else [])], group_namespaces=counting.split())
    return policy.review(Review(Operation.UPDATE if old else Operation.CREATE, asked, old), snapshot)


def listening(key: str, port: int, **spec: Any) -> KeepalivedGroup:
    """A group whose agents were given *port*."""
    made = group(key, **spec)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, metrics_port=port))


@pytest.mark.parametrize(
    ("others", "free"),
    [
        ([group("lb/a", metrics_port=9700)], "9650"),
        ([listening("lb/a", 9700), listening("lb/b", 9650)], "9651"),
        ([group("lb/a", metrics_port=9700, node_selector={"rack": "1"})], "9650"),
        ([listening("far/a", 9700)], "9650"),
    ],
    ids=["named", "given", "on one node of two", "of a group that does not count"],
)
def test_a_port_in_use_is_refused_with_a_free_one(others: list[Object], free: str) -> None:
    """Agents share the network of their node: one port serves one group of each node, whoever chose it."""
    found = judged(group("lb/new", metrics_port=9700), *NODES, *others, counting="lb")
    (refusal,) = found.refusals
    assert refusal.field == "spec.metricsPort"
    assert refusal.message.startswith("9700: in use by group ")
    assert f" {free} is free" in refusal.message


@pytest.mark.parametrize(
    "asked",
    [
        group("lb/new", metrics_port=9700, node_selector={"rack": "2"}),
        group("lb/new"),
        group("lb/a", metrics_port=9700),
    ],
    ids=["on other nodes", "no port named", "its own"],
)
def test_a_port_of_other_nodes_is_free(asked: KeepalivedGroup) -> None:
    """Groups whose nodes do not overlap may use one port, and a group that names none is given one."""
    assert judged(asked, *NODES, group("lb/a", metrics_port=9700, node_selector={"rack": "1"})) == policy.PASSED


def test_a_selector_that_brings_ports_together_is_refused() -> None:
    """Not the port has changed but where it is used; an edit of anything else passes."""
    other = group("lb/a", metrics_port=9700, node_selector={"rack": "1"})
    old = group("lb/new", metrics_port=9700, node_selector={"rack": "2"})
    new = group("lb/new", metrics_port=9700)
    assert [refusal.field for refusal in judged(new, *NODES, other, old=old).refusals] == ["spec.metricsPort"]
    assert judged(group("lb/new", metrics_port=9700, unicast_enabled=True), *NODES, other, old=new).allowed


def test_a_group_where_groups_do_not_count_may_be_edited() -> None:
    """It is refused when it is created; one that was there passes, and its owner hears why it does nothing."""
    asked = group("shop/edge")
    (refusal,) = judged(asked, counting="lb edge").refusals
    assert (refusal.field, refusal.message) == (
        "metadata.namespace",
        '"shop": groups do not count there; create it in edge, lb',
    )
    found = judged(group("shop/edge", unicast_enabled=True), old=asked, counting="lb edge")
    assert found.allowed
    assert found.warnings == (f"accepted, because it is not new: metadata.namespace: {refusal.message}",)


def test_no_preempt_is_old_where_a_local_service_came_later() -> None:
    """Only who turns noPreempt on is refused; the Service's side is the Service's."""
    world = [service(f"shop/s{number}", group="lb/edge", external_traffic_policy="Local") for number in range(7)]
    (refusal,) = judged(group("lb/edge", no_preempt=True), *world, old=group("lb/edge")).refusals
    assert refusal.message.startswith("true: shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 2 more have ")
    found = judged(group("lb/edge", no_preempt=True, segment="s"), *world, old=group("lb/edge", no_preempt=True))
    assert found.allowed


def test_a_blacklist_of_a_shared_group_leaves_room_for_its_instances() -> None:
    """The instances count, not the Services; numbers and ways out stand in the message."""
    shared = msgspec.structs.replace(group().spec.instances, mode="Shared", count=16)
    taken = [group("lb/full", segment="s", instances=msgspec.structs.replace(shared, count=200))]
    (refusal,) = judged(
        group("lb/new", segment="s", instances=shared, blacklist_router_ids=list(range(1, 51))), *taken
    ).refusals
    assert refusal.field == "spec.blacklistRouterIDs"
    assert "need 16 virtual router IDs, but only 5 can be had: 255 - 50 blacklisted - " in refusal.message


def test_an_edit_of_a_group_without_vips_moves_nothing() -> None:
    """Nobody is warned of what is not up."""
    assert judged(group("lb/edge", interface="eth1", segment="s"), old=group("lb/edge")) == policy.PASSED


def test_a_default_label_that_goes_names_whom_it_leaves() -> None:
    """The first of many and their number; to which group they come, where another has the label; nobody, silence."""
    old, new = group(default=True, segment="default"), group(segment="default")
    many = [service(f"shop/{name}") for name in "abcde"]
    (told,) = judged(new, *many, service("shop/own", group="lb/edge"), old=old).warnings
    assert told.startswith("metadata.labels[kavip.io/default-group]: leaves 5 Services without a group, and without ")
    assert ": shop/a, shop/b, shop/c and 2 more; annotate them" in told
    (told,) = judged(new, *many[:1], group("lb/heir", default=True), old=old).warnings
    assert "leaves 1 Service to lb/heir: shop/a; annotate" in told
    assert judged(new, service("shop/own", group="lb/edge"), old=old) == policy.PASSED
