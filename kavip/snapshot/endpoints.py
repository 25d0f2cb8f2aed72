"""
The EndpointSlices of each Service: on which nodes it answers, and which addresses the API server has.
"""

from collections import defaultdict
from collections.abc import Mapping

from kavip.api.address import Address
from kavip.api.slice import EndpointSlice


class EndpointIndex:
    """*slices*, which their owner changes, by Service."""

    def __init__(self, slices: Mapping[str, EndpointSlice]) -> None:
        """Start empty."""
        self._slices = slices
        self._slices_of: defaultdict[str, set[str]] = defaultdict(set)

    def observe(self, key: str, before: EndpointSlice | None, after: EndpointSlice | None) -> None:
        """The slice *key* has changed; None: it did not exist, or is deleted."""
        if before is not None:
            self._slices_of[before.service].discard(key)
            if not self._slices_of[before.service]:
                del self._slices_of[before.service]
        if after is not None:
            self._slices_of[after.service].add(key)

    def addresses_of(self, service: str) -> frozenset[Address]:
        """The addresses of all endpoints of *service*."""
        return frozenset[Address]().union(*(each.addresses for each in self._of(service)))

    def nodes_of(self, service: str) -> frozenset[str]:
        """
        The nodes on which kube-proxy answers for *service*.

        Nodes of ready endpoints; if there are none, nodes of endpoints that terminate and still serve.
        """
        slices = self._of(service)
        ready = frozenset[str]().union(*(each.ready_nodes for each in slices))
        return ready or frozenset[str]().union(*(each.draining_nodes for each in slices))

    def _of(self, service: str) -> list[EndpointSlice]:
        return [self._slices[key] for key in self._slices_of.get(service, ())]
