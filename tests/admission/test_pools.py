"""Rules for a VIPPool besides the cases of the table."""

import msgspec
import pytest

from kavip import names
from kavip.admission import policy
from kavip.admission.chain import ALLOWED
from kavip.api.pool import VIPPool
from kavip.api.review import Operation, Review
from kavip.names import Reason
from kavip.snapshot import Snapshot
from tests.admission.evaluation import EDGE, create, reasons, update
from tests.support.build import endpoints, metadata, node, pool, service


def test_a_pool_with_holders_is_not_deleted() -> None:
    """The refusal is at the name; with the annotation or without holders the deletion is accepted."""
    holder = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    snapshot = Snapshot.from_objects([EDGE, pool(), holder])
    found = policy.review(Review(Operation.DELETE, pool()), snapshot)
    assert [refusal.field for refusal in found.refusals] == ["metadata.name"]
    willing = pool()
    notes = {names.ALLOW_STRANDING_ANNOTATION: "true"}
    willing = msgspec.structs.replace(willing, metadata=metadata("edge", annotations=notes))
    assert policy.review(Review(Operation.DELETE, willing), snapshot).allowed
    snapshot.drop(names.SERVICE, "shop/web")
    assert policy.review(Review(Operation.DELETE, pool()), snapshot).allowed


def test_many_stranded_services_are_counted() -> None:
    """The message lists the first twenty and the number of the others."""
    holders = [service(f"shop/s{i:02}", group="lb/edge", holds=[f"10.0.0.{i}"]) for i in range(1, 26)]
    found = update(pool("edge", "10.0.0.0/24"), pool("edge", "10.0.1.0/24"), EDGE, *holders)
    assert len(found.refusals) == 1
    assert "leaves 25 addresses in use without a pool: shop/s01 (10.0.0.1), " in found.refusals[0].message
    assert "shop/s20 (10.0.0.20) and 5 more; move" in found.refusals[0].message


def test_an_external_ip_that_loses_its_pool_is_a_warning() -> None:
    """External IPs stay without the pool, so there is only a warning."""
    holder = service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["192.0.2.130"])
    found = update(pool(), pool("edge", "192.0.2.136/29"), EDGE, holder)
    assert found.allowed
    assert found.warnings == ("spec.addresses: leaves externalIPs without a pool: shop/web (192.0.2.130)",)


def test_an_old_overlap_does_not_block_other_edits() -> None:
    """Pools that overlap already may be edited, but must not overlap in a new way."""
    rival = pool("rival", "192.0.2.128/27")
    old = pool("edge")
    assert update(old, pool("edge", priority=5), rival).allowed
    assert reasons(update(old, pool("edge", "192.0.2.128/29"), rival)) == [Reason.OVERLAP]


def test_a_shared_address_counts_once() -> None:
    """Two Services on one address are one stranded address; both are listed."""
    holders = [service(f"shop/{name}", group="lb/edge", holds=["192.0.2.130"]) for name in ("dns", "web")]
    found = update(pool(), pool("edge", "192.0.2.136/29"), EDGE, *holders)
    assert "leaves 1 address in use without a pool: shop/dns (192.0.2.130), shop/web" in found.refusals[0].message


def test_missing_groups_are_warnings() -> None:
    """The existing groups are listed, further ones are counted; without any group there is no warning."""
    many = [f"lb/{letter * 20}" for letter in "abcdefghijklmnopqr"]
    found = create(pool(groups=many), EDGE)
    assert len(found.warnings) == 17
    assert found.warnings[0] == f'spec.groups[0]: group "{many[0]}" does not exist; groups: lb/edge'
    assert found.warnings[-1] == "spec.groups: 2 further groups not found"
    assert create(pool(groups=many)) == ALLOWED


API_SERVER = endpoints("default/kubernetes", addresses=["192.0.2.130"])


