"""externalIPs: judged as kube-proxy reads them, or refused; of whom, and for whom not."""

import pytest

from kavip.api.meta import LabelSelector
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from kavip.webhook import policy
from kavip.webhook.checks import Options
from kavip.webhook.verdict import Verdict
from tests import build

ALL = Options(external_ips_scope="all")


def plain(*addresses: str, name: str = "shop/evil") -> Service:
    """A ClusterIP Service that kavip does not manage."""
    return build.service(name, type="ClusterIP", external_ips=list(addresses))


def managed(*addresses: str) -> Service:
    """The same of a group."""
    return build.service("shop/evil", group="lb/edge", type="ClusterIP", external_ips=list(addresses))


def create(asked: Service, *world: Object, options: Options = ALL) -> Verdict:
    """Judge the creation of *asked* in a cluster with a pool and a group."""
    snapshot = Snapshot.from_objects([build.group(), build.pool(), *world])
    return policy.review(Review(Operation.CREATE, asked), snapshot, options=options)


def reasons(found: Verdict) -> list[str]:
    """The reasons of all refusals."""
    return [refusal.reason for refusal in found.refusals]


@pytest.mark.parametrize("text", ["08.8.8.8", "008.008.008.008", "0192.000.002.013"])
def test_leading_zeros_are_refused(text: str) -> None:
    """kube-proxy would serve such an address; what kavip cannot read it does not let pass."""
    found = create(managed(text), options=Options())
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[0]"]


def test_a_mapped_address_is_the_one_that_it_maps() -> None:
    """Where one got in while kavip was down, the address is in use, and stays when it is left as it is."""
    there = plain("::ffff:192.0.2.130", name="shop/there")
    found = create(managed("192.0.2.130"), there)
    assert reasons(found) == [Reason.ADDRESS_IN_USE]
    snapshot = Snapshot.from_objects([build.pool(), there])
    assert policy.review(Review(Operation.UPDATE, there, there), snapshot, options=ALL).allowed


@pytest.mark.parametrize(("scope", "expected"), [("managed", []), ("off", []), ("all", [Reason.ADDRESS_NOT_IN_POOL])])
def test_whose_external_ips_are_judged(scope: str, expected: list[Reason]) -> None:
    """Those of Services that kavip does not manage only where the administrator has all judged."""
    assert reasons(create(plain("203.0.113.1"), options=Options(external_ips_scope=scope))) == expected


def test_nothing_else_of_a_foreign_service_is_judged() -> None:
    """Its pool, its addresses, its traffic policy are its owner's business."""
    asked = build.service("shop/web", type="ClusterIP", pool="gone", wants="nonsense", external_traffic_policy="Local")
    assert create(asked).allowed


def test_an_update_is_judged_by_what_it_adds() -> None:
    """What stood there before scope: all was set stays; what is added beside it is judged."""
    snapshot = Snapshot.from_objects([build.group(), build.pool()])
    old = plain("203.0.113.1")
    new = plain("203.0.113.1", "203.0.113.2")
    assert policy.review(Review(Operation.UPDATE, old, old), snapshot, options=ALL) == policy.PASSED
    found = policy.review(Review(Operation.UPDATE, new, old), snapshot, options=ALL)
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


@pytest.mark.parametrize(
    ("asked", "world", "pardoned"),
    [
        (managed("203.0.113.1"), [], True),
        (managed("10.1.0.1"), [build.pool("staff", "10.1.0.0/24", groups=["lb/other"])], True),
        (managed("10.1.0.1"), [build.pool("metered", "10.1.0.0/24", max_per_namespace=0)], True),
        (managed("192.0.2.131"), [build.node("n1", "192.0.2.131")], False),
        (managed("203.0.113.1"), [build.node("n1", "203.0.113.1")], False),
        (managed("192.0.2.130"), [build.service("shop/first", group="lb/edge", holds=["192.0.2.130"])], False),
        (managed("08.8.8.8"), [], False),
        (plain("203.0.113.1"), [], True),
        (plain("192.0.2.131"), [build.node("n1", "192.0.2.131")], True),
        (plain("192.0.2.130"), [build.service("shop/first", group="lb/edge", holds=["192.0.2.130"])], True),
        (plain("203.0.113.1", "203.0.113.2"), [], True),
    ],
)
def test_who_may_set_external_ips_may_set_those_that_nobody_has(
    asked: Service, world: list[Object], *, pardoned: bool
) -> None:
    """Pools and policies do not bind him; a node's address, or another Service's, keepalived would take away."""
    found = create(asked, *world)
    assert not found.allowed
    assert found.pardoned().allowed == pardoned


def test_a_pardon_covers_nothing_else() -> None:
    """A group that does not let the namespace in stays closed."""
    closed = build.group("lb/edge", allowed_namespaces=LabelSelector(match_labels={"team": "net"}))
    found = create(managed("203.0.113.1"), closed)
    assert reasons(found.pardoned()) == [Reason.NAMESPACE_NOT_ALLOWED]


def test_an_address_whose_pool_may_be_on_its_way_is_awaited() -> None:
    """The pool may come with the same kubectl apply, whichever of the two fields asks for the address."""
    for asked in (managed("203.0.113.1"), build.service("shop/web", group="lb/edge", wants="203.0.113.1")):
        (awaited,) = create(asked).awaits
        assert not awaited.arrived(Snapshot.from_objects([build.pool()]))
        assert awaited.arrived(Snapshot.from_objects([build.pool("new", "203.0.113.0/24")]))
