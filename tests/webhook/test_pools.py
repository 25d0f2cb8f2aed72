"""What is asked of a VIPPool beside the cases of the table."""

import msgspec

from kavip import names
from kavip.api.review import Operation, Review
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.webhook import policy
from tests.build import metadata, pool, service
from tests.webhook.judging import EDGE, reasons, update


def test_deleting_a_pool_strands_nobody() -> None:
    """The refusal names the Services; with the annotation, or without holders, the pool may go."""
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
    """The first twenty are listed, the rest is a number."""
    holders = [service(f"shop/s{i:02}", group="lb/edge", holds=[f"10.0.0.{i}"]) for i in range(1, 26)]
    found = update(pool("edge", "10.0.0.0/24"), pool("edge", "10.0.1.0/24"), EDGE, *holders)
    assert len(found.refusals) == 1
    assert "leaves 25 addresses in use without a pool: shop/s01 (10.0.0.1), " in found.refusals[0].message
    assert "shop/s20 (10.0.0.20) and 5 more; move" in found.refusals[0].message


def test_an_external_ip_that_loses_its_pool_is_told() -> None:
    """externalIPs are not taken away with the pool: a warning."""
    holder = service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["192.0.2.130"])
    found = update(pool(), pool("edge", "192.0.2.136/29"), EDGE, holder)
    assert found.allowed
    assert found.warnings == ("spec.addresses: leaves externalIPs without a pool: shop/web (192.0.2.130)",)


def test_an_old_overlap_does_not_block_other_edits() -> None:
    """Two pools that overlap since before kavip may be edited, but not made to overlap anew."""
    rival = pool("rival", "192.0.2.128/27")
    old = pool("edge")
    assert update(old, pool("edge", priority=5), rival).allowed
    assert reasons(update(old, pool("edge", "192.0.2.128/29"), rival)) == [Reason.OVERLAP]
