"""``discovery.k8s.io/v1`` EndpointSlice: who stands behind a Service."""

from kavip.api.address import Address, read_address
from kavip.api.event import ObjectReference
from kavip.api.meta import Metadata, Wire
from kavip.names import SERVICE_NAME_LABEL


class EndpointConditions(Wire, frozen=True):
    """``conditions``; what is not said is meant as Kubernetes means it."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Wire, frozen=True):
    """``endpoints[]``; *target_ref* is empty where nobody knows whose address it is, *node_name* where no node's."""

    addresses: list[str] | None = None
    conditions: EndpointConditions = EndpointConditions()
    node_name: str = ""
    target_ref: ObjectReference = ObjectReference()

    @property
    def is_ready(self) -> bool:
        """Whether new connections are its to take."""
        return self.conditions.ready is not False

    @property
    def is_draining(self) -> bool:
        """Whether it ends, and takes connections until then where nobody is ready."""
        serving = self.is_ready if self.conditions.serving is None else self.conditions.serving
        return serving and self.conditions.terminating is True


class EndpointSlice(Wire, frozen=True):
    """An EndpointSlice."""

    metadata: Metadata = Metadata()
    endpoints: list[Endpoint] | None = None

    @property
    def service(self) -> str:
        """The key of the Service whose endpoints these are; "" where no label says it."""
        name = self.metadata.label(SERVICE_NAME_LABEL)
        return f"{self.metadata.namespace}/{name}" if name else ""

    @property
    def ready_nodes(self) -> frozenset[str]:
        """The nodes of those that are ready."""
        return frozenset(each.node_name for each in self.endpoints or () if each.node_name and each.is_ready)

    @property
    def draining_nodes(self) -> frozenset[str]:
        """The nodes of those that end."""
        return frozenset(each.node_name for each in self.endpoints or () if each.node_name and each.is_draining)

    @property
    def addresses(self) -> frozenset[Address]:
        """The readable addresses, of whatever endpoint."""
        found = (read_address(text) for each in self.endpoints or () for text in each.addresses or ())
        return frozenset(address for address in found if address)
