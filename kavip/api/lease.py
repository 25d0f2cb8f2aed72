"""``coordination.k8s.io/v1`` Lease: the replica that may run the controller."""

from kavip.api.meta import Metadata, Wire


class LeaseSpec(Wire, frozen=True):
    """``spec``; the times are for people: no decision compares them with kavip's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True):
    """A Lease."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()
