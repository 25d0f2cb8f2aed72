"""
Names by address: who asks for it, and whose own it is.
"""

from collections.abc import Iterable

from kavip.api.address import Address


class Names(dict[Address, set[str]]):
    """Address -> names, none of them empty; a dictionary, for it is asked all the time."""

    def move(self, name: str, old: Iterable[Address], new: Iterable[Address]) -> None:
        """*name* stands no longer with *old*, but with *new*."""
        for address in old:
            names = self[address]
            names.discard(name)
            if not names:
                del self[address]
        for address in new:
            self.setdefault(address, set()).add(name)


class Owners(Names):
    """The addresses that nodes, groups and the API server have themselves: no Service's."""

    def __init__(self) -> None:
        """Nobody has any."""
        super().__init__()
        self._owned: dict[str, frozenset[Address]] = {}

    def replace(self, owner: str, addresses: Iterable[Address]) -> tuple[frozenset[Address], frozenset[Address]]:
        """*owner* has *addresses* now, and no others; those that it has no longer, and those that it has now first."""
        before, wanted = self._owned.pop(owner, frozenset()), frozenset(addresses)
        if wanted:
            self._owned[owner] = wanted
        gone, come = before - wanted, wanted - before
        self.move(owner, gone, come)
        return gone, come
