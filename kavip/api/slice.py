"""``discovery.k8s.io/v1`` EndpointSlice: who stands behind a Service."""

from kavip.api.event import ObjectReference
from kavip.api.meta import Metadata, Wire


class Endpoint(Wire, frozen=True):
    """``endpoints[]``; *target_ref* is empty where nobody knows whose address it is."""

    target_ref: ObjectReference = ObjectReference()


class EndpointSlice(Wire, frozen=True):
    """An EndpointSlice."""

    metadata: Metadata = Metadata()
    endpoints: list[Endpoint] | None = None
