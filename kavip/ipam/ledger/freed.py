"""
Freed addresses, each with the Service that freed it, and which of them gives way if there are too many.

One tenant may free any number of addresses, so the oldest of all would let a tenant end the cool-downs of all others.
"""

from collections import defaultdict
from collections.abc import Iterator

from kavip.api.address import Address


class FreedAddresses:
    """Addresses by the Service that freed them, oldest first. Each change costs O(1)."""

    def __init__(self) -> None:
        """Start empty."""
        self._services: dict[Address, str] = {}
        self._by_namespace: defaultdict[str, dict[Address, int]] = defaultdict(dict)
        self._next = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._services)

    def __iter__(self) -> Iterator[Address]:
        """The addresses, oldest first."""
        return iter(self._services)

    def items(self) -> list[tuple[Address, str]]:
        """The addresses with their Services (``ns/name``), oldest first."""
        return list(self._services.items())

    def add(self, address: Address, service: str) -> None:
        """Enter *address* as the newest one."""
        self.discard(address)
        self._services[address] = service
        self._by_namespace[_namespace(service)][address] = self._next
        self._next += 1

    def discard(self, address: Address) -> None:
        """Remove *address*, if it is there."""
        service = self._services.pop(address, None)
        if service is not None:
            namespace = _namespace(service)
            del self._by_namespace[namespace][address]
            if not self._by_namespace[namespace]:
                del self._by_namespace[namespace]

    def surplus(self, most: int) -> Address | None:
        """
        If there are more than *most*: the oldest address of the namespace that has most; None otherwise.

        Of several such namespaces it is the one that has the oldest address. In O(namespaces).
        """
        if len(self) <= most:
            return None
        crowded = min(self._by_namespace.values(), key=lambda each: (-len(each), next(iter(each.values()))))
        return next(iter(crowded))


def _namespace(service: str) -> str:
    return service.partition("/")[0]
