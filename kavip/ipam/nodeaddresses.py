"""
Which of the addresses that a node reports are its own, and which are VIPs that it holds as VRRP master.

kubelet and cloud providers may report every address of an interface, including a VIP while the node is its master. If
kavip took the VIP for the node's own address, the Service would lose it, the node would no longer report it, and the
Service could get it again. So a reported address that a Service or group holds is a VIP if the node has another address
of its own, or if it was assigned after the node was created, because kavip assigns no address that a node reports. In
doubt the address is the node's own, because a VIP with that address would cut the node off: an address that another
controller wrote into a status, or an external IP that admission does not validate, is not a VIP.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.cluster import Node, NodeAddress
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.ipam.ledger.claims import AddressIndex
from kavip.ipam.record import FOREIGN_REASONS, read_record
from kavip.names import ConditionType

Holders = Callable[[Address], Iterable[Service | KeepalivedGroup]]
"""The Services and groups that hold an address."""


class ReportedAddresses:
    """The addresses that nodes report, as observed."""

    def __init__(self, holders: Holders) -> None:
        """Start empty."""
        self._holders = holders
        self._nodes: dict[str, Node] = {}
        self._reporting = AddressIndex()  # address -> nodes

    def observe(self, key: str, node: Node | None) -> None:
        """Node *key* was observed as *node*; None: it is deleted."""
        before = self._nodes.pop(key, None)
        self._reporting.move(key, addresses_of(before), addresses_of(node))
        if node is not None:
            self._nodes[key] = node

    def reporting(self, *holders: object) -> list[str]:
        """The nodes that report a VIP of *holders*, which are Services and groups that have changed; sorted."""
        known = (each for each in holders if isinstance(each, Service | KeepalivedGroup))
        return sorted({key for one in known for each in one.virtual_ips for key in self._reporting.get(each, ())})

    def without_vips(self, key: str) -> Node | None:
        """Node *key* without VIPs; None if it is unknown."""
        node = self._nodes.get(key)
        return without_vips(node, self._holders) if node is not None else None


def addresses_of(node: Node | None) -> tuple[Address, ...]:
    """The addresses that *node* reports."""
    return node.addresses() if node is not None else ()


def without_vips(node: Node, holders: Holders) -> Node:
    """*node* without the VIPs that it reports."""
    listed = addresses_of(node)
    held = {address: found for address in listed if (found := _of(holders(address), address))}
    if not held:
        return node
    own = {address.family for address in node.host_addresses if address not in held}
    vips = {
        address
        for address, found in held.items()
        if address.family in own
        or any(_since(each, address) > (node.metadata.creation_timestamp or "~") for each in found)
    }
    kept = [entry for entry in node.status.addresses or () if not _is_one(entry, vips)]
    return replace(node, status=replace(node.status, addresses=kept))


def _of(holders: Iterable[Service | KeepalivedGroup], address: Address) -> tuple[Service | KeepalivedGroup, ...]:
    """Those of *holders* for which *address* is a VIP."""
    return tuple(each for each in holders if _is_assigned(each, address) or address in _validated(each))


def _validated(holder: Service | KeepalivedGroup) -> tuple[Address, ...]:
    return holder.validated_external_ips if isinstance(holder, Service) else holder.virtual_ips


def _is_assigned(holder: Service | KeepalivedGroup, address: Address) -> bool:
    """Whether *holder* has *address* from kavip."""
    if isinstance(holder, KeepalivedGroup) or address not in holder.ingress_addresses:
        return False
    return read_record(holder).reason not in FOREIGN_REASONS


def _since(holder: Service | KeepalivedGroup, address: Address) -> str:
    """The time at which kavip assigned *address* to *holder*, "" if that is not known, as for externalIPs."""
    if isinstance(holder, KeepalivedGroup):
        return holder.metadata.creation_timestamp or ""
    condition = conditions.find(holder.status.conditions, ConditionType.ADDRESS_ASSIGNED)
    return condition.last_transition_time if condition and _is_assigned(holder, address) else ""


def _is_one(entry: NodeAddress, vips: set[Address]) -> bool:
    return read_address(entry.address) in vips
