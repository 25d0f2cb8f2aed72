"""The policy: who is judged at all, and what an update may leave as it was."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission import policy, services
from kavip.admission.verdict import Verdict
from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support.build import group, node, pool, service


def test_a_clean_service_hears_nothing() -> None:
    """A Service without a fault is allowed without a warning."""
    assert create(service("shop/web", group="lb/edge"), EDGE, pool(), SHOP) == policy.PASSED


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (service("shop/web", pool="gone"), "it has neither group annotation nor class, and no default group takes it"),
        (
            service("shop/web", pool="gone", load_balancer_class="example.com/other"),
            "its spec.loadBalancerClass is example.com/other",
        ),
        (
            service("shop/web", type="ClusterIP", pool="gone"),
            "it is not of type LoadBalancer, and has no externalIPs with a group annotation",
        ),
    ],
)
def test_a_service_that_is_not_managed_is_not_judged(asked: Service, why: str) -> None:
    """Only a warning tells that the annotations do nothing, and why."""
    found = create(asked, EDGE)
    field = "metadata.annotations[kavip.io/pool]"
    assert found == Verdict(warnings=(f"{field}: does nothing, for kavip does not manage this Service: {why}",))


def test_an_update_may_leave_an_old_violation() -> None:
    """What was wrong before and is not touched passes with a warning; what is touched is judged."""
    old = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"})
    relabelled = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"}, labels={"a": "b"})
    found = update(old, relabelled, EDGE, pool())
    assert found.allowed
    assert [text.partition(": ")[0] for text in found.warnings] == ["accepted, because it is not new"] * 2
    touched = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "no"}, labels={"a": "b"})
    assert [refusal.field for refusal in update(old, touched, EDGE, pool()).refusals] == [services.SPREAD_FIELD]


def test_becoming_managed_is_judged_like_creation() -> None:
    """A ClusterIP Service with an old annotation that becomes a LoadBalancer has everything judged."""
    old = service("shop/web", group="lb/gone", type="ClusterIP")
    assert reasons(update(old, service("shop/web", group="lb/gone"), EDGE, pool())) == [Reason.GROUP_NOT_FOUND]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("203.0.113.1", [Reason.ADDRESS_NOT_IN_POOL]),
        ("192.0.2.130", [Reason.ADDRESS_IN_USE]),
        ("192.0.2.131", [Reason.ADDRESS_NOT_ALLOWED]),
        ("192.0.2.132", []),
    ],
)
def test_external_ips_from_before_a_service_was_managed_are_judged(address: str, expected: list[Reason]) -> None:
    """Nobody looked at them then: the annotation alone does not make a VIP of a node's or another's address."""
    world: list[Object] = [
        EDGE,
        pool(),
        node("n1", "192.0.2.131"),
        service("shop/first", group="lb/edge", holds=["192.0.2.130"]),
    ]
    old = service("shop/web", type="ClusterIP", external_ips=[address])
    new = service("shop/web", type="ClusterIP", external_ips=[address], group="lb/edge")
    assert reasons(update(old, new, *world)) == expected


def test_another_group_judges_the_same_keywords_anew() -> None:
    """What one group allows (``allowVerbatim``) is no old violation in another, which does not."""
    world: list[Object] = [group("lb/lenient", allow_verbatim=["dont_track_primary"]), EDGE, pool()]
    notes = {names.VERBATIM_ANNOTATION: '{"dont_track_primary": ""}'}
    old = service("shop/web", group="lb/lenient", annotations=notes)
    assert create(old, *world).allowed
    found = update(old, service("shop/web", group="lb/edge", annotations=notes), *world)
    assert reasons(found) == [Reason.INVALID_VERBATIM]


@pytest.mark.parametrize(
    ("before", "after"), [({"pool": "q"}, {"pool": "qq"}), ({"wants": "10.1.0.1"}, {"pool": "qq"})]
)
def test_a_pool_is_not_misnamed_by_who_has_an_address(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The Service would keep its address as a stranded one; that its pool is gone is another matter."""
    world: list[Object] = [EDGE, SHOP, pool("q", "10.1.0.0/24", auto_assign=False)]
    old = service("shop/web", group="lb/edge", holds=["10.1.0.1"], **before)
    new = service("shop/web", group="lb/edge", holds=["10.1.0.1"], **{**before, **after})
    assert reasons(update(old, new, *world)) == [Reason.POOL_NOT_FOUND]
    named = service("shop/web", group="lb/edge", holds=["10.1.0.1"], pool="q")
    assert update(named, named, EDGE, SHOP).allowed


