"""``VIPPool``: addresses that kavip may hand out (fields: config/crd)."""

from typing import NamedTuple

from kavip import names
from kavip.api.meta import Condition, LabelSelector, Metadata, Wire, field


class Reservation(Wire, frozen=True):
    """``spec.reservations[]``: *address* is kept for *service* (``ns/name``) even while it does not exist."""

    address: str
    service: str


class PoolRouting(Wire, frozen=True):
    """``spec.routing``: replies leave by *gateway*, or *gateway_ipv6* for IPv6, which the nodes' *table* holds."""

    gateway: str = ""
    gateway_ipv6: str = field(name="gatewayIPv6", default="")
    table: int = 0


class PoolSpec(Wire, frozen=True):
    """``spec``."""

    addresses: list[str] = []
    exclude: list[str] | None = None
    auto_assign: bool = True
    priority: int = 100
    service_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    groups: list[str] | None = None
    avoid_buggy_ips: bool = field(name="avoidBuggyIPs", default=False)
    reservations: list[Reservation] | None = None
    cooldown_seconds: int = 0
    conflict_detection: str = names.PROBE
    max_per_namespace: int | None = None
    interface: str | None = None
    routing: PoolRouting | None = None


class PoolInterface(NamedTuple):
    """The *interface* of the nodes that a *pool* names for its addresses; *is_routed*: it has ``spec.routing``."""

    interface: str
    pool: str
    is_routed: bool


class Usage(Wire, frozen=True, omit_defaults=False):
    """``status.ipv4`` and ``status.ipv6``; clamped to int64, a /64 is larger."""

    total: int = 0
    assigned: int = 0
    available: int = 0


class Cooling(Wire, frozen=True):
    """
    ``status.cooling[]``: an address in cool-down *until* then (RFC 3339).

    It is reserved for *service*, which freed it; with the *reason* ``AddressConflict`` it is for no Service, because
    another machine has it, and *service* is the one that had it.
    """

    address: str
    service: str
    until: str
    reason: str = ""


class PoolStatus(Wire, frozen=True):
    """``status``."""

    ipv4: Usage | None = None
    ipv6: Usage | None = None
    cooling: list[Cooling] | None = None
    conditions: list[Condition] | None = None


class VIPPool(Wire, frozen=True):
    """A VIPPool."""

    metadata: Metadata = Metadata()
    spec: PoolSpec = PoolSpec()
    status: PoolStatus = PoolStatus()

    @property
    def name(self) -> str:
        """The pool's name; pools are cluster-scoped."""
        return self.metadata.name
