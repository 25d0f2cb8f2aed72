"""The VIPs of a Service in its group."""

import msgspec

from kavip.vrrp.members import member_of
from tests.support import build
from tests.vrrp.samples import annotated


def test_a_service_in_deletion_keeps_its_assigned_addresses_only() -> None:
    """Admission does not check its edits any more: with a finalizer it could have any external IP announced."""
    leaving = annotated("a/s", "192.0.2.2", group="lb/edge", external_ips=["203.0.113.1"])
    assert [str(each) for each in member_of(leaving, build.group()).addresses] == ["192.0.2.2", "203.0.113.1"]
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-03-01T00:00:00Z")
    leaving = msgspec.structs.replace(leaving, metadata=metadata)
    assert [str(each) for each in member_of(leaving, build.group()).addresses] == ["192.0.2.2"]
