"""
How a decision selects the pool and the addresses of a Service.

The same objects give the same answer: the lowest free address of the first pool by priority and name. A Service keeps
what it holds, in the order in status, unless it requests something else, loses the address to an older Service, or no
longer has the family. An address that an administrator's edit has made illegal is *stranded*: it stays until the
Service says ``kavip.io/reassign: "true"``. A new address, the second family of a stranded Service included, comes only
from a pool that admits the Service at that moment. The two addresses of RequireDualStack move together or not at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal
from kavip.ipam import messages, outcome
from kavip.ipam.outcome import Allocation
from kavip.ipam.ownership import Ownership
from kavip.ipam.pool import ON_REQUEST, Pool
from kavip.names import Reason

_ANOTHER_POOL_HELPS: Final = frozenset(
    {Reason.POOL_SELECTOR_MISMATCH, Reason.POOL_EXHAUSTED, Reason.QUOTA_EXCEEDED, Reason.FAMILY_NOT_AVAILABLE}
)


class Selection:
    """One decision about the request of *ownership*: keep what can stay, select what is missing, or say why not."""

    __slots__ = ("labels", "ledger", "ownership", "pools", "request")

    def __init__(self, ownership: Ownership) -> None:
        """Decide nothing yet."""
        self.ownership = ownership
        self.request, self.pools, self.ledger, self.labels, _ = ownership

    def decide(self) -> Allocation | Refusal:
        """Keep what can stay, and select what is missing."""
        chosen = self.chosen_pool()
        if isinstance(chosen, Refusal):
            return self._refuse_choice(chosen)
        stay = self.staying(chosen)
        missing = self.ownership.missing(stay)
        if not missing:
            return outcome.assign(self.ownership, stay)
        got = self._select(missing, stay, chosen)
        if not isinstance(got, Refusal):
            return outcome.assign(self.ownership, stay, got)
        if stay and not self.request.require_all and not self._requested(missing):
            return outcome.assign(self.ownership, stay)  # PreferDualStack: the other family may follow later
        return outcome.refuse(self.ownership, got)

    # --- what stays -----------------------------------------------------------------------------------------------
    def staying(self, chosen: Pool | None) -> tuple[Address, ...]:
        """The addresses of the Service that agree with its request."""
        return tuple(each for each in self.ownership.keepable() if self.may_stay(each, chosen))

    def may_stay(self, address: Address, chosen: Pool | None) -> bool:
        """Whether *address*, which the Service keeps, agrees with its request, which chooses the pool *chosen*."""
        wanted = self.request.wanted_of(address.family)
        if self.request.reassign and not self.ownership.fits(address):
            return False
        if wanted is not None:
            return address == wanted
        pool = self.pools.pool_of(address)
        return chosen is None or pool is None or pool is chosen

    def pool_of_stay(self, stay: tuple[Address, ...]) -> Pool | None:
        """The pool of the addresses that *stay*: the other family comes from the same pool."""
        return next((pool for each in stay if (pool := self.pools.pool_of(each))), None)

    def _refuse_choice(self, refusal: Refusal) -> Allocation | Refusal:
        """Refuse the choice of a pool or an address; a Service that holds what it chose is stranded instead."""
        keepable, wanted = self.ownership.keepable(), set(self.request.wanted)
        stranded = [each for each in keepable if not self.ownership.fits(each)]
        if stranded and (wanted.issubset(stranded) if wanted else refusal.reason is Reason.POOL_NOT_FOUND):
            return outcome.assign(self.ownership, keepable)
        return outcome.refuse(self.ownership, refusal)

    # --- which pool -----------------------------------------------------------------------------------------------
    def chosen_pool(self) -> Pool | Refusal | None:
        """The pool that the Service chooses by name or by address; None if it leaves the choice to kavip."""
        request = self.request
        chosen = self.pools.get(request.pool) if request.pool else None
        if request.pool and chosen is None:
            return messages.pool_not_found(request, self.pools)
        for address in request.wanted:
            pool = self.pools.pool_of(address)
            if pool is None:
                return messages.not_in_pool(address, request, self.pools)
            if chosen is not None and pool is not chosen:
                if request.pool:
                    return messages.not_in_named_pool(address, pool, request)
                return messages.two_pools(request.wanted[0], address, (chosen, pool), request)
            chosen = pool
        return chosen

    def _select(
        self, missing: Sequence[int], stay: tuple[Address, ...], chosen: Pool | None
    ) -> tuple[Address, ...] | Refusal:
        """Addresses of the *missing* families, all from one pool: that of *stay*, the chosen one, or any."""
        home = self.pool_of_stay(stay)
        if stay and home is None and (chosen is None or self.request.require_all):
            return self._no_pool_beside(stay)
        only = home or chosen
        if only is not None:
            if why := self.ownership.why_closed(only):
                return self._with_alternatives(self._not_served(only, why), stay)
            if refusal := self.refuse_requested(only, missing):
                return self._with_alternatives(refusal, stay)
        for families in (missing, *self.smaller_choices(missing, stay)):
            pools = (only,) if only else self.ledger.offers.pools_with_free(self.request, self.labels, families[0])
            for pool in pools:
                if got := self.offer(pool, families):
                    return got
        tried = (only,) if only else self.pools.eligible(self.request, self.labels)
        if not tried:
            return messages.no_pool(self.request, self.pools, self.labels)
        others = tuple(islice(self._others_with_free(missing, tried), SHOWN)) if only is None else ()
        refusal = messages.no_address(self.request, missing, pools=tried, ledger=self.ledger, others=others)
        return self._with_alternatives(refusal, stay)

    def smaller_choices(self, missing: Sequence[int], stay: tuple[Address, ...]) -> list[tuple[int, ...]]:
        """What PreferDualStack accepts instead of all *missing* families, in order: requested ones, else any one."""
        if self.request.require_all or len(missing) == 1:
            return []
        requested = self._requested(missing)
        return [requested] if requested else [] if stay else [(family,) for family in missing]

    def offer(self, pool: Pool, families: Sequence[int]) -> tuple[Address, ...] | None:
        """An address of each of *families* from *pool*, within the quota of the namespace."""
        request, got = self.request, []
        for family in families:
            address = self.ledger.offers.offer(pool, family, request)
            if address is None:
                return None
            got.append(address)
        return tuple(got) if self.ledger.offers.is_within_quota(pool, got, request.namespace) else None

    def alternatives(self) -> Iterator[Pool]:
        """The pools that would serve the Service if it named them, whatever it requests today; in order."""
        free = self.request._replace(pool="", wanted=(), legacy=None)
        selection = Selection(self.ownership._replace(request=free))
        choices = [free.families, *([] if free.require_all else [(family,) for family in free.families])]
        for pool in islice(self.pools.in_force, messages.MAX_POOLS):
            if not pool.mismatch(free, self.labels) and any(selection.offer(pool, families) for families in choices):
                yield pool

    def _others_with_free(self, families: Sequence[int], tried: Sequence[Pool]) -> Iterator[tuple[Pool, str]]:
        """The pools, except *tried*, that have free addresses and do not serve the Service, each with the cause."""
        known = {pool.name for pool in tried}
        enough = all if self.request.require_all else any
        for pool in islice(self.pools.in_force, messages.MAX_POOLS):
            if pool.name not in known:
                usage = self.ledger.usage(pool.name)
                if enough(family in usage and usage[family].available for family in families):
                    yield pool, pool.mismatch(self.request, self.labels) or ON_REQUEST

    # --- refusals -------------------------------------------------------------------------------------------------
    def refuse_requested(self, pool: Pool, families: Sequence[int]) -> Refusal | None:
        """Why the Service cannot have an address of *families* that it requests by name from *pool*."""
        request = self.request
        for address in request.wanted:
            if address.family in families:
                if why := pool.why_barred(address, request.key):
                    return messages.barred(address, why, request)
                if owner := self.ledger.owner(address):
                    return messages.owned(address, owner, request)
                if holder := self.ledger.claims.rival(address, request.terms):
                    return messages.in_use(address, holder, request)
                left = self.ledger.offers.quota_left(pool, request.namespace)
                if left == 0 and self.ledger.offers.costs_quota(address, request.namespace):
                    return messages.quota_exceeded(pool, request, self.ledger)
        for address in request.wanted:
            entry = self.ledger.cooldown.blocking(address, request.key)
            if address.family in families and entry is not None:
                return messages.cooling_down(address, entry, request)
        return None

    def _requested(self, families: Iterable[int]) -> tuple[int, ...]:
        """Those of *families* for which the Service requests an address by name."""
        return tuple(family for family in families if self.request.wanted_of(family))

    def _with_alternatives(self, refusal: Refusal, stay: tuple[Address, ...]) -> Refusal:
        """*refusal* with the pools that would serve, if naming another pool helps."""
        is_named = self.request.pool or self.request.wanted
        if stay or not is_named or refusal.reason not in _ANOTHER_POOL_HELPS:
            return refusal
        return messages.with_alternatives(refusal, islice(self.alternatives(), SHOWN))

    def _not_served(self, pool: Pool, why: str) -> Refusal:
        """The pool that the address must come from does not serve the Service."""
        if self.request.pool or self.request.wanted:
            return messages.pool_does_not_serve(pool, why, self.request)
        remedy = "" if why == ON_REQUEST else "; name another pool"
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {pool.name} {why}{remedy}")

    def _no_pool_beside(self, stay: tuple[Address, ...]) -> Refusal:
        """The Service holds an address outside every pool, so there is no pool for the other family."""
        message = (
            f"{messages.join_addresses(stay)} is in no pool that the other family could come from; "
            f'set {names.REASSIGN_ANNOTATION} to "true" to move both'
        )
        return Refusal(Reason.FAMILY_NOT_AVAILABLE, message, "spec.ipFamilyPolicy")
