"""Rules for a Service besides the cases of the table: waiting, virtual router IDs, the platform."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.admission.response import ReviewedObject, response
from kavip.admission.verdict import MissingReference
from kavip.api.group import Instances
from kavip.api.meta import Condition, LabelSelector
from kavip.api.pool import Cooling, PoolStatus, VIPPool
from kavip.api.service import Service
from kavip.names import Reason
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support import build
from tests.support.build import group, metadata, pool, service


def test_a_plain_service_of_the_default_group_is_evaluated() -> None:
    """An address outside every pool is refused although no annotation names the group."""
    found = create(service("shop/web", wants="203.0.113.9"), group("lb/edge", default=True), pool(), SHOP)
    assert reasons(found) == [Reason.ADDRESS_NOT_IN_POOL]


def test_missing_references_are_named() -> None:
    """A missing group and a missing pool may be created by the same ``kubectl apply``."""
    found = create(service("shop/web", group="lb/new", pool="new"), EDGE, pool())
    assert found.missing == (
        MissingReference(names.KEEPALIVED_GROUP, "lb/new"),
        MissingReference(names.VIP_POOL, "new"),
    )


def test_a_service_that_only_has_to_wait_is_accepted() -> None:
    """Without a pool, or with a full pool, the Service is accepted with a warning."""
    full = pool("edge", "192.0.2.130")
    holder = service("shop/first", group="lb/edge", holds=["192.0.2.130"])
    for found in (
        create(service("shop/web", group="lb/edge"), EDGE),
        create(service("shop/web", group="lb/edge", pool="edge"), EDGE, full, holder),
    ):
        assert found.allowed
        assert len(found.warnings) == 1
        assert "the Service waits for an address: " in found.warnings[0]


def cooling(*addresses: str) -> VIPPool:
    """A pool whose first address cools down for ``shop/old``."""
    entry = Cooling(address="192.0.2.130", service="shop/old", until="2026-03-01T12:01:00Z")
    return msgspec.structs.replace(pool("edge", *addresses, cooldown_seconds=60), status=PoolStatus(cooling=[entry]))


def test_a_service_waits_for_a_cooling_address() -> None:
    """The warning has the end of the cool-down; the previous Service gets the address without a warning."""
    existing = EDGE, cooling("192.0.2.130/31")
    found = create(service("shop/web", group="lb/edge", wants="192.0.2.130"), *existing)
    assert found.allowed
    (warning,) = found.warnings
    assert warning == (
        "metadata.annotations[kavip.io/addresses]: the Service waits for an address: address 192.0.2.130 cools down "
        "until 2026-03-01T12:01:00Z for Service shop/old, which freed it; wait until then, or ask "
        "for another"
    )
    assert create(service("shop/old", group="lb/edge", wants="192.0.2.130"), *existing).warnings == ()
    assert create(service("shop/web", group="lb/edge"), *existing).warnings == ()


def test_a_cooling_address_is_refused_as_external_ip() -> None:
    """An external IP cannot wait, because it is in use at once; the previous Service may have it."""
    existing = EDGE, cooling("192.0.2.130/31")
    submitted: dict[str, Any] = {"group": "lb/edge", "type": "ClusterIP", "external_ips": ["192.0.2.130"]}
    found = create(service("shop/web", **submitted), *existing)
    assert reasons(found) == [Reason.ADDRESS_IN_USE]
    assert found.refusals[0].message.endswith(
        "cools down until 2026-03-01T12:01:00Z for Service shop/old, which freed it; choose another "
        "address, or retry then"
    )
    assert create(service("shop/old", **submitted), *existing).allowed


def test_a_used_up_quota_refuses_only_a_service_that_names_the_pool() -> None:
    """With the name of the pool the code is 403; otherwise the Service waits for any pool."""
    strict = pool("edge", max_per_namespace=0)
    named = create(service("shop/web", group="lb/edge", pool="edge"), EDGE, strict)
    assert reasons(named) == [Reason.QUOTA_EXCEEDED]
    answer = response("u1", named, ReviewedObject("Service", "web"))
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (403, "Forbidden")
    assert create(service("shop/web", group="lb/edge"), EDGE, strict).allowed


def test_an_edit_that_ends_sharing_is_refused() -> None:
    """A Service with a shared address must not take a port of another holder."""
    key = {names.SHARING_KEY_ANNOTATION: "k"}
    first = service("shop/a", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    old = service("shop/b", group="lb/edge", port=81, annotations=key, holds=["192.0.2.130"])
    new = service("shop/b", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    assert update(old, old, EDGE, pool(), first).allowed
    assert reasons(update(old, new, EDGE, pool(), first)) == [Reason.SHARING_REFUSED]


def test_an_edit_that_strands_is_accepted_with_a_warning() -> None:
    """With labels that the pool does not select, the Service keeps its address."""
    picky = pool("edge", service_selector=LabelSelector(match_labels={"tier": "gold"}))
    given = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED)
    old = service("shop/web", group="lb/edge", labels={"tier": "gold"}, holds=["192.0.2.130"])
    old = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, conditions=[given]))
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=None))
    assert not update(old, old, EDGE, picky).warnings
    found = update(old, new, EDGE, picky)
    assert found.allowed
    (warning,) = found.warnings
    assert warning.startswith("the Service keeps 192.0.2.130, although 192.0.2.130 is in pool edge, which cannot serve")


def test_a_service_of_the_platform_is_not_evaluated() -> None:
    """If OpenShift assigns addresses, a Service that names no pool has no finding."""
    network = build.network("198.51.100.0/24")
    submitted = service("shop/web", group="lb/edge")
    assert create(submitted, EDGE, network) == ALLOWED
    assert create(submitted, EDGE, network, options=PolicyOptions(ipam="always")).warnings
    assert create(submitted, EDGE, options=PolicyOptions(ipam="never")) == ALLOWED


def test_an_address_from_kavip_is_evaluated_beside_a_platform() -> None:
    """The controller still manages such an address, so its rules apply."""
    given = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED)

    def sharing(name: str, port: int) -> Service:
        key = {names.SHARING_KEY_ANNOTATION: "k"}
        made = service(f"shop/{name}", group="lb/edge", port=port, annotations=key, holds=["192.0.2.130"])
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=[given]))

    cluster = EDGE, pool(), sharing("a", 80), build.network("198.51.100.0/24")
    assert reasons(update(sharing("b", 81), sharing("b", 80), *cluster)) == [Reason.SHARING_REFUSED]
    assert update(sharing("b", 81), sharing("b", 82), *cluster).allowed


@pytest.mark.parametrize("shared", [True, False])
def test_router_ids_are_counted_over_the_segment(shared: bool) -> None:
    """All Services of all groups of the segment count; obsolete entries and the reviewed Service do not."""
    one = group("lb/one", segment="s" if shared else "t", router_ids={"shop/a": 1, "gone/x": 9})
    other = group("lb/other", segment="s", blacklist_router_ids=list(range(3, 256)))
    members = [service("shop/a", group="lb/one"), service("shop/b", group="lb/other")]
    found = create(service("shop/web", group="lb/other"), one, other, *members, pool(), SHOP)
    assert reasons(found) == ([Reason.ROUTER_IDS_EXHAUSTED] if shared else [])
    again = update(members[1], members[1], one, other, members[0], pool())
    assert again.allowed


def test_router_ids_of_openshift_are_not_left() -> None:
    """The VRIDs of the platform's own keepalived count, except one that an instance already has."""
    blacklist = sorted(set(range(1, 256)) - {2, 9, 33})  # OpenShift has 2, 13 and 33 in a cluster of this name
    one = group("lb/one", blacklist_router_ids=blacklist, router_ids={"shop/a": 2})
    there = one, service("shop/a", group="lb/one"), build.infrastructure("prod"), pool(), SHOP
    assert create(service("shop/b", group="lb/one"), *there).allowed
    (refusal,) = create(service("shop/c", group="lb/one"), service("shop/b", group="lb/one"), *there).refusals
    assert "255 in all, 252 blacklisted, 1 of OpenShift, 2 needed by this group" in refusal.message


