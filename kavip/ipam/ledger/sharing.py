"""
Which Services may share an address: the rule, and an index that answers without visiting every holder.
"""

from collections import Counter
from collections.abc import Iterator

from kavip import names
from kavip.api.address import Address
from kavip.ipam.request import Port, SharingTerms, Terms


def can_share(one: Terms, other: Terms) -> bool:
    """Whether two Services may hold one address together."""
    return one.sharing is not None and one.sharing == other.sharing and one.ports.isdisjoint(other.ports)


def why_not_shared(terms: Terms, other: Terms) -> str:
    """Why *terms* cannot share an address with *other*; completes "because ..."."""
    mine, theirs = terms.sharing, other.sharing
    if mine is None or theirs is None:
        return f"Service {(terms if mine is None else other).key} has no {names.SHARING_KEY_ANNOTATION}"
    if mine.namespace != theirs.namespace:
        return f"Service {other.key} is in another namespace"
    if mine.key != theirs.key:
        return f"Service {other.key} has another {names.SHARING_KEY_ANNOTATION}"
    if mine.group != theirs.group:
        return f"Service {other.key} belongs to another KeepalivedGroup"
    if (mine.backend is None) != (theirs.backend is None):
        return "only one of the two has externalTrafficPolicy: Local"
    if mine.backend != theirs.backend:
        return "with externalTrafficPolicy: Local both need the same selector"
    clash = ", ".join(f"{protocol}/{port}" for protocol, port in sorted(terms.ports & other.ports))
    return f"both use {clash}"


class _SharedAddresses:
    """
    The addresses of one :class:`.SharingTerms`.

    Counts the claims on each address, the claims by port, and the claims that use a port a second time.
    """

    __slots__ = ("addresses", "clashes", "ports")

    def __init__(self) -> None:
        self.addresses: Counter[Address] = Counter()
        self.ports: dict[Port, Counter[Address]] = {}
        self.clashes: Counter[Address] = Counter()


class SharingIndex:
    """Counts of all claims with a sharing key."""

    def __init__(self) -> None:
        """Start empty."""
        self._shared: dict[SharingTerms, _SharedAddresses] = {}

    def add(self, address: Address, terms: Terms) -> None:
        """Count the claim of *terms* on *address*."""
        if terms.sharing is None:
            return
        shared = self._shared.setdefault(terms.sharing, _SharedAddresses())
        shared.addresses[address] += 1
        for port in terms.ports:
            counts = shared.ports.setdefault(port, Counter())
            if address in counts:
                shared.clashes[address] += 1
            counts[address] += 1

    def remove(self, address: Address, terms: Terms) -> None:
        """Take back what :meth:`add` counted."""
        if terms.sharing is None:
            return
        shared = self._shared[terms.sharing]
        for port in terms.ports:
            counts = shared.ports[port]
            _decrement(counts, address)
            if address in counts:
                _decrement(shared.clashes, address)
            if not counts:
                del shared.ports[port]
        _decrement(shared.addresses, address)
        if not shared.addresses:
            del self._shared[terms.sharing]

    def is_without_clash(self, address: Address, terms: Terms, *, claims: int) -> bool:
        """Whether all *claims* on *address* have the sharing key of *terms*, and no two use the same port."""
        shared = self._find(terms)
        return shared is not None and shared.addresses[address] == claims and address not in shared.clashes

    def fits(self, address: Address, terms: Terms, *, claims: int) -> bool:
        """
        Whether all *claims* on *address* have the sharing key of *terms*, and none uses one of its ports.

        Sufficient, but not necessary, if *terms* has a claim on the address itself.
        """
        shared = self._find(terms)
        if shared is None or shared.addresses[address] != claims:
            return False
        return not any(address in shared.ports.get(port, ()) for port in terms.ports)

    def candidates(self, terms: Terms) -> Iterator[Address]:
        """The addresses of the sharing key of *terms* on which its ports may be free, lowest first."""
        shared = self._find(terms)
        if shared is None:
            return
        used = [shared.ports[port] for port in terms.ports if port in shared.ports]
        if any(len(counts) == len(shared.addresses) for counts in used):
            return  # one port is used on every address: the usual case of many Services with the same port
        for address in sorted(shared.addresses):
            if not any(address in counts for counts in used):
                yield address

    def _find(self, terms: Terms) -> _SharedAddresses | None:
        return self._shared.get(terms.sharing) if terms.sharing else None


def _decrement(counts: Counter[Address], address: Address) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]
