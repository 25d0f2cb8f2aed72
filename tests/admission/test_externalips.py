"""The rules for ``spec.externalIPs``: which addresses are refused, and for which users."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from msgspec.structs import replace

from kavip import names
from kavip.admission import policy
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.api.cluster import ExternalIP, ExternalIPPolicy, Network, NetworkSpec
from kavip.api.meta import LabelSelector, Metadata
from kavip.api.pool import Reservation, VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support.build import group, node, pool, service

ALL = PolicyOptions(external_ips_scope="all")
EXISTING = (EDGE, pool())


def plain(*addresses: str, name: str = "shop/evil") -> Service:
    """A ClusterIP Service that kavip does not manage."""
    return service(name, type="ClusterIP", external_ips=list(addresses))


def managed(*addresses: str) -> Service:
    """A ClusterIP Service of a group."""
    return service("shop/evil", group="lb/edge", type="ClusterIP", external_ips=list(addresses))


def network(**policy_: list[str]) -> Network:
    """OpenShift's Network with this policy; it also assigns 10.9.0.0/24 itself."""
    rules = ExternalIP(policy=ExternalIPPolicy(**policy_), auto_assign_cidrs=["10.9.0.0/24"])
    return Network(metadata=Metadata(name="cluster"), spec=NetworkSpec(external_ip=rules))


