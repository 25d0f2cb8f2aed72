"""
Which Services claim an address, and which of them keep it.

Any number of Services can claim one address. Among those that cannot share it, the oldest keeps it. A claim is
*in status* if the address stands in ``status.loadBalancer``, or is about to; otherwise it stands in
``spec.externalIPs``. External IPs never take an address from its holder; they only prevent kavip from assigning it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kavip.api.address import Address
from kavip.ipam.ledger.sharing import SharingIndex, can_share
from kavip.ipam.request import Port, Terms


class AddressClaim(NamedTuple):
    """
    The claim of one Service on one address.

    *is_served*: kavip announces the address for the Service. It does not for one that it does not manage.
    """

    terms: Terms
    in_status: bool
    is_served: bool = True


def holders(claims: Collection[AddressClaim]) -> tuple[Terms, ...]:
    """
    The Services that keep the address: the oldest, and each that can share it with all older ones that keep it.

    A function of the set of claims: the order of events does not matter.
    """
    by_age = sorted((claim.terms for claim in claims if claim.in_status), key=lambda terms: terms.age)
    if not by_age:
        return ()
    oldest, kept = by_age[0], [by_age[0]]
    ports: set[Port] = set(oldest.ports)
    for terms in by_age[1:]:
        if oldest.sharing is not None and terms.sharing == oldest.sharing and ports.isdisjoint(terms.ports):
            kept.append(terms)
            ports |= terms.ports
    return tuple(kept)


def rival(claims: Iterable[AddressClaim], terms: Terms) -> Terms | None:
    """The oldest other Service that cannot share the address with *terms*."""
    others = (claim.terms for claim in claims if claim.terms.key != terms.key)
    return min((other for other in others if not can_share(other, terms)), key=lambda other: other.age, default=None)


class AddressIndex(dict[Address, set[str]]):
    """Names by address; no set is empty. A subclass of dict because lookups are frequent."""

    def move(self, name: str, old: Iterable[Address], new: Iterable[Address]) -> None:
        """Remove *name* from *old*, then add it to *new*."""
        for address in old:
            found = self[address]
            found.discard(name)
            if not found:
                del self[address]
        for address in new:
            self.setdefault(address, set()).add(name)


class Owners(AddressIndex):
    """Addresses that nodes, groups and the API server have themselves, by their names; no Service may have them."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._owned: dict[str, frozenset[Address]] = {}

    def replace(self, owner: str, addresses: Iterable[Address]) -> tuple[frozenset[Address], frozenset[Address]]:
        """Set the addresses of *owner*; returns those that it has no longer, and those that are new."""
        before, wanted = self._owned.pop(owner, frozenset()), frozenset(addresses)
        if wanted:
            self._owned[owner] = wanted
        gone, new = before - wanted, wanted - before
        self.move(owner, gone, new)
        return gone, new


class Claims:
    """The claims of all Services; as a container, the addresses that are claimed."""

    def __init__(self) -> None:
        """Start empty."""
        self._claims: dict[Address, dict[str, AddressClaim]] = {}
        self._holders: dict[Address, tuple[Terms, ...]] = {}  # a cache, for addresses with several claims
        self._sharing = SharingIndex()
        self._unserved: Counter[Address] = Counter()  # claims for which kavip does not announce the address

    def __contains__(self, address: object) -> bool:
        """Whether any Service claims *address*."""
        return address in self._claims

    def __iter__(self) -> Iterator[Address]:
        """The addresses that are claimed."""
        return iter(self._claims)

    def put(self, address: Address, key: str, *, was: AddressClaim | None, now: AddressClaim | None) -> int:
        """Replace the claim *was* of Service *key* on *address* by *now*; returns how many claims there are."""
        claims = self._claims.setdefault(address, {})
        if was is not None:
            del claims[key]
            self._sharing.remove(address, was.terms)
        if now is not None:
            claims[key] = now
            self._sharing.add(address, now.terms)
        if not claims:
            del self._claims[address]
        if (change := _is_unserved(now) - _is_unserved(was)) != 0:
            self._unserved[address] += change
            if not self._unserved[address]:
                del self._unserved[address]
        self._holders.pop(address, None)
        return len(claims)

    def is_served(self, address: Address) -> bool:
        """Whether kavip announces *address* for any Service."""
        return len(self._claims.get(address, ())) > self._unserved.get(address, 0)

    def of(self, address: Address) -> Collection[AddressClaim]:
        """The claims on *address*, in no order."""
        claims = self._claims.get(address)
        return claims.values() if claims else ()

    def namespaces(self, address: Address) -> set[str]:
        """The namespaces of the Services that claim *address*."""
        return {claim.terms.namespace for claim in self.of(address)}

    def has_namespace(self, address: Address, namespace: str) -> bool:
        """Whether a Service of *namespace* claims *address*."""
        return any(claim.terms.namespace == namespace for claim in self.of(address))

    def holders(self, address: Address) -> tuple[Terms, ...]:
        """The Services that keep *address*, oldest first, without those that lose it to an older one."""
        found = self._holders.get(address)
        if found is None:
            found = holders(self.of(address))
            if len(found) > 1:
                self._holders[address] = found
        return found

    def claimants(self, address: Address) -> tuple[Terms, ...]:
        """The Services that have *address* in status or externalIPs, oldest first."""
        return tuple(sorted((claim.terms for claim in self.of(address)), key=lambda terms: terms.age))

    def keeps(self, address: Address, terms: Terms) -> bool:
        """
        Whether the Service of *terms*, which has *address*, does not lose it to an older one.

        For an edit that is only proposed, *terms* counts instead of what is known here.
        """
        claims = self._claims.get(address)
        mine = claims.get(terms.key) if claims else None
        if claims is None or (mine is not None and len(claims) == 1):
            return True
        if mine is None or mine.terms != terms:
            proposed = {**claims, terms.key: AddressClaim(terms, in_status=True)}
            return terms in holders(proposed.values())
        if self._sharing.is_without_clash(address, terms, claims=len(claims)):
            return mine.in_status
        return terms in self.holders(address)

    def rival(self, address: Address, terms: Terms) -> Terms | None:
        """The Service that prevents *terms* from having *address*; None if there is none."""
        claims = self._claims.get(address)
        if claims is None or self._sharing.fits(address, terms, claims=len(claims)):
            return None
        return rival(claims.values(), terms)

    def is_contested(self, address: Address, terms: Terms) -> bool:
        """Whether a Service that cannot share *address* with *terms* has it in status."""
        return rival((claim for claim in self.of(address) if claim.in_status), terms) is not None

    def may_clash(self, address: Address) -> bool:
        """Whether some Services that claim *address* may be unable to share it; does not compare all of them."""
        claims = self.of(address)
        if len(claims) < 2:
            return False
        return not self._sharing.is_without_clash(address, next(iter(claims)).terms, claims=len(claims))

    def is_shared(self, address: Address) -> bool:
        """Whether all Services that claim *address* share it, and so keep it."""
        return len(self.holders(address)) == len(self.of(address)) > 1

    def shareable(self, terms: Terms) -> Iterator[Address]:
        """The addresses of the sharing key of *terms* on which its ports may be free, lowest first."""
        return self._sharing.candidates(terms)


def _is_unserved(claim: AddressClaim | None) -> bool:
    return claim is not None and not claim.is_served
