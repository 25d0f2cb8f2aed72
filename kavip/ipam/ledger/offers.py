"""
Which address a pool can offer to a request, and what the quota of its namespace leaves.

Questions only: an offer changes nothing, and no question scans a pool or all Services.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from kavip.api.address import Address
from kavip.ipam.eligibility import Audience, in_order
from kavip.ipam.ledger.book import AddressBook
from kavip.ipam.ledger.waiters import Waiter
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import count_families
from kavip.ipam.request import Request, Terms


class Offers:
    """What the pools of *book* can offer."""

    def __init__(self, book: AddressBook) -> None:
        """Only read *book*."""
        self._claims, self._owners = book.claims, book.owners
        self._cooldown, self._usage = book.cooldown, book.usage

    # --- quota ----------------------------------------------------------------------------------------------------
    def quota_left(self, pool: Pool, namespace: str) -> int | None:
        """How many more addresses of *pool* the Services of *namespace* may hold; None: no limit."""
        usage = self._usage.get(pool.name)
        return usage.quota_left(namespace) if usage else pool.max_per_namespace

    def quota_held(self, pool: Pool, namespace: str) -> int:
        """How many addresses of *pool* the Services of *namespace* hold."""
        usage = self._usage.get(pool.name)
        return usage.quota_held(namespace) if usage else 0

    def costs_quota(self, address: Address, namespace: str) -> bool:
        """Whether *address* would be one more that *namespace* holds."""
        return not self._claims.has_namespace(address, namespace)

    def is_within_quota(self, pool: Pool, addresses: Sequence[Address], namespace: str) -> bool:
        """Whether the Services of *namespace* may hold *addresses* of *pool* besides those that they hold."""
        left = self.quota_left(pool, namespace)
        if left is None or left >= len(addresses):
            return True
        return sum(self.costs_quota(address, namespace) for address in addresses) <= left

    # --- addresses ------------------------------------------------------------------------------------------------
    def pools_with_free(self, request: Request, audiences: Sequence[Audience], family: int) -> Iterable[Pool]:
        """
        The pools that may offer an address of *family* to *request*, which names none; in order, without full ones.

        *audiences*: those whose pools serve it. A pool in which an address cools down for the Service itself comes
        first: the Service gets the address back.
        """
        pools = self._usage.pools
        if self.may_use_full_pools(request):
            freed = (pools.pool_of(address) for address in self._cooldown.freed_by(request.key))
            own = {pool.name for pool in freed if pool}
            return sorted(in_order(audiences), key=lambda pool: pool.name not in own)
        return self._usage.pools_with_free(audiences, family)

    def may_use_full_pools(self, request: Request) -> bool:
        """Whether a pool without free addresses may offer *request* one that is shared, reserved or cooling down."""
        terms = request.terms
        if terms.sharing is not None or self._cooldown.freed_by(terms.key):
            return True
        return terms.key in self._usage.pools.privileged

    def may_have(self, pool: Pool, family: int, request: Request, number: int) -> bool:
        """
        Whether :meth:`offer` may find *number* addresses; False if they certainly do not exist.

        An address requested by name may be one of the Service's own external IPs, which are not free.
        """
        usage = self._usage.get(pool.name)
        if usage is None or usage.available(family) >= number:
            return True
        return bool(request.wanted_of(family)) or self.may_use_full_pools(request)

    def offer(
        self, pool: Pool, family: int, request: Request, number: int = 1, *, beside: Collection[Address] = ()
    ) -> tuple[Address, ...]:
        """
        The addresses of *family* that *pool* offers to *request*, which has those *beside*; regardless of quota.

        At most *number*, the first of: those requested by name, all or nothing; those reserved for the Service; those
        that it freed and that cool down, the last first; those of its sharing key, lowest first; the lowest free ones.
        """
        usage, may_use_others = self._usage.get(pool.name), self.may_use_full_pools(request)
        if usage is not None and not request.wanted and not may_use_others:
            return tuple(usage.lowest(family, number))
        named = [address for address in request.wanted_of(family) if address not in beside]
        if not all(self._is_open(address, pool, request.terms) for address in named):
            return ()
        found = dict.fromkeys(named)
        for address in self._preferred(pool, request.terms) if may_use_others and len(found) < number else ():
            if address.family == family and address not in beside and self._is_open(address, pool, request.terms):
                found[address] = None
                if len(found) == number:
                    break
        if len(found) < number and usage is not None:
            found |= dict.fromkeys(usage.lowest(family, number))
        return tuple(islice(found, number))

    def _preferred(self, pool: Pool, terms: Terms) -> Iterator[Address]:
        """The addresses that are not free, but may be open to a Service, in the order of preference."""
        yield from pool.reserved_for(terms.key)
        yield from self._cooldown.freed_by(terms.key)
        if terms.sharing is not None:
            yield from self._claims.shareable(terms)

    def _is_open(self, address: Address, pool: Pool, terms: Terms) -> bool:
        found = self._usage.pools.pool_of(address)
        return (
            found is not None
            and found.name == pool.name
            and address not in self._owners
            and not pool.why_barred(address, terms.key)
            and self._claims.rival(address, terms) is None
            and self._cooldown.blocking(address, terms.key) is None
        )

    def can_serve(self, name: str, waiter: Waiter) -> bool:
        """Whether pool *name* can serve *waiter* now: all that it lacks, all requested by name, or any one address."""
        usage, request = self._usage.get(name), waiter.request
        if usage is None:
            return False
        pool = usage.pool
        lacks = count_families(waiter.families)
        offers = [self.offer(pool, family, request, number, beside=waiter.stay) for family, number in lacks.items()]
        got = [address for each in offers for address in each]
        named = [address for address in request.wanted if address not in waiter.stay]
        if request.require_all:
            return len(got) == len(waiter.families) and self.is_within_quota(pool, got, request.namespace)
        if named:
            return set(named).issubset(got) and self.is_within_quota(pool, named, request.namespace)
        return any(self.is_within_quota(pool, (address,), request.namespace) for address in got)
