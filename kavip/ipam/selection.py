"""
How it is decided which addresses a Service has.

The same objects give the same answer: the lowest free address of the first pool by priority and name. What a Service
holds it keeps, in the order in which it stands, unless it asks for something else, loses it to an older Service, or no
longer has the family. An address that an administrator's edit has made illegal is *stranded*: it stays until the
Service says ``kavip.io/reassign: "true"``.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal
from kavip.ipam import messages
from kavip.ipam.ownership import Allocation, Tenure
from kavip.ipam.pool import Pool
from kavip.names import Reason

_ANOTHER_POOL: Final = frozenset(
    {Reason.POOL_SELECTOR_MISMATCH, Reason.POOL_EXHAUSTED, Reason.QUOTA_EXCEEDED, Reason.FAMILY_NOT_AVAILABLE}
)


class Case(Tenure):
    """One decision: keep what can stay, get what is missing, or say why not."""

    __slots__ = ()

    def decide(self) -> Allocation | Refusal:
        """Keep what can stay, get what is missing."""
        named = self.named_pool()
        if isinstance(named, Refusal):
            return self.without_or_stranded(named)
        stay = self.staying(named)
        missing = self.missing(stay)
        if not missing:
            return self.with_addresses(stay)
        got = self.get(missing, stay, named)
        if not isinstance(got, Refusal):
            return self.with_addresses(stay, got)
        if stay and not self.request.require_all and not self.wished(missing):
            return self.with_addresses(stay)  # PreferDualStack: the rest comes later
        return self.without(got)

    def staying(self, named: Pool | None) -> tuple[Address, ...]:
        """Those of its addresses that agree with what it asks for."""
        return tuple(each for each in self.keepable() if self.may_stay(each, named))

    def home(self, stay: tuple[Address, ...]) -> Pool | None:
        """The pool of what may *stay*: the other family comes from there, too."""
        return next((pool for each in stay if (pool := self.pools.pool_of(each))), None)

    def without_or_stranded(self, refusal: Refusal) -> Allocation | Refusal:
        """The choice of a pool or an address fails; a Service that holds what it chose is stranded, not refused."""
        stranded = [each for each in self.keepable() if not self.fits(each)]
        asked = set(self.request.wanted)
        if stranded and (asked.issubset(stranded) if asked else refusal.reason is Reason.POOL_NOT_FOUND):
            return self.with_addresses(self.keepable())
        return self.without(refusal)

    def may_stay(self, address: Address, named: Pool | None) -> bool:
        """Whether *address*, which is the Service's, agrees with what it asks for."""
        wanted = self.request.wanted_of(address.family)
        if self.request.reassign and not self.fits(address):
            return False
        if wanted is not None:
            return address == wanted
        place = self.pools.pool_of(address)
        return named is None or place is None or place is named

    def named_pool(self) -> Pool | Refusal | None:
        """The pool that the Service chose, by name or by address; None where it leaves the choice to kavip."""
        request = self.request
        named = self.pools.get(request.pool) if request.pool else None
        if request.pool and named is None:
            return messages.pool_not_found(request, self.pools)
        for address in request.wanted:
            place = self.pools.pool_of(address)
            if place is None:
                return messages.not_in_pool(address, request, self.pools)
            if named is not None and place is not named:
                if request.pool:
                    return messages.not_in_named_pool(address, place, request)
                return messages.two_pools(request.wanted[0], address, (named, place), request)
            named = place
        return named

    def get(
        self, missing: Sequence[int], stay: tuple[Address, ...], named: Pool | None
    ) -> tuple[Address, ...] | Refusal:
        """Addresses of the *missing* families, all from one pool: that of what stays, the named one, or any."""
        place = self.home(stay) or named
        if place is not None:
            if why := place.mismatch(self.request, self.labels):
                return self.hinted(self.unserved(place, why), stay)
            if refusal := self.wishes_refused(place, missing):
                return self.hinted(refusal, stay)
        elif stay:
            return self.unserved_beside(stay)
        for families in (missing, *self.less(missing, stay)):
            for pool in (place,) if place else self.ledger.with_room(self.request, self.labels, families[0]):
                if got := self.serve(pool, families):
                    return got
        pools = (place,) if place else self.pools.eligible(self.request, self.labels)
        if not pools:
            return messages.no_pool(self.request, self.pools, self.labels)
        idle = tuple(islice(self.idle(missing, but=pools), SHOWN)) if place is None else ()
        return self.hinted(messages.no_room(self.request, missing, pools=pools, ledger=self.ledger, idle=idle), stay)

    def less(self, missing: Sequence[int], stay: tuple[Address, ...]) -> list[tuple[int, ...]]:
        """What PreferDualStack makes do with, in order: what is asked for by name, else one family."""
        if self.request.require_all or len(missing) == 1:
            return []
        wished = self.wished(missing)
        return [wished] if wished else [] if stay else [(family,) for family in missing]

    def wished(self, families: Iterable[int]) -> tuple[int, ...]:
        """Those of *families* of which an address is asked for by name."""
        return tuple(family for family in families if self.request.wanted_of(family))

    def hinted(self, refusal: Refusal, stay: tuple[Address, ...]) -> Refusal:
        """*refusal*, with the pools that would serve where naming another would help."""
        is_named = self.request.pool or self.request.wanted
        if stay or not is_named or refusal.reason not in _ANOTHER_POOL:
            return refusal
        return messages.elsewhere(refusal, islice(self.elsewhere(), SHOWN))

    def elsewhere(self) -> Iterator[Pool]:
        """The pools that would give the Service addresses if it named them, whatever it asks for today; in order."""
        free = self.request._replace(pool="", wanted=(), legacy=None)
        case = self._replace(request=free)
        choices = [free.families, *([] if free.require_all else [(family,) for family in free.families])]
        for pool in islice(self.pools.in_force, messages.LOOKED_AT):
            if not pool.mismatch(free, self.labels) and any(case.serve(pool, families) for families in choices):
                yield pool

    def idle(self, families: Sequence[int], *, but: Sequence[Pool]) -> Iterator[tuple[Pool, str]]:
        """The pools, *but* those, that have room and yet give the Service nothing unasked, and why; in order."""
        tried = {pool.name for pool in but}
        enough = all if self.request.require_all else any
        for pool in islice(self.pools.in_force, messages.LOOKED_AT):
            if pool.name not in tried:
                usage = self.ledger.usage(pool.name)
                if enough(family in usage and usage[family].available for family in families):
                    yield pool, pool.mismatch(self.request, self.labels) or messages.BY_NAME

    def unserved(self, place: Pool, why: str) -> Refusal:
        """The pool that it must come from does not serve the Service."""
        if self.request.pool or self.request.wanted:
            return messages.mismatch(place, why, self.request)
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {place.name} {why}; name another pool")

    def unserved_beside(self, stay: tuple[Address, ...]) -> Refusal:
        """The other family of an address outside every pool: there is no pool that it could come from."""
        message = (
            f"{messages.addressed(stay)} is in no pool that the other family could come from; "
            f'set {names.REASSIGN_ANNOTATION} to "true" to move both'
        )
        return Refusal(Reason.FAMILY_NOT_AVAILABLE, message, "spec.ipFamilyPolicy")

    def wishes_refused(self, pool: Pool, families: Sequence[int]) -> Refusal | None:
        """Why an address that is asked for by name is not to be had."""
        request = self.request
        for address in request.wanted:
            if address.family in families:
                if why := pool.bar(address, request.key):
                    return messages.barred(address, why, request)
                if owner := self.ledger.owner(address):
                    return messages.owned(address, owner, request)
                if holder := self.ledger.rival(address, request.terms):
                    return messages.in_use(address, holder, request)
                left = self.ledger.quota_left(pool, request.namespace)
                if left == 0 and self.ledger.costs_quota(address, request.namespace):
                    return messages.quota(pool, request, self.ledger)
        return self.at_rest(families)

    def at_rest(self, families: Sequence[int]) -> Refusal | None:
        """Why the Service waits for an address that it may have later: it cools down, for somebody else."""
        for address in self.request.wanted:
            rest = self.ledger.rests.keeping(address, self.request.key)
            if address.family in families and rest is not None:
                return messages.at_rest(address, rest, self.request)
        return None

    def serve(self, pool: Pool, families: Sequence[int]) -> tuple[Address, ...] | None:
        """An address of each of *families* from *pool*, within the namespace's quota."""
        request, got = self.request, []
        for family in families:
            address = self.ledger.offer(pool, family, request)
            if address is None:
                return None
            got.append(address)
        return tuple(got) if self.ledger.is_within_quota(pool, got, request.namespace) else None
