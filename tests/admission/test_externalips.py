"""externalIPs: judged as kube-proxy reads them, or refused; of whom, and for whom not."""

from collections.abc import Callable
from time import process_time

import pytest
from msgspec.structs import replace

from kavip import names
from kavip.admission import policy
from kavip.admission.chain import Options
from kavip.api.cluster import ExternalIP, ExternalIPPolicy, Network, NetworkSpec
from kavip.api.meta import LabelSelector, Metadata
from kavip.api.pool import Reservation, VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support.build import group, node, pool, service

ALL = Options(external_ips_scope="all")
WORLD = (EDGE, pool())


def plain(*addresses: str, name: str = "shop/evil") -> Service:
    """A ClusterIP Service that kavip does not manage."""
    return service(name, type="ClusterIP", external_ips=list(addresses))


def managed(*addresses: str) -> Service:
    """The same of a group."""
    return service("shop/evil", group="lb/edge", type="ClusterIP", external_ips=list(addresses))


def network(**policy_: list[str]) -> Network:
    """OpenShift's Network with that policy, and addresses that it assigns itself."""
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
def test_an_external_ip_must_have_been_given_away(
    address: str, platform: Network | None, expected: list[Reason]
) -> None:
    """A platform policy binds first, then the pools: excluded, reserved, selected, a node's own."""
    world: list[Object] = [
        EDGE,
        SHOP,
        node("n1", "192.0.2.131"),
        pool("edge", exclude=["192.0.2.140"], reservations=[Reservation(address="192.0.2.139", service="a/b")]),
        pool("staff", "198.51.100.0/30", groups=["lb/other"]),
        pool("quiet", "10.1.0.0/24", auto_assign=False),
    ]
    found = create(managed(address), *world, *([platform] if platform else []))
    assert reasons(found) == expected


def test_external_ips_without_any_rule_are_a_warning() -> None:
    """With no pool and no policy anywhere nobody has said no."""
    found = create(managed("203.0.113.1"), EDGE)
    assert found.allowed
    assert found.warnings == (
        "spec.externalIPs[0]: 203.0.113.1: no VIPPool and no platform policy says who may have it; create a VIPPool",
    )


def test_an_external_ip_that_was_there_stays() -> None:
    """An old address is not judged when another one is added beside it; the new one is."""
    old = managed("203.0.113.1")
    assert update(old, managed("203.0.113.1", "192.0.2.130"), EDGE, pool()).allowed
    found = update(old, managed("203.0.113.1", "203.0.113.2"), EDGE, pool())
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


def test_external_ips_count_together_for_quota() -> None:
    """One Service does not exceed a quota by asking for several at once; what an edit gives back is free again."""
    metered = pool("metered", "10.1.0.0/24", max_per_namespace=2)
    found = create(managed("10.1.0.1", "10.1.0.2", "10.1.0.2", "10.1.0.3", "10.1.0.4"), EDGE, metered)
    assert [(each.reason, each.field) for each in found.refusals] == [
        (Reason.QUOTA_EXCEEDED, "spec.externalIPs[3]"),
        (Reason.QUOTA_EXCEEDED, "spec.externalIPs[4]"),
    ]
    old = managed("10.1.0.1", "10.1.0.2")
    assert update(old, managed("10.1.0.3", "10.1.0.4"), EDGE, metered).allowed
    assert reasons(update(old, managed("10.1.0.1", "10.1.0.3", "10.1.0.4"), EDGE, metered)) == [Reason.QUOTA_EXCEEDED]


def leaving(found: Service) -> Service:
    """*found*, while a finalizer holds it."""
    return replace(found, metadata=replace(found.metadata, deletion_timestamp="2026-02-01T00:00:00Z"))


def crowded(*, ranges: int, holders: int) -> tuple[Snapshot, list[VIPPool]]:
    """50 pools of so many *ranges*, and *holders* of the first that are being deleted; namespace shop has its share."""
    pools = [
        pool(f"p{n:02}", *[f"10.{n}.{255 - m}.0/25" for m in range(ranges)], max_per_namespace=1) for n in range(50)
    ]
    held = [
        leaving(service(f"ns{n}/web", group="lb/edge", holds=[f"10.0.{n // 100}.{n % 100}"])) for n in range(holders)
    ]
    return Snapshot.from_objects([EDGE, *pools, *held, service("shop/one", holds=["10.0.255.1"])]), pools


def cost(snapshot: Snapshot, asked: Service) -> float:
    """The least seconds of the processor that it took to refuse *asked*, address by address."""
    found = []
    for _ in range(3):
        start = process_time()
        assert len(policy.review(Review(Operation.CREATE, asked), snapshot).refusals) >= names.MAX_EXTERNAL_IPS
        found.append(process_time() - start)
    return min(found)


@pytest.mark.slow
def test_many_refused_addresses_cost_little() -> None:
    """Neither the holders of a pool are counted for each address, nor all pools and their ranges written out."""
    (few, _), (many, pools) = crowded(ranges=10, holders=50), crowded(ranges=250, holders=5000)
    for asked in (
        managed(*(f"10.0.{246 + n // 125}.{n % 125}" for n in range(names.MAX_EXTERNAL_IPS))),  # of a pool that is full
        managed(*(f"11.0.{n // 100}.{n % 100}" for n in range(names.MAX_EXTERNAL_IPS))),  # of none
    ):
        assert cost(many, asked) < 15 * cost(few, asked)
    assert (
        "p04 (10.4.255.0/25, 10.4.254.0/25, 10.4.253.0/25, 10.4.252.0/25, 10.4.251.0/25 and 245 more) and 45 more"
        in (create(managed("11.0.0.1"), EDGE, *pools).refusals[0].message)
    )


