"""
How it is decided which addresses a Service has.

The same objects give the same answer: the lowest free address of the first pool by priority and name. What a Service
holds it keeps, in the order in which it stands, unless it asks for something else, loses it to an older Service, or no
longer has the family. An address that an administrator's edit has made illegal is *stranded*: it stays until the
Service says ``kavip.io/reassign: "true"``.

**Whose status is it?** kavip writes ``AddressAssigned`` together with every address, and names the address in it. So an
entry in status is another controller's where that condition is missing or says ``ForeignStatus`` or ``LeftToPlatform``,
and where it lies outside every pool and the condition does not name it. Such an entry is *adopted* where
the Service could have got it from a pool: it stays, and is kavip's from then on. Else the whole status is left alone,
with ``ForeignStatus``: nothing is added, nothing taken away, until ``kavip.io/reassign`` gives kavip a free hand. A
host name in status is never kavip's. While a write of ours is on its way, the status is ours.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal, listed
from kavip.ipam import reasons
from kavip.ipam.addresses import FAMILY_NAMES
from kavip.ipam.ledger import Ledger
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.request import KEEPS, Request
from kavip.names import Reason

_GIVEN: Final = frozenset({Reason.ASSIGNED, Reason.STRANDED})
_ANOTHER_POOL: Final = frozenset(
    {Reason.POOL_SELECTOR_MISMATCH, Reason.POOL_EXHAUSTED, Reason.QUOTA_EXCEEDED, Reason.FAMILY_NOT_AVAILABLE}
)
_NOT_OURS: Final = frozenset({"", Reason.FOREIGN_STATUS, Reason.LEFT_TO_PLATFORM})


class Allocation(NamedTuple):
    """
    The addresses that the Service has from now on, and why.

    *kept*: they are those that it holds already, so that nothing is to be written but perhaps the condition. *refusal*:
    what it asks for besides and does not get; it is then the reason and part of the message. *note*: what has changed
    and why, for an Event; the message describes the state alone, so that it stays as it is when decided again.
    *is_driven*: somebody else has an address that it had.
    """

    addresses: tuple[Address, ...]
    pools: tuple[str, ...]
    kept: bool
    reason: Reason
    message: str
    refusal: Refusal | None = None
    note: str = ""
    is_driven: bool = False

    @property
    def is_assigned(self) -> bool:
        """Whether ``AddressAssigned`` is True."""
        return self.reason in _GIVEN or self.reason is Reason.FOREIGN_STATUS


class Case(NamedTuple):
    """One decision: everything that it looks at. The ledger must be configured with the pools."""

    request: Request
    pools: Pools
    ledger: Ledger
    labels: Mapping[str, str] | None
    held: tuple[Address, ...]

    @classmethod
    def of(cls, request: Request, pools: Pools, ledger: Ledger, labels: Mapping[str, str] | None) -> "Case":
        """What *request* holds is what the ledger knows, its latest write included."""
        held = ledger.held(request.key)
        return cls(ledger.placed(request), pools, ledger, labels, request.current if held is None else held)

    # --- what it holds --------------------------------------------------------------------------------------------
    def is_foreign(self) -> bool:
        """Whether another controller wrote the status (see the head of this module)."""
        request = self.request
        if request.alien:
            return True
        if not self.held or self.ledger.is_expecting(request.key):
            return False
        return not all(
            self.is_given(address) or (address.family in request.families and self.fits(address))
            for address in self.held
        )

    def is_given(self, address: Address) -> bool:
        """Whether *address*, which stands in status, is from kavip, and nobody has written it over what kavip gave."""
        told = self.request.told
        if told in _NOT_OURS or self.pools.pool_of(address):
            return told not in _NOT_OURS
        if told in _GIVEN:
            return address in (self.request.spoken_of() or (address,))
        return address in self.request.kept_by_words()

    def fits(self, address: Address) -> bool:
        """Whether the Service could get *address* from its pool today, were it free."""
        return not self.flaw(address)

    def flaw(self, address: Address) -> str:
        """Why the Service could not get *address* today, were it free; "" where it could."""
        pool = self.pools.pool_of(address)
        if pool is None:
            return "is in no pool"
        if flaw := pool.bar(address, self.request.key):
            return flaw
        if not pool.auto_assign and not self.chooses(pool):
            return f"is in pool {pool.name}, which has autoAssign: false and is not named"
        mismatch = pool.mismatch(self.request, self.labels)
        return f"is in pool {pool.name}, which {mismatch}" if mismatch else ""

    def chooses(self, pool: Pool) -> bool:
        """Whether the Service names *pool*, or an address in it: that counts as naming the pool."""
        return self.request.pool == pool.name or any(self.pools.pool_of(each) is pool for each in self.request.wanted)

    def keepable(self) -> tuple[Address, ...]:
        """What it holds, has the family for, and loses to nobody."""
        if not self.held:
            return ()
        families, terms = self.request.families, self.request.terms
        return tuple(each for each in self.held if each.family in families and self.ledger.belongs_to(each, terms))

    # --- outcomes -------------------------------------------------------------------------------------------------
    def foreign(self) -> Allocation:
        """The status stays as another controller wrote it."""
        what = reasons.addressed(self.held) or "the host name in status"
        message = (
            f"{what}: written by another controller and left alone{self.why_foreign()}; "
            f'set {names.REASSIGN_ANNOTATION} to "true" to get an address from kavip'
        )
        return Allocation(self.held, self.names_of(self.held), True, Reason.FOREIGN_STATUS, message)

    def why_foreign(self) -> str:
        """Why kavip does not take over what stands in status, where that is for an address."""
        for address in self.held:
            if flaw := self.flaw(address):
                return f", for {address} {flaw}"
            if address.family not in self.request.families:
                return f", for the Service has no {FAMILY_NAMES[address.family]}"
        return ""

    def with_addresses(self, stay: tuple[Address, ...], got: tuple[Address, ...] = ()) -> Allocation:
        """The Service has what may *stay* and what it has *got*: as much as it asked for."""
        addresses = (*stay, *got)
        flaws = [f"{address} {flaw}" for address in addresses if (flaw := self.flaw(address))]
        pools = self.names_of(addresses)
        kept = addresses == self.held
        note, is_driven = self.change(addresses)
        if flaws:
            message = f"keeps {reasons.addressed(addresses)}, although {listed(flaws)}"
            if not self.request.reassign:
                message += f'; set {names.REASSIGN_ANNOTATION} to "true" to move to a legal address'
            return Allocation(addresses, pools, kept, Reason.STRANDED, message, None, note, is_driven)
        message = f"{reasons.addressed(addresses)} from pool {listed(pools)}"
        if lacks := self.missing(addresses):
            message += f"; no {FAMILY_NAMES[lacks[0]]} address yet: {self.why_not_more(addresses)}"
        return Allocation(addresses, pools, kept, Reason.ASSIGNED, message, None, note, is_driven)

    def why_not_more(self, addresses: Sequence[Address]) -> str:
        """Why the pool of *addresses*, which the Service has from now on, does not give it another."""
        pool, namespace = next(filter(None, map(self.pools.pool_of, addresses))), self.request.namespace
        left = self.ledger.quota_left(pool, namespace)
        if left is not None and left <= sum(self.ledger.costs_quota(each, namespace) for each in addresses):
            return f"maxPerNamespace of pool {pool.name} leaves namespace {namespace} no more"
        return f"pool {pool.name} has none to give"

    def change(self, addresses: tuple[Address, ...]) -> tuple[str, bool]:
        """What it had before it has *addresses*, "" where that is the same or nothing; whether others have it now."""
        if not self.held or addresses == self.held:
            return "", False
        gone = [each for each in self.held if each not in addresses]
        losses = [loss for each in gone if (loss := self.loss(each))]
        return "; ".join([f"was {reasons.addressed(self.held)}", *losses[:SHOWN]]), bool(losses)

    def loss(self, address: Address) -> str:
        """Who has *address*, which the Service had, with more right to it; "" where nobody has."""
        if owner := self.ledger.owner(address):
            return f"{address} is {owner}'s own"
        if self.ledger.belongs_to(address, self.request.terms):
            return ""
        return f"{address} is {self.ledger.rival(address, self.request.terms)}'s, which is older"

    def without(self, refusal: Refusal) -> Allocation | Refusal:
        """*refusal* stands; what the Service holds, it keeps."""
        keep = self.keepable()
        if not keep:
            return refusal
        kept = self.with_addresses(keep)
        message = f"{refusal.message}{KEEPS}{reasons.addressed(keep)}"
        if kept.reason is Reason.STRANDED:  # stays what it is: the status must not look like another controller's
            return kept._replace(message=f"{kept.message}; {refusal.message}", refusal=refusal)
        return kept._replace(reason=refusal.reason, message=message, refusal=refusal)

    def names_of(self, addresses: Iterable[Address]) -> tuple[str, ...]:
        """The pools of *addresses*, each once."""
        return tuple(dict.fromkeys(pool.name for each in addresses if (pool := self.pools.pool_of(each))))

    # --- the decision ---------------------------------------------------------------------------------------------
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

    def missing(self, stay: tuple[Address, ...]) -> list[int]:
        """The families of which it needs an address besides what may *stay*."""
        has = {address.family for address in stay}
        return [family for family in self.request.families if family not in has]

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
            return reasons.pool_not_found(request, self.pools)
        for address in request.wanted:
            place = self.pools.pool_of(address)
            if place is None:
                return reasons.not_in_pool(address, request, self.pools)
            if named is not None and place is not named:
                if request.pool:
                    return reasons.not_in_named_pool(address, place, request)
                return reasons.two_pools(request.wanted[0], address, (named, place), request)
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
            return reasons.no_pool(self.request, self.pools, self.labels)
        idle = tuple(islice(self.idle(missing, but=pools), SHOWN)) if place is None else ()
        return self.hinted(reasons.no_room(self.request, missing, pools=pools, ledger=self.ledger, idle=idle), stay)

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
        return reasons.elsewhere(refusal, islice(self.elsewhere(), SHOWN))

    def elsewhere(self) -> Iterator[Pool]:
        """The pools that would give the Service addresses if it named them, whatever it asks for today; in order."""
        free = self.request._replace(pool="", wanted=(), legacy=None)
        case = self._replace(request=free)
        choices = [free.families, *([] if free.require_all else [(family,) for family in free.families])]
        for pool in islice(self.pools.in_force, reasons.LOOKED_AT):
            if not pool.mismatch(free, self.labels) and any(case.serve(pool, families) for families in choices):
                yield pool

    def idle(self, families: Sequence[int], *, but: Sequence[Pool]) -> Iterator[tuple[Pool, str]]:
        """The pools, *but* those, that have room and yet give the Service nothing unasked, and why; in order."""
        tried = {pool.name for pool in but}
        enough = all if self.request.require_all else any
        for pool in islice(self.pools.in_force, reasons.LOOKED_AT):
            if pool.name not in tried:
                usage = self.ledger.usage(pool.name)
                if enough(family in usage and usage[family].available for family in families):
                    yield pool, pool.mismatch(self.request, self.labels) or reasons.BY_NAME

    def unserved(self, place: Pool, why: str) -> Refusal:
        """The pool that it must come from does not serve the Service."""
        if self.request.pool or self.request.wanted:
            return reasons.mismatch(place, why, self.request)
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {place.name} {why}; name another pool")

    def unserved_beside(self, stay: tuple[Address, ...]) -> Refusal:
        """The other family of an address outside every pool: there is no pool that it could come from."""
        message = (
            f"{reasons.addressed(stay)} is in no pool that the other family could come from; "
            f'set {names.REASSIGN_ANNOTATION} to "true" to move both'
        )
        return Refusal(Reason.FAMILY_NOT_AVAILABLE, message, "spec.ipFamilyPolicy")

    def wishes_refused(self, pool: Pool, families: Sequence[int]) -> Refusal | None:
        """Why an address that is asked for by name is not to be had."""
        request = self.request
        for address in request.wanted:
            if address.family in families:
                if why := pool.bar(address, request.key):
                    return reasons.barred(address, why, request)
                if owner := self.ledger.owner(address):
                    return reasons.owned(address, owner, request)
                if holder := self.ledger.rival(address, request.terms):
                    return reasons.in_use(address, holder, request)
                left = self.ledger.quota_left(pool, request.namespace)
                if left == 0 and self.ledger.costs_quota(address, request.namespace):
                    return reasons.quota(pool, request, self.ledger)
        return self.at_rest(families)

    def at_rest(self, families: Sequence[int]) -> Refusal | None:
        """Why the Service waits for an address that it may have later: it cools down, for somebody else."""
        for address in self.request.wanted:
            rest = self.ledger.rests.keeping(address, self.request.key)
            if address.family in families and rest is not None:
                return reasons.at_rest(address, rest, self.request)
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