def test_lines_have_no_place_in_a_shared_instance() -> None:
    """What the controller would leave out is refused; an instance of its own (Local) takes the lines."""
    shared = group("lb/edge", instances=Instances(mode="Shared"))
    for line, traffic, expected in (
        ('{"garp_master_repeat": "2"}', "Cluster", [Reason.INVALID_VERBATIM]),
        ('{"garp_master_repeat": "2"}', "Local", []),
        ('{"priority": "100"}', "Cluster", []),
    ):
        notes = {names.VERBATIM_ANNOTATION: line}
        asked = service("shop/web", group="lb/edge", annotations=notes, external_traffic_policy=traffic)
        assert reasons(create(asked, shared, pool())) == expected


def test_the_vips_of_a_group_take_a_router_id() -> None:
    """They have an instance of their own, which counts like one of a Service, here and on the whole segment."""
    own = [GroupVirtualIP(address="198.51.100.1"), GroupVirtualIP(address="2001:db8::1")]
    none, one = list(range(1, 256)), list(range(1, 255))
    assert reasons(create(group("lb/new", blacklist_router_ids=none, virtual_ips=own))) == [Reason.ROUTER_IDS_EXHAUSTED]
    assert create(group("lb/new", blacklist_router_ids=one, virtual_ips=own)).allowed
    full = group("lb/edge", segment="s", blacklist_router_ids=one, virtual_ips=own)
    asked = service("shop/web", group="lb/edge")
    assert reasons(create(asked, full, pool())) == [Reason.ROUTER_IDS_EXHAUSTED]
    for ids in (None, {"lb/vips/virtualips": 255}):
        other = group("lb/vips", segment="s", virtual_ips=own, router_ids=ids)
        empty = group("lb/edge", segment="s", blacklist_router_ids=one)
        assert reasons(create(asked, empty, other, pool())) == [Reason.ROUTER_IDS_EXHAUSTED]


def test_an_untouched_service_passes_when_its_world_got_worse() -> None:
    """A group that has become closed and full meanwhile refuses no edit of the Services that it has."""
    closed = group(
        "lb/edge",
        blacklist_router_ids=list(range(1, 256)),
        allowed_namespaces=LabelSelector(match_labels={"team": "net"}),
    )
    old = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    new = service("shop/web", group="lb/edge", holds=["192.0.2.130"], labels={"a": "b"})
    assert update(old, new, closed, SHOP, pool()).allowed


@pytest.mark.parametrize("asked", [service("shop/web", group="lb/gone"), group("lb/x", interface="no/good")])
def test_deletion_always_passes(asked: Service | KeepalivedGroup) -> None:
    """Neither a DELETE nor an edit of an object in deletion is judged."""
    assert policy.review(Review(Operation.DELETE, asked), Snapshot()) == policy.PASSED
    leaving = msgspec.structs.replace(
        asked, metadata=msgspec.structs.replace(asked.metadata, deletion_timestamp="2026-05-01T00:00:00Z")
    )
    assert policy.review(Review(Operation.UPDATE, leaving, asked), Snapshot()) == policy.PASSED


@pytest.mark.parametrize("asked", [{"pool": "gone"}, {"wants": "203.0.113.1"}, {"wants": "192.0.2.130"}])
def test_a_request_that_cannot_be_met_keeps_nobody_from_other_edits(asked: dict[str, Any]) -> None:
    """Labels and ports may change beside it; another pool or address that cannot be had may not."""
    world: list[Object] = [EDGE, pool(), service("shop/first", group="lb/edge", holds=["192.0.2.130"])]
    old = service("shop/web", group="lb/edge", **asked)
    new = service("shop/web", group="lb/edge", labels={"a": "b"}, port=81, **asked)
    found = update(old, new, *world)
    assert found.allowed
    assert [text.partition(": ")[0] for text in found.warnings] == ["accepted, because it is not new"]
    other: dict[str, Any] = {key: f"{value}9" for key, value in asked.items()}
    assert not update(old, service("shop/web", group="lb/edge", **other), *world).allowed


def test_a_label_or_a_port_that_makes_a_new_violation_is_refused() -> None:
    """What was fine before is judged by what it becomes."""
    tier = LabelSelector(match_labels={"tier": "web"})
    picky = pool("picky", "10.1.0.0/24", service_selector=tier)
    old = service("shop/web", group="lb/edge", pool="picky", labels={"tier": "web"})
    new = service("shop/web", group="lb/edge", pool="picky", labels={"tier": "db"})
    assert reasons(update(old, new, EDGE, picky)) == [Reason.POOL_SELECTOR_MISMATCH]
