"""``discovery.k8s.io/v1`` EndpointSlice: endpoints of a Service."""

from kavip.api.address import Address, read_address
from kavip.api.event import ObjectReference
from kavip.api.meta import Metadata, Wire
from kavip.names import SERVICE_NAME_LABEL


class EndpointConditions(Wire, frozen=True):
    """``conditions``; an absent value has the meaning that Kubernetes gives it."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Wire, frozen=True):
    """``endpoints[]``; *target_ref* is empty if no object is known for the address, *node_name* if no node is."""

    addresses: list[str] | None = None
    conditions: EndpointConditions = EndpointConditions()
    node_name: str = ""
    target_ref: ObjectReference = ObjectReference()

    @property
    def is_ready(self) -> bool:
        """Whether it takes new connections; without the condition it counts as ready."""
        return self.conditions.ready is not False

    @property
    def is_draining(self) -> bool:
        """Whether it terminates and still serves; it then takes connections if no endpoint is ready."""
        serving = self.is_ready if self.conditions.serving is None else self.conditions.serving
        return serving and self.conditions.terminating is True


class EndpointSlice(Wire, frozen=True):
    """An EndpointSlice."""

    metadata: Metadata = Metadata()
    endpoints: list[Endpoint] | None = None

    @property
    def service(self) -> str:
        """The key of the Service that has these endpoints; "" without the label."""
        name = self.metadata.label(SERVICE_NAME_LABEL)
        return f"{self.metadata.namespace}/{name}" if name else ""

    @property
    def ready_nodes(self) -> frozenset[str]:
        """The nodes with a ready endpoint."""
        return frozenset(each.node_name for each in self.endpoints or () if each.node_name and each.is_ready)

    @property
    def draining_nodes(self) -> frozenset[str]:
        """The nodes with a draining endpoint."""
        return frozenset(each.node_name for each in self.endpoints or () if each.node_name and each.is_draining)

    @property
    def addresses(self) -> frozenset[Address]:
        """The readable addresses of all endpoints, ready or not."""
        found = (read_address(text) for each in self.endpoints or () for text in each.addresses or ())
        return frozenset(address for address in found if address)
