"""
Which of the addresses that a node reports are its own, and which are VIPs that it merely holds.

kubelet and cloud providers may report every address of a card, a VIP as well while the node is its master. Taken for
the node's own it would be taken from its Service and leave the node, which would then report it no more. So an address
that is held is a VIP where the node has another of its own, or where it was given while the node was there: kavip gives
no address that a node reports. In doubt it is the node's, which keepalived would cut off: what somebody else wrote into
a status, or into externalIPs of which admission is not asked, is no VIP.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.cluster import Node, NodeAddress
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.ipam.ledger.owners import Names
from kavip.ipam.record import FOREIGN_REASONS, read_record
from kavip.names import Condition

Holders = Callable[[Address], Iterable[Service | KeepalivedGroup]]
"""Who holds an address."""


class Reports:
    """What nodes report, as it comes."""

    def __init__(self, holders: Holders) -> None:
        """Nothing is reported yet."""
        self._holders = holders
        self._nodes: dict[str, Node] = {}
        self._reporting = Names()  # address -> nodes

    def see(self, key: str, node: Node | None) -> None:
        """Node *key* reports what *node* says; None: it is gone."""
        before = self._nodes.pop(key, None)
        self._reporting.move(key, addresses_of(before), addresses_of(node))
        if node is not None:
            self._nodes[key] = node

    def reporting(self, *holders: object) -> list[str]:
        """The nodes that report a VIP of *holders*, Services and groups that come or go, sorted."""
        known = (each for each in holders if isinstance(each, Service | KeepalivedGroup))
        return sorted({key for one in known for each in one.virtual_ips for key in self._reporting.get(each, ())})

    def cleared(self, key: str) -> Node | None:
        """Node *key* without VIPs."""
        node = self._nodes.get(key)
        return cleared(node, self._holders) if node is not None else None


def addresses_of(node: Node | None) -> tuple[Address, ...]:
    """The addresses that *node* reports."""
    return node.addresses("InternalIP", "ExternalIP") if node is not None else ()


def cleared(node: Node, holders: Holders) -> Node:
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
    """Those of *holders* whose VIP *address* is."""
    return tuple(each for each in holders if _is_given(each, address) or address in _judged(each))


def _judged(holder: Service | KeepalivedGroup) -> tuple[Address, ...]:
    return holder.judged_addresses if isinstance(holder, Service) else holder.virtual_ips


def _is_given(holder: Service | KeepalivedGroup, address: Address) -> bool:
    """Whether *holder* has *address* from kavip."""
    if isinstance(holder, KeepalivedGroup) or address not in holder.ingress_addresses:
        return False
    return read_record(holder).reason not in FOREIGN_REASONS


def _since(holder: Service | KeepalivedGroup, address: Address) -> str:
    """When *holder* got *address*, which no node reported then; "" where that is not known, as for externalIPs."""
    if isinstance(holder, KeepalivedGroup):
        return holder.metadata.creation_timestamp or ""
    told = conditions.find(holder.status.conditions, Condition.ADDRESS_ASSIGNED)
    return told.last_transition_time if told and _is_given(holder, address) else ""


def _is_one(entry: NodeAddress, vips: set[Address]) -> bool:
    return read_address(entry.address) in vips