@pytest.mark.parametrize("asking", [managed, plain])
def test_no_more_external_ips_are_read_than_a_limit(asking: Callable[..., Service]) -> None:
    """The API server takes 100,000 in one Service: each costs time that others wait for, so the rest is refused."""
    many = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(100_000)]
    within, beyond = asking(*many[: names.MAX_EXTERNAL_IPS]), asking(*many)
    world, refused = (EDGE, pool("wide", "10.0.0.0/8")), "entries; want at most 256"
    assert not [each for each in create(within, *world, options=ALL).refusals if refused in each.message]
    assert [each.field for each in create(beyond, *world, options=ALL).refusals if refused in each.message]
    assert len(beyond.virtual_ips) == names.MAX_EXTERNAL_IPS
    assert update(beyond, beyond, *world, options=ALL).allowed


def test_what_came_while_kavip_was_away_is_judged_when_it_says_whose_it_is() -> None:
    """A default group takes a plain Service that nobody was asked about; its external IPs are no old violation."""
    slipped = service("shop/evil", external_ips=["203.0.113.1"])
    world = (group("lb/edge", default=True), pool())
    assert reasons(update(slipped, service("shop/evil", group="lb/edge", external_ips=["203.0.113.1"]), *world)) == [
        Reason.ADDRESS_NOT_IN_POOL
    ]
    assert update(slipped, service("shop/evil", group="lb/edge"), *world).allowed


def test_external_ips_may_be_left_unchecked() -> None:
    """With external_ips_scope: off nothing is said about them."""
    found = create(managed("203.0.113.1"), EDGE, pool(), options=Options(external_ips_scope="off"))
    assert found == policy.PASSED


@pytest.mark.parametrize("text", ["08.8.8.8", "008.008.008.008", "0192.000.002.013"])
def test_leading_zeros_are_refused(text: str) -> None:
    """kube-proxy would serve such an address; what kavip cannot read it does not let pass."""
    found = create(managed(text), *WORLD)
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[0]"]


def test_a_mapped_address_is_the_one_that_it_maps() -> None:
    """Where one got in while kavip was down, the address is in use, and stays when it is left as it is."""
    there = plain("::ffff:192.0.2.130", name="shop/there")
    found = create(managed("192.0.2.130"), *WORLD, there)
    assert reasons(found) == [Reason.ADDRESS_IN_USE]
    snapshot = Snapshot.from_objects([pool(), there])
    assert policy.review(Review(Operation.UPDATE, there, there), snapshot, options=ALL).allowed


@pytest.mark.parametrize(("scope", "expected"), [("managed", []), ("off", []), ("all", [Reason.ADDRESS_NOT_IN_POOL])])
def test_whose_external_ips_are_judged(scope: str, expected: list[Reason]) -> None:
    """Those of Services that kavip does not manage only where the administrator has all judged."""
    assert reasons(create(plain("203.0.113.1"), *WORLD, options=Options(external_ips_scope=scope))) == expected


def test_nothing_else_of_a_foreign_service_is_judged() -> None:
    """Its pool, its addresses, its traffic policy are its owner's business."""
    asked = service("shop/web", type="ClusterIP", pool="gone", wants="nonsense", external_traffic_policy="Local")
    assert create(asked, *WORLD, options=ALL).allowed


def test_an_update_is_judged_by_what_it_adds() -> None:
    """What stood there before scope: all was set stays; what is added beside it is judged."""
    snapshot = Snapshot.from_objects([group(), pool()])
    old = plain("203.0.113.1")
    new = plain("203.0.113.1", "203.0.113.2")
    assert policy.review(Review(Operation.UPDATE, old, old), snapshot, options=ALL) == policy.PASSED
    found = policy.review(Review(Operation.UPDATE, new, old), snapshot, options=ALL)
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


@pytest.mark.parametrize(
    ("asked", "world", "pardoned"),
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
def test_who_may_set_external_ips_may_set_those_that_nobody_has(
    asked: Service, world: list[Object], *, pardoned: bool
) -> None:
    """Pools and policies do not bind him; a node's address, or another Service's, keepalived would take away."""
    found = create(asked, *WORLD, *world, options=ALL)
    assert not found.allowed
    assert found.pardoned().allowed == pardoned


def test_who_is_exempt_hears_of_each_pardon() -> None:
    """Two addresses, two warnings: an administrator may not know that the rules do not bind him."""
    found = create(managed("203.0.113.1", "203.0.113.2"), EDGE, pool()).pardoned()
    assert found.warnings == tuple(
        f'accepted, because you may create services/externalips: spec.externalIPs[{index}]: "{address}": '
        "in no VIPPool; choose an address of edge (192.0.2.128/28)"
        for index, address in enumerate(("203.0.113.1", "203.0.113.2"))
    )


def test_a_pardon_covers_nothing_else() -> None:
    """A group that does not let the namespace in stays closed."""
    closed = group("lb/edge", allowed_namespaces=LabelSelector(match_labels={"team": "net"}))
    found = create(managed("203.0.113.1"), pool(), closed)
    assert reasons(found.pardoned()) == [Reason.NAMESPACE_NOT_ALLOWED]


def test_an_address_whose_pool_may_be_on_its_way_is_awaited() -> None:
    """The pool may come with the same kubectl apply, whichever of the two fields asks for the address."""
    for asked in (managed("203.0.113.1"), service("shop/web", group="lb/edge", wants="203.0.113.1")):
        (awaited,) = create(asked, *WORLD).awaits
        assert not awaited.arrived(Snapshot.from_objects([pool()]))
        assert awaited.arrived(Snapshot.from_objects([pool("new", "203.0.113.0/24")]))
