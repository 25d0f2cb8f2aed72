"""
The addresses that each sharing key has, by port: whether one more Service fits is seen without looking at the others.
"""

from collections import Counter
from collections.abc import Iterator

from kavip.api.address import Address
from kavip.ipam.request import Port, Sharing, Terms


class _Book:
    """The addresses of one :class:`Sharing`: how many claims each has, which use a port, and how often two the same."""

    __slots__ = ("addresses", "clashes", "ports")

    def __init__(self) -> None:
        self.addresses: Counter[Address] = Counter()
        self.ports: dict[Port, Counter[Address]] = {}
        self.clashes: Counter[Address] = Counter()


class SharingIndex:
    """Claims with a sharing key, counted."""

    def __init__(self) -> None:
        """Empty."""
        self._books: dict[Sharing, _Book] = {}

    def add(self, address: Address, terms: Terms) -> None:
        """Count the claim of *terms* on *address*."""
        if terms.sharing is None:
            return
        book = self._books.setdefault(terms.sharing, _Book())
        book.addresses[address] += 1
        for port in terms.ports:
            counts = book.ports.setdefault(port, Counter())
            if address in counts:
                book.clashes[address] += 1
            counts[address] += 1

    def remove(self, address: Address, terms: Terms) -> None:
        """Take back what :meth:`add` counted."""
        if terms.sharing is None:
            return
        book = self._books[terms.sharing]
        for port in terms.ports:
            counts = book.ports[port]
            _decrement(counts, address)
            if address in counts:
                _decrement(book.clashes, address)
            if not counts:
                del book.ports[port]
        _decrement(book.addresses, address)
        if not book.addresses:
            del self._books[terms.sharing]

    def is_peaceful(self, address: Address, terms: Terms, *, claims: int) -> bool:
        """Whether all *claims* of *address* are of the same key as *terms*, and no two use one port."""
        book = self._books.get(terms.sharing) if terms.sharing else None
        return book is not None and book.addresses[address] == claims and address not in book.clashes

    def fits(self, address: Address, terms: Terms, *, claims: int) -> bool:
        """
        Whether all *claims* of *address* are of the same key as *terms*, and none uses one of its ports.

        Sufficient, not necessary, where *terms* has a claim on the address itself.
        """
        book = self._books.get(terms.sharing) if terms.sharing else None
        if book is None or book.addresses[address] != claims:
            return False
        return not any(address in book.ports.get(port, ()) for port in terms.ports)

    def addresses(self, terms: Terms) -> Iterator[Address]:
        """The addresses that the sharing key of *terms* has and that may have room for its ports, lowest first."""
        book = self._books.get(terms.sharing) if terms.sharing else None
        if book is None:
            return
        used = [book.ports[port] for port in terms.ports if port in book.ports]
        if any(len(counts) == len(book.addresses) for counts in used):
            return  # a port that is taken everywhere: the usual case of many Services with one port
        for address in sorted(book.addresses):
            if not any(address in counts for counts in used):
                yield address


def _decrement(counts: Counter[Address], address: Address) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]
