"""
The ranges that the cluster uses itself: its Service ranges, pod ranges of nodes; and those that OpenShift rejects.

No pool assigns from Service ranges and rejected ranges, which only administrators write. Pod ranges
(``Node.spec.podCIDRs``) take nothing from a pool: NodeRestriction lets a kubelet set its own once, so one node could
claim the addresses of all Services. No new pool may overlap one, and a stored pool that does reports it.

A pod range that contains the first address of a node is ignored: Services have their VIPs in the nodes' subnet. Which
pod ranges count is a function of the nodes and pools; the order of events does not matter.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Network, Node, ServiceCIDR
from kavip.ipam.pool import REJECTED, Barred, Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILIES, Range, first_overlap, read_network, subtract

_MAX_POD_RANGES: Final = 2
"""Pod ranges of one Node: the API server admits one of each family."""


def rejected_ranges(network: Network | None) -> tuple[Barred, ...]:
    """The ranges that OpenShift's ``spec.externalIP.policy`` rejects; unreadable entries are skipped."""
    policy = network.spec.external_ip.policy if network and network.spec.external_ip else None
    return tuple(Barred(span, REJECTED) for span in _readable((policy.rejected_cidrs if policy else None) or ()))


def service_ranges(objects: Iterable[ServiceCIDR]) -> tuple[Barred, ...]:
    """The ranges of *objects*, by name of the object; unreadable entries are skipped."""
    return tuple(
        Barred(span, f"the cluster's Service range {span} ({names.SERVICE_CIDR} {each.metadata.name})")
        for each in sorted(objects, key=lambda one: one.metadata.name)
        for span in _readable(each.spec.cidrs or ())
    )


class PodRange(NamedTuple):
    """*span*, from which *node* assigns addresses to its pods, as the Node says."""

    span: Range
    node: str

    def __str__(self) -> str:
        """As messages name it."""
        return f"the pod range {self.span} of {names.NODE} {self.node}"


class PodRanges:
    """The pod ranges of the nodes, and which of them overlap a pool."""

    def __init__(self) -> None:
        """Start without nodes and pools."""
        self._ranges: dict[str, tuple[Range, ...]] = {}
        self._addresses: dict[str, tuple[Address, ...]] = {}
        self._hosts: list[Address] = []  # sorted
        self._overlapping: dict[str, tuple[Range, ...]] = {}
        self._declared: tuple[Range, ...] = ()

    def observe(self, key: str, node: Node | None) -> None:
        """Enter Node *key*; None: it is deleted."""
        ranges = _pod_ranges(node) if node else ()
        hosts = tuple(filter(None, map(node.internal_ip, FAMILIES))) if node else ()
        if ranges == self._ranges.get(key, ()) and hosts == self._addresses.get(key, ()):
            return
        for address in self._addresses.pop(key, ()):
            del self._hosts[bisect_left(self._hosts, address)]
        for address in hosts:
            insort(self._hosts, address)
        self._ranges[key], self._addresses[key] = ranges, hosts
        if node is None:
            del self._ranges[key], self._addresses[key]
        self._select(key)

    def set_pools(self, pools: Pools) -> None:
        """Compare with the ranges of *pools* from now on."""
        declared = _union(span for pool in pools.known for span in pool.ranges)
        if declared == self._declared:
            return
        self._declared = declared
        for key in self._ranges:
            self._select(key)

    def overlapping(self, ranges: tuple[Range, ...]) -> tuple[PodRange, ...]:
        """The pod ranges that overlap one of *ranges*, which are sorted and disjoint, by node. In O(nodes)."""
        return self._found(self._ranges, ranges)

    def in_pool(self, pool: Pool) -> tuple[PodRange, ...]:
        """The pod ranges that overlap what *pool*, one of the pools, assigns, by node. In O(nodes that overlap one)."""
        return self._found(self._overlapping, pool.usable)

    @property
    def have_overlaps(self) -> bool:
        """Whether a pod range of some node, ignored or not, overlaps a pool."""
        return bool(self._overlapping)

    def touches_pools(self, node: Node) -> bool:
        """Whether a pod range of *node*, ignored or not, overlaps a pool."""
        return any(first_overlap(self._declared, span) for span in _pod_ranges(node))

    def _select(self, key: str) -> None:
        """Determine which ranges of Node *key* overlap a pool."""
        found = tuple(span for span in self._ranges.get(key, ()) if first_overlap(self._declared, span))
        self._overlapping.pop(key, None)
        if found:
            self._overlapping[key] = found

    def _found(self, nodes: Mapping[str, tuple[Range, ...]], ranges: tuple[Range, ...]) -> tuple[PodRange, ...]:
        return tuple(
            PodRange(span, key)
            for key, found in sorted(nodes.items())
            for span in found
            if first_overlap(ranges, span) and not self._holds_node(span)
        )

    def _holds_node(self, span: Range) -> bool:
        """Whether *span* contains the first address of a node."""
        at = bisect_left(self._hosts, Address(span.family, span.first))
        return at < len(self._hosts) and span.holds(self._hosts[at])


def _pod_ranges(node: Node) -> tuple[Range, ...]:
    return tuple(_readable((node.spec.pod_cidrs or ())[:_MAX_POD_RANGES]))


def _readable(texts: Iterable[str]) -> Iterator[Range]:
    return filter(None, map(read_network, texts))


def _union(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """*ranges*, which may overlap, as sorted and disjoint ones."""
    result: list[Range] = []
    for span in sorted(ranges):
        result += subtract((span,), result[-1:])
    return tuple(result)
