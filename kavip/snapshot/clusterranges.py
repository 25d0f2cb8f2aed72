"""
The ranges that no pool may assign: the cluster's Service ranges, pod ranges of nodes, and what OpenShift rejects.

Of the pod ranges (``Node.spec.podCIDRs``) only those that overlap a pool count, so that a node that joins changes no
pool. A pod range that contains the first address of a node is ignored: Services have their VIPs in the nodes'
subnet. Which pod ranges count is a function of the nodes and pools; the order of events does not matter.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Network, Node, ServiceCIDR
from kavip.ipam.pool import REJECTED, Barred
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


class PodRanges:
    """The pod ranges of the nodes, and which of them overlap a pool."""

    def __init__(self) -> None:
        """Start without nodes and pools."""
        self._ranges: dict[str, tuple[Range, ...]] = {}
        self._addresses: dict[str, tuple[Address, ...]] = {}
        self._hosts: list[Address] = []  # sorted
        self._overlapping: dict[str, tuple[Range, ...]] = {}
        self._declared: tuple[Range, ...] = ()
        self.barred: tuple[Barred, ...] = ()
        """Those that overlap a pool and are not ignored, by node."""

    def observe(self, key: str, node: Node | None) -> bool:
        """Enter Node *key*; None: it is deleted. Returns whether :attr:`barred` has changed."""
        ranges = _pod_ranges(node) if node else ()
        hosts = tuple(filter(None, map(node.internal_ip, FAMILIES))) if node else ()
        if ranges == self._ranges.get(key, ()) and hosts == self._addresses.get(key, ()):
            return False
        for address in self._addresses.pop(key, ()):
            del self._hosts[bisect_left(self._hosts, address)]
        for address in hosts:
            insort(self._hosts, address)
        self._ranges[key], self._addresses[key] = ranges, hosts
        if node is None:
            del self._ranges[key], self._addresses[key]
        self._select(key)
        return self._update()

    def set_pools(self, pools: Pools) -> bool:
        """Compare with the ranges of *pools* from now on. Returns whether :attr:`barred` has changed."""
        declared = _union(span for pool in pools.known for span in pool.ranges)
        if declared == self._declared:
            return False
        self._declared = declared
        for key in self._ranges:
            self._select(key)
        return self._update()

    def overlapping(self, ranges: tuple[Range, ...]) -> Iterator[Barred]:
        """The pod ranges that overlap one of *ranges*, which are sorted and disjoint, by node. In O(nodes)."""
        for key, found in sorted(self._ranges.items()):
            for span in found:
                if first_overlap(ranges, span) and not self._holds_node(span):
                    yield _barred(key, span)

    def touches_pools(self, node: Node) -> bool:
        """Whether a pod range of *node*, ignored or not, overlaps a pool."""
        return any(first_overlap(self._declared, span) for span in _pod_ranges(node))

    def _select(self, key: str) -> None:
        """Determine which ranges of Node *key* overlap a pool."""
        found = tuple(span for span in self._ranges.get(key, ()) if first_overlap(self._declared, span))
        self._overlapping.pop(key, None)
        if found:
            self._overlapping[key] = found

    def _update(self) -> bool:
        before = self.barred
        self.barred = tuple(
            _barred(key, span)
            for key, found in sorted(self._overlapping.items())
            for span in found
            if not self._holds_node(span)
        )
        return self.barred != before

    def _holds_node(self, span: Range) -> bool:
        """Whether *span* contains the first address of a node."""
        at = bisect_left(self._hosts, Address(span.family, span.first))
        return at < len(self._hosts) and span.holds(self._hosts[at])


def _pod_ranges(node: Node) -> tuple[Range, ...]:
    return tuple(_readable((node.spec.pod_cidrs or ())[:_MAX_POD_RANGES]))


def _barred(node: str, span: Range) -> Barred:
    return Barred(span, f"the pod range {span} of {names.NODE} {node}")


def _readable(texts: Iterable[str]) -> Iterator[Range]:
    return filter(None, map(read_network, texts))


def _union(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """*ranges*, which may overlap, as sorted and disjoint ones."""
    result: list[Range] = []
    for span in sorted(ranges):
        result += subtract((span,), result[-1:])
    return tuple(result)