def test_spreadvips_needs_a_router_id_for_each_address() -> None:
    """Setting ``spreadvips`` is refused without enough IDs; the message has the needed number."""
    tight = group("lb/edge", blacklist_router_ids=list(range(2, 256)))
    old = service("shop/web", group="lb/edge", external_ips=["192.0.2.133", "192.0.2.134"])
    new = service(
        "shop/web",
        group="lb/edge",
        external_ips=["192.0.2.133", "192.0.2.134"],
        annotations={names.SPREAD_ANNOTATION: "true"},
    )
    found = update(old, new, tight, pool())
    assert [refusal.message.partition(":")[0] for refusal in found.refusals] == [
        'group "lb/edge" has 1 virtual router ID left, this Service needs 3'
    ]


def test_a_shared_group_takes_any_number() -> None:
    """In Shared mode a Service needs no virtual router ID."""
    tight = group(
        "lb/edge",
        blacklist_router_ids=list(range(2, 256)),
        instances=msgspec.structs.replace(EDGE.spec.instances, mode="Shared", count=1),
    )
    members = [service(f"shop/s{number}", group="lb/edge") for number in range(300)]
    assert create(service("shop/web", group="lb/edge"), tight, pool(), *members).allowed


def test_groups_with_free_router_ids_are_named() -> None:
    """Groups with shared instances come first; full, closed and deleted groups are not named."""
    full = group("lb/full", blacklist_router_ids=list(range(1, 256)))
    submitted = service("shop/web", group="lb/full")
    closed = group("lb/a-closed", allowed_namespaces=LabelSelector(match_labels={"team": "net"}))
    gone = metadata("lb/a-going", deletion_timestamp="2026-05-01T00:00:00Z")
    going = msgspec.structs.replace(group("lb/a-going"), metadata=gone)
    shared = group("lb/shared", instances=Instances(mode="Shared", count=4))
    (refusal,) = create(submitted, full, closed, going, shared, EDGE, pool()).refusals
    assert "; choose a group with free IDs (lb/shared, lb/edge), or set spec.instances.mode: Shared" in refusal.message
    (refusal,) = create(submitted, full, closed, going, pool()).refusals
    assert "; create a group on another segment, or set spec.instances.mode: Shared" in refusal.message


@pytest.mark.parametrize(
    ("text", "meant"),
    [("edge", "lb/edge"), ("kavip/edge", "lb/edge"), ("LB/Edge", "lb/edge"), ("lb/edeg", "lb/edge"), ("l/x" * 99, "")],
)
def test_the_nearest_group_is_named(text: str, meant: str) -> None:
    """It is the group of the same name in another namespace, or the most similar one."""
    (refusal,) = create(service("shop/web", group=text), EDGE, pool()).refusals
    assert (f'did you mean "{meant}"?' in refusal.message) == bool(meant)


def test_an_ipv6_address_in_upper_case_is_accepted() -> None:
    """Messages show the canonical form."""
    six = pool("six", "2001:db8::/120")
    holder = service("shop/first", group="lb/edge", families=["IPv6"], holds=["2001:db8::a"])
    (refusal,) = create(
        service("shop/web", group="lb/edge", wants="2001:DB8::A", families=["IPv6"]), EDGE, six, holder
    ).refusals
    assert refusal.message.startswith("address 2001:db8::a is used by Service shop/first")