def test_a_new_pool_or_range_with_an_address_of_the_api_server_is_refused() -> None:
    """The address is named; with the address excluded the pool is accepted, and a removed exclude is refused again."""
    found = create(pool(), API_SERVER)
    assert reasons(found) == [Reason.ADDRESS_NOT_ALLOWED]
    assert "192.0.2.130 is an address of the API server" in found.refusals[0].message
    excluded = pool(exclude=["192.0.2.130"])
    assert create(excluded, API_SERVER).allowed
    assert reasons(update(excluded, pool(), API_SERVER)) == [Reason.ADDRESS_NOT_ALLOWED]
    wider = pool("edge", "198.51.100.0/28", "192.0.2.128/28")
    assert reasons(update(pool("edge", "198.51.100.0/28"), wider, API_SERVER)) == [Reason.ADDRESS_NOT_ALLOWED]


def test_a_stored_pool_with_an_address_of_the_api_server_may_be_edited_with_a_warning() -> None:
    """What was stored before stays editable, its addresses too."""
    for edited in (pool("edge", priority=5), pool("edge", "192.0.2.128/28", "198.51.100.0/28")):
        found = update(pool(), edited, API_SERVER)
        assert found.warnings == (
            (
                "spec.addresses: 192.0.2.130 is an address of the API server, and is never assigned; "
                "list it in spec.exclude"
            ),
        )
        assert found.allowed


def test_the_subnet_of_the_nodes_may_be_a_pool() -> None:
    """VIPs live beside the nodes; only the nodes' own addresses are kept back."""
    assert create(pool(), node("n1", "192.0.2.131"), EDGE) == ALLOWED


CLAIMING = node("n1", "10.0.0.1", pod_cidrs=["192.0.2.128/29"])


def test_a_new_pool_in_a_pod_range_is_refused() -> None:
    """The message names range and Node; without the addresses of the pods the pool is accepted."""
    (refusal,) = create(pool(), CLAIMING, EDGE).refusals
    assert refusal.message == (
        "spec.addresses: overlaps the pod range 192.0.2.128/29 of Node n1; list it in spec.exclude, or use other "
        "addresses"
    )
    assert create(pool(exclude=["192.0.2.128/29"]), CLAIMING, EDGE) == ALLOWED


@pytest.mark.parametrize("edited", [pool(priority=5), pool("edge", "192.0.2.128/28", "198.51.100.0/28")])
def test_a_stored_pool_in_a_pod_range_may_be_edited_with_a_warning(edited: VIPPool) -> None:
    """A node that claims the range of a pool does not lock the pool."""
    found = update(pool(), edited, CLAIMING, EDGE)
    assert found.allowed
    assert found.warnings == (
        (
            "spec.addresses: overlaps the pod range 192.0.2.128/29 of Node n1; "
            "list it in spec.exclude if pods have the addresses"
        ),
    )


@pytest.mark.parametrize("before", [pool("edge", "192.0.2.136/29"), pool(exclude=["192.0.2.128/30"])])
def test_a_pool_does_not_grow_into_a_pod_range(before: VIPPool) -> None:
    """Neither with a range more nor with an exclusion less."""
    (refusal,) = update(before, pool(), CLAIMING, EDGE).refusals
    assert refusal.field == "spec.addresses" and "192.0.2.128/29 of Node n1" in refusal.message


def test_addresses_that_another_class_gave_do_not_hold_a_pool() -> None:
    """MetalLB's Service keeps its address without kavip's pool; kavip's own holder counts as before."""
    theirs = service("shop/theirs", holds=["192.0.2.130"], load_balancer_class="metallb.io/metallb")
    ours = service("shop/web", group="lb/edge", holds=["192.0.2.131"])
    assert policy.review(Review(Operation.DELETE, pool()), Snapshot.from_objects([EDGE, pool(), theirs])) == ALLOWED
    assert update(pool(), pool("edge", "192.0.2.136/29"), EDGE, theirs).allowed
    found = policy.review(Review(Operation.DELETE, pool()), Snapshot.from_objects([EDGE, pool(), theirs, ours]))
    assert "leaves 1 address in use without a pool: shop/web (192.0.2.131);" in found.refusals[0].message
