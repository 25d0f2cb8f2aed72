"""The policy: which objects are evaluated, and which old violations an update may keep."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission import policy, services
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.admission.verdict import Verdict
from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support.build import group, in_deletion, node, pool, service


def test_a_valid_service_has_no_finding() -> None:
    """A valid Service is allowed without a warning."""
    assert create(service("shop/web", group="lb/edge"), EDGE, pool(), SHOP) == ALLOWED


@pytest.mark.parametrize(
    ("submitted", "why"),
    [
        (service("shop/web", pool="gone"), "it has no group annotation and no class, and there is no default group"),
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
def test_an_unmanaged_service_only_gets_a_warning(submitted: Service, why: str) -> None:
    """The warning says that the annotations have no effect, and why."""
    found = create(submitted, EDGE)
    field = "metadata.annotations[kavip.io/pool]"
    assert found == Verdict(warnings=(f"{field}: has no effect: kavip does not manage this Service: {why}",))


def test_an_update_may_keep_an_old_violation() -> None:
    """An unchanged violation is a warning; a changed field is evaluated."""
    old = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"})
    relabelled = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"}, labels={"a": "b"})
    found = update(old, relabelled, EDGE, pool())
    assert found.allowed
    assert [text.partition(": ")[0] for text in found.warnings] == ["accepted because the field is unchanged"] * 2
    touched = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "no"}, labels={"a": "b"})
    assert [refusal.field for refusal in update(old, touched, EDGE, pool()).refusals] == [services.SPREAD_FIELD]


def test_becoming_managed_is_evaluated_like_creation() -> None:
    """A ClusterIP Service that becomes a LoadBalancer is evaluated completely."""
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
def test_external_ips_are_evaluated_when_a_service_becomes_managed(address: str, expected: list[Reason]) -> None:
    """They were not evaluated before, so the annotation alone must not turn a used address into a VIP."""
    existing: list[Object] = [
        EDGE,
        pool(),
        node("n1", "192.0.2.131"),
        service("shop/first", group="lb/edge", holds=["192.0.2.130"]),
    ]
    old = service("shop/web", type="ClusterIP", external_ips=[address])
    new = service("shop/web", type="ClusterIP", external_ips=[address], group="lb/edge")
    assert reasons(update(old, new, *existing)) == expected


def test_keywords_are_evaluated_again_for_another_group() -> None:
    """A keyword that one group allows (``allowVerbatim``) is not an old violation in a group that does not."""
    existing: list[Object] = [group("lb/lenient", allow_verbatim=["dont_track_primary"]), EDGE, pool()]
    notes = {names.VERBATIM_ANNOTATION: '{"dont_track_primary": ""}'}
    old = service("shop/web", group="lb/lenient", annotations=notes)
    assert create(old, *existing).allowed
    found = update(old, service("shop/web", group="lb/edge", annotations=notes), *existing)
    assert reasons(found) == [Reason.INVALID_VERBATIM]


@pytest.mark.parametrize(
    ("before", "after"), [({"pool": "q"}, {"pool": "qq"}), ({"wants": "10.1.0.1"}, {"pool": "qq"})]
)
def test_a_missing_pool_is_refused_although_the_service_keeps_its_address(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The Service could keep its address as a stranded one, but the name of the pool is wrong."""
    existing: list[Object] = [EDGE, SHOP, pool("q", "10.1.0.0/24", auto_assign=False)]
    old = service("shop/web", group="lb/edge", holds=["10.1.0.1"], **before)
    new = service("shop/web", group="lb/edge", holds=["10.1.0.1"], **{**before, **after})
    assert reasons(update(old, new, *existing)) == [Reason.POOL_NOT_FOUND]
    named = service("shop/web", group="lb/edge", holds=["10.1.0.1"], pool="q")
    assert update(named, named, EDGE, SHOP).allowed


def test_verbatim_lines_are_refused_for_a_shared_instance() -> None:
    """The controller would drop the lines; a Local Service has an instance of its own and may have them."""
    shared = group("lb/edge", instances=Instances(mode="Shared"))
    for line, traffic, expected in (
        ('{"garp_master_repeat": "2"}', "Cluster", [Reason.INVALID_VERBATIM]),
        ('{"garp_master_repeat": "2"}', "Local", []),
        ('{"priority": "100"}', "Cluster", []),
    ):
        notes = {names.VERBATIM_ANNOTATION: line}
        submitted = service("shop/web", group="lb/edge", annotations=notes, external_traffic_policy=traffic)
        assert reasons(create(submitted, shared, pool())) == expected


def test_the_vips_of_a_group_need_a_router_id() -> None:
    """They have an instance, which counts like that of a Service, in the group and on the segment."""
    own = [GroupVirtualIP(address="198.51.100.1"), GroupVirtualIP(address="2001:db8::1")]
    none, one = list(range(1, 256)), list(range(1, 255))
    assert reasons(create(group("lb/new", blacklist_router_ids=none, virtual_ips=own))) == [Reason.ROUTER_IDS_EXHAUSTED]
    assert create(group("lb/new", blacklist_router_ids=one, virtual_ips=own)).allowed
    full = group("lb/edge", segment="s", blacklist_router_ids=one, virtual_ips=own)
    submitted = service("shop/web", group="lb/edge")
    assert reasons(create(submitted, full, pool())) == [Reason.ROUTER_IDS_EXHAUSTED]
    for ids in (None, {"lb/vips/virtualips": 255}):
        other = group("lb/vips", segment="s", virtual_ips=own, router_ids=ids)
        empty = group("lb/edge", segment="s", blacklist_router_ids=one)
        assert reasons(create(submitted, empty, other, pool())) == [Reason.ROUTER_IDS_EXHAUSTED]


