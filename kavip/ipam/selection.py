"""
How a decision selects the pool and the addresses of a Service.

The same objects give the same answer: the lowest free address of the first pool by priority and name. A Service keeps
what it holds, in the order in status, unless it requests something else, loses the address to an older Service, or no
longer has the family. An address that an administrator's edit has made illegal is *stranded*: it stays until the
Service says ``kavip.io/reassign: "true"``. A new address, the second family of a stranded Service included, comes only
from a pool that admits the Service at that moment. The two addresses of RequireDualStack move together or not at all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal
from kavip.ipam import messages, outcome
from kavip.ipam.eligibility import Audience, in_order
from kavip.ipam.outcome import Allocation
from kavip.ipam.ownership import Ownership
from kavip.ipam.pool import ON_REQUEST, Pool
from kavip.ipam.ranges import count_families
from kavip.names import Reason

_ANOTHER_POOL_HELPS: Final = frozenset(
    {Reason.POOL_SELECTOR_MISMATCH, Reason.POOL_EXHAUSTED, Reason.QUOTA_EXCEEDED, Reason.FAMILY_NOT_AVAILABLE}
)


class Choice(NamedTuple):
    """The families of addresses that a Service takes together: all that are *needed*, and as many *more* as it gets."""

    needed: tuple[int, ...]
    more: tuple[int, ...] = ()


def _choice(needed: Iterable[int], missing: Sequence[int]) -> Choice:
    """*needed*, and the rest of *missing*."""
    families = tuple(needed)
    return Choice(families, tuple((Counter(missing) - Counter(families)).elements()))


class Selection:
    """One decision about the request of *ownership*: keep what can stay, select what is missing, or say why not."""

    __slots__ = ("_audiences", "labels", "ledger", "ownership", "pools", "request")

    def __init__(self, ownership: Ownership) -> None:
        """Decide nothing yet."""
        self.ownership = ownership
        self.request, self.pools, self.ledger, self.labels, *_ = ownership
        self._audiences: list[Audience] | None = None

    def decide(self) -> Allocation | Refusal:
        """Keep what can stay, and select what is missing."""
        chosen = self.chosen_pool()
        if isinstance(chosen, Refusal):
            return self._refuse_choice(chosen)
        stay = self.staying(chosen)
        missing = self.request.lacking(stay)
        if not missing:
            return outcome.assign(self.ownership, stay)
        got = self._select(missing, stay, chosen)
        if isinstance(got, Refusal):
            if stay and self.ownership.is_enough(stay):
                return outcome.assign_enough(self.ownership, stay)  # PreferDualStack: the other family may follow later
            return outcome.refuse(self.ownership, got)
        if len(got) == len(missing):
            return outcome.assign(self.ownership, stay, got)
        if addresses := (*stay, *got):
            if self.ownership.is_enough(addresses):
                return outcome.assign_enough(self.ownership, stay, got)
            if self.accepts(addresses):
                return outcome.assign_part(self.ownership, addresses)
        return outcome.refuse(self.ownership, self._no_address(missing, stay, chosen))

    def finds_all(self) -> bool:
        """Whether there are addresses for all that a Service lacks that has none."""
        chosen = self.chosen_pool()
        if isinstance(chosen, Refusal):
            return False
        missing = self.request.lacking(())
        got = self._select(missing, (), chosen)
        return not isinstance(got, Refusal) and len(got) == len(missing)

    def accepts(self, addresses: tuple[Address, ...]) -> bool:
        """Whether the Service takes *addresses*: enough, or the named ones and in number what it has of each family."""
        if self.ownership.is_enough(addresses):
            return True
        if self.request.require_all or not set(self.request.wanted).issubset(addresses):
            return False
        has = Counter(address.family for address in self.ownership.first_of(self.ownership.keepable()))
        return has <= Counter(address.family for address in addresses)

    # --- what stays -----------------------------------------------------------------------------------------------
    def staying(self, chosen: Pool | None) -> tuple[Address, ...]:
        """The addresses of the Service that agree with its request; the last ones go if there are too many."""
        if not self.ownership.held:
            return ()
        found = tuple(each for each in self.ownership.keepable() if self.may_stay(each, chosen))
        return self.ownership.first_of(found, room_for=self.request.wanted)

    def may_stay(self, address: Address, chosen: Pool | None) -> bool:
        """Whether *address*, which the Service keeps, agrees with its request, which chooses the pool *chosen*."""
        wanted = self.request.wanted_of(address.family)
        if self.request.reassign and not self.ownership.fits(address):
            return False
        if address in wanted or len(wanted) == self.request.number:
            return address in wanted
        if chosen is None:
            return True
        pool = self.pools.pool_of(address)
        return pool is None or pool is chosen

    def pool_of_stay(self, stay: tuple[Address, ...]) -> Pool | None:
        """The pool of the addresses that *stay*: all others come from the same pool."""
        return next((pool for each in stay if (pool := self.pools.pool_of(each))), None) if stay else None

    def _refuse_choice(self, refusal: Refusal) -> Allocation | Refusal:
        """Refuse the choice of a pool or an address; a Service that holds what it chose is stranded instead."""
        keepable, wanted = self.ownership.keepable(), set(self.request.wanted)
        stranded = [each for each in keepable if not self.ownership.fits(each)]
        if stranded and (wanted.issubset(stranded) if wanted else refusal.reason is Reason.POOL_NOT_FOUND):
            return outcome.assign_enough(self.ownership, self.ownership.first_of(keepable))
        return outcome.refuse(self.ownership, refusal)

    @property
    def audiences(self) -> list[Audience]:
        """Those whose pools serve the request without being named."""
        if self._audiences is None:
            self._audiences = self.pools.audiences.of(self.request, self.labels)
        return self._audiences

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
        """
        Addresses of the *missing* families, all from one pool: that of *stay*, the chosen one, or any.

        Only a part of them if there are no more, unless the Service requires all. A Refusal: the pool is closed.
        """
        home = self.pool_of_stay(stay)
        if stay and home is None and (chosen is None or self.request.require_all):
            return self._no_pool_beside(stay)
        only = home or chosen
        if only is not None:
            if why := self.ownership.why_closed(only):
                return self._with_alternatives(self._not_served(only, why), stay)
            if self.request.wanted and (refusal := self.refuse_requested(only, missing, beside=stay)):
                return self._with_alternatives(refusal, stay)
        for choice in self.choices(missing, stay):
            for family in dict.fromkeys(choice.needed or choice.more):
                pools = (only,) if only else self.ledger.offers.pools_with_free(self.request, self.audiences, family)
                for pool in pools:
                    if got := self.offer(pool, choice, stay):
                        return got
                if choice.needed:
                    break
        return ()

    def _no_address(self, missing: Sequence[int], stay: tuple[Address, ...], chosen: Pool | None) -> Refusal:
        """No pool that serves the Service has addresses of the *missing* families."""
        only = self.pool_of_stay(stay) or chosen
        tried = (only,) if only else in_order(self.audiences)
        if not tried:
            return messages.no_pool(self.request, self.pools, self.labels)
        has_others = only is None and len(tried) < len(self.pools.in_force)
        others = tuple(islice(self._others_with_free(missing, tried), SHOWN)) if has_others else ()
        refusal = messages.no_address(self.request, missing, pools=tried, ledger=self.ledger, others=others)
        return self._with_alternatives(refusal, stay)

    def choices(self, missing: Sequence[int], stay: tuple[Address, ...]) -> list[Choice]:
        """
        What the Service accepts, in order: all *missing* addresses; all of one family; all named ones and a part.

        RequireDualStack accepts only the first.
        """
        if self.request.require_all or len(missing) == 1:
            return [Choice(tuple(missing))]
        result, families = [Choice(tuple(missing))], tuple(dict.fromkeys(missing))
        named = tuple(address.family for address in self.request.wanted if address not in stay)
        if not named and not stay and len(families) > 1:
            result += [_choice([family for family in missing if family == each], missing) for each in families]
        if named or self.request.number > 1:
            result.append(_choice(named, missing))
        return result

    def offer(self, pool: Pool, choice: Choice, stay: tuple[Address, ...] = ()) -> tuple[Address, ...] | None:
        """The addresses of *choice* from *pool* besides *stay*, within the quota of the namespace; None: none."""
        if len(choice.needed) == 1 and not choice.more:  # most decisions
            return self._offer_one(pool, choice.needed[0], stay)
        offers, request = self.ledger.offers, self.request
        needed, more = count_families(choice.needed), count_families(choice.more)
        got: list[Address] = []
        further: list[Address] = []
        for family in {**more, **needed}:
            number = needed.get(family, 0)
            if not offers.may_have(pool, family, request, number):
                return None
            found = offers.offer(pool, family, request, number + more.get(family, 0), beside=stay)
            if len(found) < number:
                return None
            got += found[:number]
            further += found[number:]
        if not offers.is_within_quota(pool, got, request.namespace):
            return None
        for address in further:
            if offers.is_within_quota(pool, (*got, address), request.namespace):
                got.append(address)
        return tuple(sorted(got, key=lambda address: request.families.index(address.family))) or None

    def _offer_one(self, pool: Pool, family: int, stay: tuple[Address, ...]) -> tuple[Address, ...] | None:
        """:meth:`offer` for a single address."""
        offers, request = self.ledger.offers, self.request
        got = offers.offer(pool, family, request, beside=stay)
        return got if got and offers.is_within_quota(pool, got, request.namespace) else None

    def alternatives(self) -> Iterator[Pool]:
        """The pools that would serve the Service if it named them, whatever it requests today; in order."""
        free = self.request._replace(pool="", wanted=(), legacy=None)
        selection = Selection(self.ownership._replace(request=free))
        choices = selection.choices(free.lacking(()), ())
        for pool in islice(self.pools.in_force, messages.MAX_POOLS):
            if not pool.mismatch(free, self.labels) and any(selection.offer(pool, each) for each in choices):
                yield pool

    def _others_with_free(self, families: Sequence[int], tried: Sequence[Pool]) -> Iterator[tuple[Pool, str]]:
        """The pools, except *tried*, that have free addresses and do not serve the Service, each with the cause."""
        known = {pool.name for pool in tried}
        enough = all if self.request.require_all else any
        for pool in islice(self.pools.in_force, messages.MAX_POOLS):
            if pool.name not in known:
                usage = self.ledger.usage(pool.name)
                needs = count_families(families).items()
                if enough(family in usage and usage[family].available >= number for family, number in needs):
                    yield pool, pool.mismatch(self.request, self.labels) or ON_REQUEST

    # --- refusals -------------------------------------------------------------------------------------------------
    def refuse_requested(
        self, pool: Pool, families: Sequence[int], *, beside: tuple[Address, ...] = ()
    ) -> Refusal | None:
        """Why the Service cannot have an address of *families* that it requests by name from *pool*, *beside* these."""
        request = self.request
        requested = [each for each in request.wanted if each.family in families and each not in beside]
        for address in requested:
            if why := pool.why_barred(address, request.key):
                return messages.barred(address, why, request)
            if owner := self.ledger.owner(address):
                return messages.owned(address, owner, request)
            if holder := self.ledger.claims.rival(address, request.terms):
                return messages.in_use(address, holder, request)
            left = self.ledger.offers.quota_left(pool, request.namespace)
            if left == 0 and self.ledger.offers.costs_quota(address, request.namespace):
                return messages.quota_exceeded(pool, request, self.ledger)
        for address in requested:
            entry = self.ledger.cooldown.blocking(address, request.key)
            if entry is not None:
                return messages.cooling_down(address, entry, request)
        return None

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
        what, all_of_them = ("the other family", "both") if self.request.number == 1 else ("more addresses", "all")
        message = (
            f"{messages.join_addresses(stay)} is in no pool that {what} could come from; "
            f'set {names.REASSIGN_ANNOTATION} to "true" to move {all_of_them}'
        )
        return Refusal(Reason.FAMILY_NOT_AVAILABLE, message, "spec.ipFamilyPolicy")
