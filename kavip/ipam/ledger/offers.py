"""
Which address a pool can offer to a request, and what the quota of its namespace leaves.

Questions only: an offer changes nothing, and no question scans a pool or all Services.
"""

from collections.abc import Iterable, Mapping, Sequence

from kavip.api.address import Address
from kavip.ipam.ledger.book import AddressBook
from kavip.ipam.ledger.waiters import Waiter
from kavip.ipam.pool import Pool
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
    def pools_with_free(
        self, request: Request, namespace_labels: Mapping[str, str] | None, family: int
    ) -> Iterable[Pool]:
        """
        The pools that may offer an address of *family* to *request*, which names none; in order, without full ones.

        A pool in which an address cools down for the Service itself comes first: the Service gets the address back.
        """
        pools = self._usage.pools
        if self.may_use_full_pools(request):
            freed = (pools.pool_of(address) for address in self._cooldown.freed_by(request.key))
            own = {pool.name for pool in freed if pool}
            return sorted(pools.eligible(request, namespace_labels), key=lambda pool: pool.name not in own)
        return self._usage.pools_with_free(pools.audiences.of(request, namespace_labels), family)

    def may_use_full_pools(self, request: Request) -> bool:
        """Whether a pool without free addresses may offer *request* one that is shared, reserved or cooling down."""
        terms = request.terms
        if terms.sharing is not None or self._cooldown.freed_by(terms.key):
            return True
        return terms.key in self._usage.pools.privileged

    def offer(self, pool: Pool, family: int, request: Request) -> Address | None:
        """
        The address of *family* that *pool* offers to *request*, regardless of quota; None: none.

        The first of: the address requested by name; one reserved for the Service; the one that it freed last and that
        cools down; the lowest of its sharing key; the lowest free one.
        """
        terms = request.terms
        wanted = request.wanted_of(family)
        if wanted is not None:
            return wanted if self._is_open(wanted, pool, terms) else None
        for address in (*pool.reserved_for(terms.key), *self._cooldown.freed_by(terms.key)):
            if address.family == family and self._is_open(address, pool, terms):
                return address
        if terms.sharing is not None:
            for address in self._claims.shareable(terms):
                if address.family == family and self._is_open(address, pool, terms):
                    return address
        usage = self._usage.get(pool.name)
        return usage.lowest(family) if usage else None

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
        """Whether pool *name* can serve *waiter* now: all its families, those requested by name, or any one."""
        usage, request = self._usage.get(name), waiter.request
        if usage is None:
            return False
        pool = usage.pool
        offers = {family: self.offer(pool, family, request) for family in waiter.families}
        needed = waiter.families if request.require_all else tuple(filter(request.wanted_of, waiter.families))
        for choice in (needed,) if needed else ((family,) for family in waiter.families):
            got = [address for family in choice if (address := offers[family])]
            if len(got) == len(choice) and self.is_within_quota(pool, got, request.namespace):
                return True
        return False
