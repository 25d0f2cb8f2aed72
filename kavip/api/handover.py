"""
A Service as ``kavip import`` hands it over: with its node ports, and what it returns to (:class:`HandOver`).
"""

import msgspec

from kavip import names
from kavip.api.meta import Wire
from kavip.api.service import Service, ServicePort, ServiceSpec


class HandOver(Wire, frozen=True):
    """
    The annotation ``kavip.io/hand-over``: what of the LoadBalancer Service cannot be seen while it is none.

    *load_balancer_class* is the one that it had; "" if it had none.
    """

    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str = ""

    def text(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self, order="deterministic").decode()


class HandedPort(ServicePort, frozen=True, gc=False):
    """``spec.ports[]`` with the node port."""

    node_port: int = 0


class HandedSpec(ServiceSpec, frozen=True):
    """``spec`` with what the controller need not know."""

    ports: list[HandedPort] | None = None  # type: ignore[assignment]  # a narrower item
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_source_ranges: list[str] | None = None


class HandedService(Service, frozen=True):
    """A Service."""

    spec: HandedSpec = HandedSpec()

    @property
    def hand_over(self) -> HandOver | None:
        """What the annotation says; None: no hand-over is under way. A malformed one says nothing."""
        text = self.metadata.annotation(names.HAND_OVER_ANNOTATION)
        if not text:
            return None
        try:
            return msgspec.json.decode(text, type=HandOver)
        except msgspec.DecodeError:
            return HandOver()