def test_an_unrelated_edit_is_accepted_in_a_closed_and_full_group() -> None:
    """A group that no longer allows the namespace and has no free ID refuses no edit of its Services."""
    closed = group(
        "lb/edge",
        blacklist_router_ids=list(range(1, 256)),
        allowed_namespaces=LabelSelector(match_labels={"team": "net"}),
    )
    old = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    new = service("shop/web", group="lb/edge", holds=["192.0.2.130"], labels={"a": "b"})
    assert update(old, new, closed, SHOP, pool()).allowed


@pytest.mark.parametrize("submitted", [service("shop/web", group="lb/gone"), group("lb/x", interface="no/good")])
def test_deletion_is_not_evaluated(submitted: Service | KeepalivedGroup) -> None:
    """No finding for a DELETE, and none for ``kubectl apply`` that removes a finalizer from an object in deletion."""
    assert policy.review(Review(Operation.DELETE, submitted), Snapshot()) == ALLOWED
    held, freed = in_deletion(submitted), in_deletion(submitted)
    notes = {**(submitted.metadata.annotations or {}), "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    freed = msgspec.structs.replace(freed, metadata=msgspec.structs.replace(freed.metadata, annotations=notes))
    assert policy.review(Review(Operation.UPDATE, freed, held), Snapshot()) == ALLOWED


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            service("shop/web", type="ClusterIP", created="2020"),
            service("shop/web", type="ClusterIP", created="2020", group="lb/edge", external_ips=["192.0.2.130"]),
            Reason.ADDRESS_IN_USE,
        ),
        (
            service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["10.2.0.1"]),
            service("shop/web", group="lb/edge", type="ClusterIP", external_ips=[f"10.2.0.{n}" for n in range(1, 15)]),
            Reason.QUOTA_EXCEEDED,
        ),
        (service("shop/web"), service("shop/web", group="lb/gone"), Reason.GROUP_NOT_FOUND),
        (service("shop/web", type="ClusterIP"), service("shop/web", external_ips=["8.8.8.8"]), ""),
        (
            group("lb/dying"),
            group("lb/dying", virtual_ips=[GroupVirtualIP(address="192.0.2.130")]),
            Reason.ADDRESS_IN_USE,
        ),
        (pool("third", "10.3.0.0/28"), pool("third", "10.2.0.0/28"), Reason.OVERLAP),
    ],
)
def test_an_edit_of_an_object_in_deletion_is_evaluated(before: Any, after: Any, reason: str) -> None:
    """A tenant's own finalizer keeps an object in deletion for any time, so its edits are those of any other object."""
    existing: list[Object] = [EDGE, pool(), pool("metered", "10.2.0.0/28", max_per_namespace=1)]
    victim = service("other/web", group="lb/edge", holds=["192.0.2.130"])
    everything = PolicyOptions(external_ips_scope="all")
    for old, new in ((before, after), (in_deletion(before), in_deletion(after))):
        found = update(old, new, *existing, victim, options=everything)
        assert not found.allowed
        assert not reason or set(reasons(found)) == {reason}
    assert update(in_deletion(before), in_deletion(before), *existing, victim, options=everything) == ALLOWED


def test_a_new_object_is_evaluated_even_with_a_deletion_timestamp() -> None:
    """The API server removes the field from a manifest only after admission."""
    assert not create(in_deletion(service("shop/web", group="lb/gone")), EDGE).allowed


@pytest.mark.parametrize("submitted", [{"pool": "gone"}, {"wants": "203.0.113.1"}, {"wants": "192.0.2.130"}])
def test_an_unavailable_address_does_not_block_other_edits(submitted: dict[str, Any]) -> None:
    """Labels and ports may change; a change to another unavailable pool or address is refused."""
    existing: list[Object] = [EDGE, pool(), service("shop/first", group="lb/edge", holds=["192.0.2.130"])]
    old = service("shop/web", group="lb/edge", **submitted)
    new = service("shop/web", group="lb/edge", labels={"a": "b"}, port=81, **submitted)
    found = update(old, new, *existing)
    assert found.allowed
    assert [text.partition(": ")[0] for text in found.warnings] == ["accepted because the field is unchanged"]
    other: dict[str, Any] = {key: f"{value}9" for key, value in submitted.items()}
    assert not update(old, service("shop/web", group="lb/edge", **other), *existing).allowed


def test_a_label_or_a_port_that_makes_a_new_violation_is_refused() -> None:
    """A valid request that an edit makes invalid is refused."""
    tier = LabelSelector(match_labels={"tier": "web"})
    picky = pool("picky", "10.1.0.0/24", service_selector=tier)
    old = service("shop/web", group="lb/edge", pool="picky", labels={"tier": "web"})
    new = service("shop/web", group="lb/edge", pool="picky", labels={"tier": "db"})
    assert reasons(update(old, new, EDGE, picky)) == [Reason.POOL_SELECTOR_MISMATCH]
