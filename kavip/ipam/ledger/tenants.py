"""
Who claims which address, and what follows: who keeps it, who may share it, who stands in the way.
"""

from collections.abc import Collection, Iterator

from kavip.api.address import Address
from kavip.ipam.ledger import claims as rules
from kavip.ipam.ledger.claims import Claim
from kavip.ipam.ledger.sharing import SharingIndex
from kavip.ipam.request import Terms


class Tenants:
    """The claims of Services on addresses; as a container, the addresses that somebody claims."""

    def __init__(self) -> None:
        """None."""
        self._claims: dict[Address, dict[str, Claim]] = {}
        self._holders: dict[Address, tuple[Terms, ...]] = {}  # remembered, of addresses with several claims
        self._sharing = SharingIndex()

    def __contains__(self, address: object) -> bool:
        """Whether somebody claims *address*."""
        return address in self._claims

    def __iter__(self) -> Iterator[Address]:
        """The addresses that somebody claims."""
        return iter(self._claims)

    def put(self, address: Address, key: str, *, was: Claim | None, now: Claim | None) -> None:
        """Service *key* claims *address* as *now*, no longer as *was*."""
        claims = self._claims.setdefault(address, {})
        if was is not None:
            del claims[key]
            self._sharing.remove(address, was.terms)
        if now is not None:
            claims[key] = now
            self._sharing.add(address, now.terms)
        if not claims:
            del self._claims[address]
        self._holders.pop(address, None)

    def of(self, address: Address) -> Collection[Claim]:
        """The claims on *address*, in no order."""
        claims = self._claims.get(address)
        return claims.values() if claims else ()

    def namespaces(self, address: Address) -> set[str]:
        """The namespaces of those who claim *address*."""
        return {claim.terms.namespace for claim in self.of(address)}

    def has_namespace(self, address: Address, namespace: str) -> bool:
        """Whether a Service of *namespace* claims *address*."""
        return any(claim.terms.namespace == namespace for claim in self.of(address))

    def holders(self, address: Address) -> tuple[Terms, ...]:
        """The Services that keep *address*, oldest first; those that lose a contest are left out."""
        found = self._holders.get(address)
        if found is None:
            found = rules.holders(self.of(address))
            if len(found) > 1:
                self._holders[address] = found
        return found

    def claimants(self, address: Address) -> tuple[Terms, ...]:
        """All Services that claim *address*, oldest first."""
        return tuple(sorted((claim.terms for claim in self.of(address)), key=lambda terms: terms.age))

    def keeps(self, address: Address, terms: Terms) -> bool:
        """
        Whether the Service of *terms*, which has *address*, does not lose it to another one.

        Of an edit that is only proposed, older terms are known here: then *terms* counts.
        """
        claims = self._claims.get(address)
        mine = claims.get(terms.key) if claims else None
        if claims is None or (mine is not None and len(claims) == 1):
            return True
        if mine is None or mine.terms != terms:
            proposed = {**claims, terms.key: Claim(terms, standing=True)}
            return terms in rules.holders(proposed.values())
        if self._sharing.is_peaceful(address, terms, claims=len(claims)):
            return mine.standing
        return terms in self.holders(address)

    def rival(self, address: Address, terms: Terms) -> Terms | None:
        """The Service because of which *terms* cannot have *address*; None where no Service stands in its way."""
        claims = self._claims.get(address)
        if claims is None or self._sharing.fits(address, terms, claims=len(claims)):
            return None
        return rules.rival(claims.values(), terms)

    def is_contested(self, address: Address, terms: Terms) -> bool:
        """Whether a Service that *terms* cannot share *address* with has it in status."""
        return rules.rival((claim for claim in self.of(address) if claim.standing), terms) is not None

    def may_dispute(self, address: Address) -> bool:
        """Whether perhaps not all who claim *address* can share it; told without looking at each of them."""
        claims = self.of(address)
        if len(claims) < 2:
            return False
        return not self._sharing.is_peaceful(address, next(iter(claims)).terms, claims=len(claims))

    def shareable(self, terms: Terms) -> Iterator[Address]:
        """The addresses that the sharing key of *terms* has and that may have room for its ports, lowest first."""
        return self._sharing.addresses(terms)
