"""
The ledger: every address that is held, by whom, and what is free.

What is entered stands in :mod:`.book`. A decision reads the ledger and never changes it; no question scans a pool
or all Services.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kavip.api.address import Address
from kavip.ipam.ledger.book import Register
from kavip.ipam.ledger.usage import Usage
from kavip.ipam.ledger.waiters import Waiter
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import find
from kavip.ipam.request import Request, Terms


class Ledger(Register):
    """Holders, counters and waiters, and what may be given to whom."""

    # --- questions about holders ----------------------------------------------------------------------------------
    def held(self, key: str) -> tuple[Address, ...] | None:
        """The addresses of Service *key*, its latest write included; None where the ledger does not know it."""
        holding = self._holdings.get(key)
        return holding.held if holding else None

    def is_content(self, key: str) -> bool:
        """Whether Service *key* is seen with an address, and keeps each that it has, among them those asked for."""
        holding = self._holdings.get(key)
        if holding is None or not holding.current or not set(holding.wanted).issubset(holding.current):
            return False
        return all(self.belongs_to(address, holding.terms) for address in holding.current)

    def is_expecting(self, key: str) -> bool:
        """Whether a write for Service *key* has not come back yet."""
        holding = self._holdings.get(key)
        return holding is not None and bool(holding.expected)

    def owner(self, address: Address) -> str:
        """The node or group whose own *address* is, or the API server; or ""."""
        return min(self._owners.get(address, ()), default="")

    def disputing(self) -> set[str]:
        """The Services that claim an address which another one claims too, or which is somebody's own."""
        return {claim.terms.key for address in self._disputed for claim in self._tenants.of(address)}

    def holders(self, address: Address) -> tuple[Terms, ...]:
        """The Services that keep *address*, oldest first; those that lose a contest are left out."""
        return self._tenants.holders(address)

    def claimants(self, address: Address) -> tuple[Terms, ...]:
        """All Services that have *address* in status or externalIPs, oldest first."""
        return self._tenants.claimants(address)

    def wishes(self, address: Address) -> tuple[Terms, ...]:
        """The Services that ask for *address* by name and do not hold it (yet), oldest first."""
        asking = (self._holdings[key] for key in self._wishes.get(address, ()))
        return _oldest_first(holding.terms for holding in asking if address not in holding.held)

    def belongs_to(self, address: Address, terms: Terms) -> bool:
        """
        Whether the Service of *terms*, which has *address*, keeps it: nobody older has it, and nobody owns it.

        Of an edit that is only proposed, the ledger knows older terms: then *terms* counts.
        """
        return address not in self._owners and self._tenants.keeps(address, terms)

    def rival(self, address: Address, terms: Terms) -> Terms | None:
        """The Service because of which *terms* cannot have *address*; None where no Service stands in its way."""
        return self._tenants.rival(address, terms)

    def assigned(self, pool: Pool) -> Iterator[tuple[Address, Terms, bool]]:
        """Each claim on an address of *pool*, with whether it stands in status; sorted. In O(holders)."""
        for address in sorted(each for each in self._tenants if find(pool.ranges, each) is not None):
            for claim in sorted(self._tenants.of(address), key=lambda claim: claim.terms.age):
                yield address, claim.terms, claim.standing

    def leaving(self, pool: Pool, namespace: str) -> int:
        """How many addresses of *pool* are held by Services of *namespace* in deletion; in O(these)."""
        gone = (self._holdings[key] for key in self._leaving)
        claims = {address for holding in gone if holding.terms.namespace == namespace for address in holding.claims()}
        return sum(find(pool.ranges, address) is not None for address in claims)

    def placed(self, request: Request) -> Request:
        """*request*, of a Service that kavip manages, on the terms that the ledger knows."""
        terms = request.terms.within(self._default_group)
        return request if terms is request.terms else request._replace(terms=terms)

    def ungiven(self) -> set[Address]:
        """What a write was to give and did not, since the last call: pools may have been told that it is held."""
        ungiven, self._ungiven = self._ungiven, set()
        return ungiven

    # --- questions about pools ------------------------------------------------------------------------------------
    def usage(self, pool: str) -> dict[int, Usage]:
        """Family -> total, assigned, available, cooling of the pool *pool*; a family that it lacks is left out."""
        shelf = self._stock.get(pool)
        return shelf.usage() if shelf else {}

    def quota_left(self, pool: Pool, namespace: str) -> int | None:
        """How many more addresses of *pool* the Services of *namespace* may hold; None: any number."""
        shelf = self._stock.get(pool.name)
        return shelf.quota_left(namespace) if shelf else pool.max_per_namespace

    def quota_held(self, pool: Pool, namespace: str) -> int:
        """How many addresses of *pool* the Services of *namespace* hold."""
        shelf = self._stock.get(pool.name)
        return shelf.quota_held(namespace) if shelf else 0

    def costs_quota(self, address: Address, namespace: str) -> bool:
        """Whether *address* would be one more that *namespace* holds."""
        return not self._tenants.has_namespace(address, namespace)

    def is_within_quota(self, pool: Pool, addresses: Sequence[Address], namespace: str) -> bool:
        """Whether the Services of *namespace* may hold *addresses* of *pool* besides what they hold."""
        left = self.quota_left(pool, namespace)
        if left is None or left >= len(addresses):
            return True
        return sum(self.costs_quota(address, namespace) for address in addresses) <= left

    def with_room(self, request: Request, namespace_labels: Mapping[str, str] | None, family: int) -> Iterable[Pool]:
        """
        The pools that may give *request* an address of *family* unasked, in order: none that is full.

        First of all those in which an address cools down that the Service itself has freed: it comes back.
        """
        pools = self._stock.pools
        if self._has_own(request):
            freed = (pools.pool_of(address) for address in self.rests.freed_by(request.key))
            own = {pool.name for pool in freed if pool}
            return sorted(pools.eligible(request, namespace_labels), key=lambda pool: pool.name not in own)
        return self._stock.with_room(pools.audiences.of(request, namespace_labels), family)

    def _has_own(self, request: Request) -> bool:
        """Whether a pool that is full may yet have something for *request*."""
        terms = request.terms
        if terms.sharing is not None or self.rests.freed_by(terms.key):
            return True
        return terms.key in self._stock.pools.privileged

    def offer(self, pool: Pool, family: int, request: Request) -> Address | None:
        """
        The address of *family* that *pool* has for *request*, quota apart; None: none.

        The one that is asked for by name; else one reserved for the Service; else the last that it freed and that rests
        still; else the lowest that its sharing key has; else the lowest free one.
        """
        terms = request.terms
        wanted = request.wanted_of(family)
        if wanted is not None:
            return wanted if self._is_open(wanted, pool, terms) else None
        for address in (*pool.reserved_for(terms.key), *self.rests.freed_by(terms.key)):
            if address.family == family and self._is_open(address, pool, terms):
                return address
        if terms.sharing is not None:
            for address in self._tenants.shareable(terms):
                if address.family == family and self._is_open(address, pool, terms):
                    return address
        shelf = self._stock.get(pool.name)
        return shelf.lowest(family) if shelf else None

    def _is_open(self, address: Address, pool: Pool, terms: Terms) -> bool:
        place = self._stock.pools.pool_of(address)
        return (
            place is not None
            and place.name == pool.name
            and address not in self._owners
            and not pool.bar(address, terms.key)
            and self.rival(address, terms) is None
            and self.rests.keeping(address, terms.key) is None
        )

    # --- waiting --------------------------------------------------------------------------------------------------
    def wait(self, request: Request, pools: Iterable[str], *, reason: str = "") -> None:
        """
        *request* waits for one of *pools* (names, existing or not), the first of which is tried first.

        *reason*: why it has not what it asks for, "" where it has enough. No pools: nothing but an edit of it helps.
        """
        names, request = tuple(pools), self.placed(request)
        if names or reason:
            stays = tuple(each for each in self.held(request.key) or () if self._stays(each, request, names))
            is_plain = not request.wanted and not self._has_own(request)
            self._waiting.put(Waiter.of(request, names, stays, reason=reason, is_plain=is_plain))
        else:
            self._waiting.drop(request.key)

    def _stays(self, address: Address, request: Request, pools: Collection[str]) -> bool:
        """Whether *request* keeps *address* beside what it gets of *pools*: both families come from one of these."""
        place = self._stock.pools.pool_of(address)
        if place is None or place.name not in pools:
            return False
        return not (request.reassign and place.bar(address, request.key))

    def serve(self, key: str) -> None:
        """Service *key* waits for nothing."""
        self._waiting.drop(key)

    def answer(self, key: str) -> None:
        """Service *key*, perhaps woken, has been looked at and waits for what it waited for."""
        self._waiting.answer(key)

    def lacking(self) -> Mapping[tuple[str, str], int]:
        """How many Services have not what they ask for, by the pool that they wait for first ("": none) and reason."""
        return self._waiting.tally

    def waiters(self) -> tuple[str, ...]:
        """The Services that wait, oldest first: for changes that concern them all, such as an edited pool."""
        return tuple(waiter.request.key for waiter in self._waiting)

    def woken(self) -> tuple[str, ...]:
        """
        The Services to look at again for what has happened since the last call, oldest first.

        Those that have lost a contest for an address, those that ask for one by name which others keep now, and of the
        waiters that are helped the oldest of each pool: the next follows once that one was looked at (:mod:`.waiters`).
        """
        contested, self._contested = self._contested, set()
        losers = {
            terms
            for address in contested
            for terms, is_standing in self._tenants.of(address)
            if is_standing and not self.belongs_to(address, terms)
        }
        passed, self._passed = self._passed, set()
        asking = {terms for address in passed for terms in self.wishes(address)}
        told = dict.fromkeys(terms.key for terms in (*_oldest_first(losers), *_oldest_first(asking)))
        return tuple(dict.fromkeys((*told, *self._waiting.call(self._can_serve))))

    def _can_serve(self, name: str, waiter: Waiter) -> bool:
        """Whether pool *name* has what *waiter* needs now: all families, those asked for by name, or just one."""
        shelf, request = self._stock.get(name), waiter.request
        if shelf is None:
            return False
        pool = shelf.pool
        offers = {family: self.offer(pool, family, request) for family in waiter.families}
        needed = waiter.families if request.require_all else tuple(filter(request.wanted_of, waiter.families))
        for choice in (needed,) if needed else ((family,) for family in waiter.families):
            got = [address for family in choice if (address := offers[family])]
            if len(got) == len(choice) and self.is_within_quota(pool, got, request.namespace):
                return True
        return False


def _oldest_first(terms: Iterable[Terms]) -> tuple[Terms, ...]:
    return tuple(sorted(terms, key=lambda each: each.age))