@pytest.mark.parametrize(
    ("address", "platform", "expected"),
    [
        ("192.0.2.130", None, []),
        ("203.0.113.1", None, [Reason.ADDRESS_NOT_IN_POOL]),
        ("192.0.2.140", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("192.0.2.139", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("192.0.2.131", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("198.51.100.1", None, [Reason.POOL_SELECTOR_MISMATCH]),
        ("10.1.0.1", None, []),
        ("203.0.113.1", network(allowed_cidrs=["203.0.113.0/24"]), []),
        (
            "203.0.113.1",
            network(allowed_cidrs=["203.0.113.0/24"], rejected_cidrs=["203.0.113.0/28"]),
            [Reason.ADDRESS_NOT_ALLOWED],
        ),
        ("192.0.2.130", network(), [Reason.ADDRESS_NOT_ALLOWED]),
        ("10.9.0.7", network(), []),
    ],
)
def test_an_administrator_must_have_permitted_an_external_ip(
    address: str, platform: Network | None, expected: list[Reason]
) -> None:
    """A platform policy decides first, then the pools: exclusions, reservations, selectors, node addresses."""
    existing: list[Object] = [
        EDGE,
        SHOP,
        node("n1", "192.0.2.131"),
        pool("edge", exclude=["192.0.2.140"], reservations=[Reservation(address="192.0.2.139", service="a/b")]),
        pool("staff", "198.51.100.0/30", groups=["lb/other"]),
        pool("quiet", "10.1.0.0/24", auto_assign=False),
    ]
    found = create(managed(address), *existing, *([platform] if platform else []))
    assert reasons(found) == expected


def test_external_ips_without_any_rule_are_a_warning() -> None:
    """Without any pool and policy an external IP is accepted with a warning."""
    found = create(managed("203.0.113.1"), EDGE)
    assert found.allowed
    assert found.warnings == (
        "spec.externalIPs[0]: 203.0.113.1: no VIPPool and no platform policy restricts external IPs; create a VIPPool",
    )


def test_only_added_external_ips_are_evaluated() -> None:
    """An old address stays without evaluation; an address that is added beside it is evaluated."""
    old = managed("203.0.113.1")
    assert update(old, managed("203.0.113.1", "192.0.2.130"), EDGE, pool()).allowed
    found = update(old, managed("203.0.113.1", "203.0.113.2"), EDGE, pool())
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


@pytest.mark.parametrize(
    ("limit", "before", "after"),
    [
        ({"groups": ["lb/edge"]}, {"group": "lb/edge"}, {"group": "lb/other"}),
        (
            {"service_selector": LabelSelector(match_labels={"tier": "web"})},
            {"group": "lb/edge", "labels": {"tier": "web"}},
            {"group": "lb/edge", "labels": {"tier": "db"}},
        ),
    ],
)
def test_kept_external_ips_stay_in_a_pool_that_serves_the_service(
    limit: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    """A new group or new labels are refused as on creation; an old violation and an address in status stay."""
    existing = (EDGE, group("lb/other", segment="default"), SHOP, pool("edge", **limit))

    def managed_service(**more: Any) -> Service:
        return service("shop/web", type="ClusterIP", external_ips=["192.0.2.130"], **more)

    assert reasons(create(managed_service(**after), *existing)) == [Reason.POOL_SELECTOR_MISMATCH]
    found = update(managed_service(**before), managed_service(**after), *existing)
    assert [(each.reason, each.field) for each in found.refusals] == [
        (Reason.POOL_SELECTOR_MISMATCH, "spec.externalIPs[0]")
    ]
    assert found.exempted().allowed
    assert update(managed_service(**before), managed_service(**before, annotations={"a": "b"}), *existing).allowed
    assert update(managed_service(**after), managed_service(**after, annotations={"a": "b"}), *existing).allowed
    assert update(managed_service(**before), managed_service(**after, holds=["192.0.2.130"]), *existing).allowed


def test_external_ips_count_together_for_quota() -> None:
    """All external IPs of one Service count for the quota; an edit also frees quota."""
    metered = pool("metered", "10.1.0.0/24", max_per_namespace=2)
    found = create(managed("10.1.0.1", "10.1.0.2", "10.1.0.2", "10.1.0.3", "10.1.0.4"), EDGE, metered)
    assert [(each.reason, each.field) for each in found.refusals] == [
        (Reason.QUOTA_EXCEEDED, "spec.externalIPs[3]"),
        (Reason.QUOTA_EXCEEDED, "spec.externalIPs[4]"),
    ]
    old = managed("10.1.0.1", "10.1.0.2")
    assert update(old, managed("10.1.0.3", "10.1.0.4"), EDGE, metered).allowed
    assert reasons(update(old, managed("10.1.0.1", "10.1.0.3", "10.1.0.4"), EDGE, metered)) == [Reason.QUOTA_EXCEEDED]


def in_deletion(found: Service) -> Service:
    """*found* in deletion, kept by a finalizer."""
    return replace(found, metadata=replace(found.metadata, deletion_timestamp="2026-02-01T00:00:00Z"))


def crowded(*, ranges: int, holders: int) -> tuple[Snapshot, list[VIPPool]]:
    """50 pools of *ranges* ranges each, and *holders* Services in deletion with addresses of the first pool."""
    pools = [
        pool(f"p{n:02}", *[f"10.{n}.{255 - m}.0/25" for m in range(ranges)], max_per_namespace=1) for n in range(50)
    ]
    held = [
        in_deletion(service(f"ns{n}/web", group="lb/edge", holds=[f"10.0.{n // 100}.{n % 100}"]))
        for n in range(holders)
    ]
    return Snapshot.from_objects([EDGE, *pools, *held, service("shop/one", holds=["10.0.255.1"])]), pools


def cost(snapshot: Snapshot, submitted: Service) -> float:
    """The least CPU seconds of three reviews of *submitted*, all of whose addresses are refused."""
    found = []
    for _ in range(3):
        start = process_time()
        assert len(policy.review(Review(Operation.CREATE, submitted), snapshot).refusals) >= names.MAX_EXTERNAL_IPS
        found.append(process_time() - start)
    return min(found)


@pytest.mark.slow
def test_many_refused_addresses_cost_little() -> None:
    """The cost per refused address does not grow with the holders of a pool or with the number of ranges."""
    (few, _), (many, pools) = crowded(ranges=10, holders=50), crowded(ranges=250, holders=5000)
    for submitted in (
        managed(
            *(f"10.0.{246 + n // 125}.{n % 125}" for n in range(names.MAX_EXTERNAL_IPS))
        ),  # of a pool whose quota is used up
        managed(*(f"11.0.{n // 100}.{n % 100}" for n in range(names.MAX_EXTERNAL_IPS))),  # of no pool
    ):
        assert cost(many, submitted) < 15 * cost(few, submitted)
    assert (
        "p04 (10.4.255.0/25, 10.4.254.0/25, 10.4.253.0/25, 10.4.252.0/25, 10.4.251.0/25 and 245 more) and 45 more"
        in (create(managed("11.0.0.1"), EDGE, *pools).refusals[0].message)
    )


@pytest.mark.parametrize("asking", [managed, plain])
def test_no_more_external_ips_are_read_than_a_limit(asking: Callable[..., Service]) -> None:
    """
    The API server accepts 100,000 in one Service; kavip reads the first 256 and refuses the others, to bound the time.
    """
    many = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(100_000)]
    within, beyond = asking(*many[: names.MAX_EXTERNAL_IPS]), asking(*many)
    existing, refused = (EDGE, pool("wide", "10.0.0.0/8")), "entries; want at most 256"
    assert not [each for each in create(within, *existing, options=ALL).refusals if refused in each.message]
    assert [each.field for each in create(beyond, *existing, options=ALL).refusals if refused in each.message]
    assert len(beyond.virtual_ips) == names.MAX_EXTERNAL_IPS
    assert update(beyond, beyond, *existing, options=ALL).allowed


def test_external_ips_from_an_outage_are_evaluated_with_the_group_annotation() -> None:
    """
    External IPs that were added while the webhook was down are not an old violation once the annotation is written.
    """
    slipped = service("shop/evil", external_ips=["203.0.113.1"])
    existing = (group("lb/edge", default=True), pool())
    assert reasons(update(slipped, service("shop/evil", group="lb/edge", external_ips=["203.0.113.1"]), *existing)) == [
        Reason.ADDRESS_NOT_IN_POOL
    ]
    assert update(slipped, service("shop/evil", group="lb/edge"), *existing).allowed


def test_external_ips_scope_off_disables_the_check() -> None:
    """With ``external_ips_scope: off`` there is no finding."""
    found = create(managed("203.0.113.1"), EDGE, pool(), options=PolicyOptions(external_ips_scope="off"))
    assert found == ALLOWED


@pytest.mark.parametrize("text", ["08.8.8.8", "008.008.008.008", "0192.000.002.013"])
def test_leading_zeros_are_refused(text: str) -> None:
    """kube-proxy would serve such an address, so kavip refuses it."""
    found = create(managed(text), *EXISTING)
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[0]"]


def test_a_mapped_ipv4_address_counts_as_the_ipv4_address() -> None:
    """
    If a mapped address was set while kavip was down, the IPv4 address is in use, and the Service may stay unchanged.
    """
    there = plain("::ffff:192.0.2.130", name="shop/there")
    found = create(managed("192.0.2.130"), *EXISTING, there)
    assert reasons(found) == [Reason.ADDRESS_IN_USE]
    snapshot = Snapshot.from_objects([pool(), there])
    assert policy.review(Review(Operation.UPDATE, there, there), snapshot, options=ALL).allowed


@pytest.mark.parametrize(("scope", "expected"), [("managed", []), ("off", []), ("all", [Reason.ADDRESS_NOT_IN_POOL])])
def test_the_scope_decides_about_unmanaged_services(scope: str, expected: list[Reason]) -> None:
    """External IPs of unmanaged Services are evaluated only with the scope ``all``."""
    assert reasons(create(plain("203.0.113.1"), *EXISTING, options=PolicyOptions(external_ips_scope=scope))) == expected


def test_other_fields_of_an_unmanaged_service_are_ignored() -> None:
    """Pool, addresses and traffic policy of an unmanaged Service cause no refusal."""
    submitted = service("shop/web", type="ClusterIP", pool="gone", wants="nonsense", external_traffic_policy="Local")
    assert create(submitted, *EXISTING, options=ALL).allowed


def test_the_scope_all_applies_to_added_external_ips() -> None:
    """External IPs from before ``scope: all`` stay; added ones are evaluated."""
    snapshot = Snapshot.from_objects([group(), pool()])
    old = plain("203.0.113.1")
    new = plain("203.0.113.1", "203.0.113.2")
    assert policy.review(Review(Operation.UPDATE, old, old), snapshot, options=ALL) == ALLOWED
    found = policy.review(Review(Operation.UPDATE, new, old), snapshot, options=ALL)
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


@pytest.mark.parametrize(
    ("submitted", "existing", "exempted"),
    [
        (managed("203.0.113.1"), [], True),
        (managed("10.1.0.1"), [pool("staff", "10.1.0.0/24", groups=["lb/other"])], True),
        (managed("10.1.0.1"), [pool("metered", "10.1.0.0/24", max_per_namespace=0)], True),
        (managed("192.0.2.131"), [node("n1", "192.0.2.131")], False),
        (managed("203.0.113.1"), [node("n1", "203.0.113.1")], False),
        (managed("192.0.2.130"), [service("shop/first", group="lb/edge", holds=["192.0.2.130"])], False),
        (managed("08.8.8.8"), [], False),
        (plain("203.0.113.1"), [], True),
        (plain("192.0.2.131"), [node("n1", "192.0.2.131")], True),
        (plain("192.0.2.130"), [service("shop/first", group="lb/edge", holds=["192.0.2.130"])], True),
        (plain("203.0.113.1", "203.0.113.2"), [], True),
    ],
)
def test_an_exempt_user_may_set_unused_external_ips(
    submitted: Service, existing: list[Object], *, exempted: bool
) -> None:
    """
    Pools and policies do not apply to an exempt user; an address in use by a node or a managed Service is refused.
    """
    found = create(submitted, *EXISTING, *existing, options=ALL)
    assert not found.allowed
    assert found.exempted().allowed == exempted


def test_an_exempt_user_gets_a_warning_for_each_address() -> None:
    """Each lifted refusal becomes a warning, because the user may not know about the exemption."""
    found = create(managed("203.0.113.1", "203.0.113.2"), EDGE, pool()).exempted()
    assert found.warnings == tuple(
        f'accepted because you may create services/externalips: spec.externalIPs[{index}]: "{address}": '
        "is in no VIPPool; choose an address from edge (192.0.2.128/28)"
        for index, address in enumerate(("203.0.113.1", "203.0.113.2"))
    )


def test_the_exemption_covers_external_ips_alone() -> None:
    """A group that does not serve the namespace still refuses the Service."""
    closed = group("lb/edge", allowed_namespaces=LabelSelector(match_labels={"team": "net"}))
    found = create(managed("203.0.113.1"), pool(), closed)
    assert reasons(found.exempted()) == [Reason.NAMESPACE_NOT_ALLOWED]


def test_the_missing_pool_of_an_address_is_a_missing_reference() -> None:
    """The pool may be created by the same ``kubectl apply``; both address fields name it."""
    for submitted in (managed("203.0.113.1"), service("shop/web", group="lb/edge", wants="203.0.113.1")):
        (reference,) = create(submitted, *EXISTING).missing
        assert not reference.exists(Snapshot.from_objects([pool()]))
        assert reference.exists(Snapshot.from_objects([pool("new", "203.0.113.0/24")]))
