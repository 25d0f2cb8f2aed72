"""
Addresses at rest: freed a while ago, and for that while nobody's but the Service's that freed them (cool-down).

A rest begins when the last holder of an address lets go of it: its Service is gone, is no longer kavip's, or has
another address. It ends at its time, which whoever has a clock tells (:meth:`Rests.expire`), or with the cool-down of
the pool. While somebody claims the address it is merely hidden: the claim may be a write that fails.

Who leads knows best: it begins rests (:meth:`Rests.lead`, :meth:`Rests.cool`), writes them into the status of the pools
and believes no copy of that status, which may be old. Everybody else believes nothing but the status
(:meth:`Rests.learn`), and remembers what it has seen being freed and not yet in status: should it lead next, these rest
as well.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address
from kavip.api.pool import Cooling
from kavip.errors import BadInput
from kavip.ipam.annotations import parse_namespaced
from kavip.ipam.pool import LONGEST
from kavip.ipam.pools import Pools

MOST: Final = 512
"""Rests of one pool; the oldest gives way, and its address is free."""

_NOWHERE: Final = ""  # stands for the pool of an address that is in none just now
_SLACK: Final = 64


class Rest(NamedTuple):
    """*address* is kept for *service* (``ns/name``) *until* then; sorts what ends first first."""

    until: datetime
    address: Address
    service: str

    def __str__(self) -> str:
        """Completes "address X ..."."""
        return f"rests until {_text(self.until)} for Service {self.service}, which freed it"

    @property
    def wire(self) -> Cooling:
        """An entry of ``status.cooling``."""
        return Cooling(address=str(self.address), service=self.service, until=_text(self.until))


def read_rests(entries: Iterable[Cooling]) -> tuple[Rest, ...]:
    """The readable ones of *entries*, by time; anybody may have written them."""
    found = (_read(entry) for entry in entries)
    return tuple(sorted(rest for rest in found if rest is not None))


class Rests:
    """All rests, over the pools in force; *held* is what somebody claims, *changed* is told each address concerned."""

    def __init__(self, pools: Pools, *, held: Container[Address], changed: Callable[[Address], None]) -> None:
        """None."""
        self._pools, self._held, self._changed = pools, held, changed
        self._leads = False
        self._cools = any(pool.cooldown for pool in pools.in_force)
        self._now: datetime | None = None  # when we last began or ended rests
        self._rests: dict[Address, Rest] = {}
        self._places: dict[Address, str] = {}
        self._by_pool: defaultdict[str, OrderedDict[Address, None]] = defaultdict(OrderedDict)  # oldest first
        self._by_service: defaultdict[str, set[Address]] = defaultdict(set)
        self._queue: list[Rest] = []  # a heap; what has ended before its time leaves when it surfaces
        self._told: dict[str, tuple[Cooling, ...]] = {}  # pool -> what its status says
        self._freed: dict[Address, str] = {}  # seen by us, and at rest nowhere yet

    # --- questions ------------------------------------------------------------------------------------------------
    def __contains__(self, address: Address) -> bool:
        """Whether *address* rests, or would if nobody claimed it."""
        return address in self._rests

    def keeping(self, address: Address, service: str) -> Rest | None:
        """The rest that keeps *address*, which nobody holds, from *service*; None where there is none."""
        found = self._rests.get(address)
        return found if found is not None and found.service != service and address not in self._held else None

    def freed_by(self, service: str) -> tuple[Address, ...]:
        """The addresses that rest for *service*, the one that it had last first."""
        mine = self._by_service.get(service)
        return tuple(sorted(mine, key=lambda each: (-self._rests[each].until.timestamp(), each))) if mine else ()

    def of(self, pool: str) -> tuple[Rest, ...]:
        """What ``status.cooling`` of *pool* is to say, by time. A pool that is not in force keeps what it said."""
        places, found = self._places, self._by_pool.get(pool, ())
        if self._pools.get(pool) is None:
            said = (rest.address for rest in read_rests(self._told.get(pool, ())))
            found = OrderedDict.fromkeys(each for each in said if places.get(each) == _NOWHERE)
        return tuple(sorted(self._rests[each] for each in found if each not in self._held))

    # --- pools ----------------------------------------------------------------------------------------------------
    def configure(self, pools: Pools) -> None:
        """Rest by *pools* from now on; what lies in one without cool-down rests no longer. The time of a rest stays."""
        self._pools = pools
        self._cools = any(pool.cooldown for pool in pools.in_force)
        if not self._leads:
            self._load()
            return
        rests = sorted(self._rests.values())
        self._clear()
        for rest in rests:
            self._put(rest)

    def learn(self, pool: str, cooling: Iterable[Cooling] | None) -> None:
        """
        ``status.cooling`` of *pool*; None: there is nothing, or the pool is gone.

        Whoever leads has begun with that and knows better by now.
        """
        before, told = self._told.pop(pool, ()), tuple(cooling or ())
        if told:
            self._told[pool] = told
        if self._leads or before == told:
            return
        for rest in read_rests(before):
            if self._rests.get(rest.address) == rest:
                self._drop(rest.address)
        self._enter(pool, told)

    # --- who leads ------------------------------------------------------------------------------------------------
    def lead(self, now: datetime) -> None:
        """
        From *now* on begin rests and end them; first those that status tells, and what was freed and is in none.

        To be called with the pools configured, before anybody is served.
        """
        self._leads, self._now = True, now
        self._load()
        self._cap(now)
        self.expire(now)
        self.cool(now)

    def follow(self) -> None:
        """From now on believe nothing but status again; what we could not write yet is known if we lead next."""
        self._leads = False
        self._freed = {rest.address: rest.service for rest in self._rests.values()}
        self._load()

    def cool(self, now: datetime) -> None:
        """
        What was let go since the last call rests from *now*.

        For whoever leads, after each change of what is held and before anything is decided.
        """
        freed, self._freed = self._freed, {}
        for address, service in freed.items():
            pool = self._pools.pool_of(address)
            if pool is not None and pool.cooldown:
                self._put(Rest(_until(now, pool.cooldown), address, service))

    def expire(self, now: datetime) -> None:
        """End what has rested until *now*. A clock that was set back makes no rest longer than the cool-down."""
        if self._leads and self._now is not None and now < self._now:
            self._cap(now)
        self._now = now
        while self._queue and self._queue[0].until <= now:
            rest = heappop(self._queue)
            if self._rests.get(rest.address) == rest:
                self._drop(rest.address)

    # --- holders --------------------------------------------------------------------------------------------------
    def let_go(self, address: Address, service: str) -> None:
        """*service* was the last to hold *address*."""
        if not self._cools:
            return
        pool, rest = self._pools.pool_of(address), self._rests.get(address)
        is_told = rest is not None and rest.service == service and not self._leads
        if pool is None or not pool.cooldown or is_told:
            return
        self._freed[address] = service
        if len(self._freed) > MOST:
            del self._freed[next(iter(self._freed))]

    # --- keeping the indexes --------------------------------------------------------------------------------------
    def _load(self) -> None:
        self._clear()
        for pool in sorted(self._told):
            self._enter(pool, self._told[pool])

    def _enter(self, pool: str, told: Iterable[Cooling]) -> None:
        """What the status of *pool* says counts for its own addresses, and for those that are in no pool just now."""
        for rest in read_rests(told):
            place = self._pools.pool_of(rest.address)
            if place is None or place.name == pool:
                self._put(rest)
            self._freed.pop(rest.address, None)

    def _cap(self, now: datetime) -> None:
        """No rest is longer than the cool-down of its pool."""
        for rest in sorted(self._rests.values()):
            pool = self._pools.pool_of(rest.address)
            longest = _until(now, pool.cooldown if pool is not None else LONGEST)
            if rest.until > longest:
                self._put(rest._replace(until=longest))

    def _put(self, rest: Rest) -> None:
        """Enter *rest*, in place of what its address had."""
        address, pool = rest.address, self._pools.pool_of(rest.address)
        self._drop(address)
        if pool is not None and not pool.cooldown:
            return
        place = pool.name if pool is not None else _NOWHERE
        self._rests[address], self._places[address] = rest, place
        self._by_pool[place][address] = None
        self._by_service[rest.service].add(address)
        heappush(self._queue, rest)
        if len(self._queue) > 2 * len(self._rests) + _SLACK:
            self._queue = list(self._rests.values())
            heapify(self._queue)
        self._changed(address)
        if len(self._by_pool[place]) > MOST:
            self._drop(next(iter(self._by_pool[place])))

    def _drop(self, address: Address) -> None:
        rest = self._rests.pop(address, None)
        if rest is None:
            return
        place = self._places.pop(address)
        _discard(self._by_service, rest.service, address)
        del self._by_pool[place][address]
        if not self._by_pool[place]:
            del self._by_pool[place]
        self._changed(address)

    def _clear(self) -> None:
        for address in list(self._rests):
            self._drop(address)
        self._queue.clear()


def _discard(index: defaultdict[str, set[Address]], key: str, address: Address) -> None:
    index[key].discard(address)
    if not index[key]:
        del index[key]


def _until(now: datetime, seconds: int) -> datetime:
    """*seconds* after *now*, or a little later: status knows whole seconds."""
    until = now + timedelta(seconds=seconds)
    return until if not until.microsecond else until.replace(microsecond=0) + timedelta(seconds=1)


def _read(entry: Cooling) -> Rest | None:
    address = read_address(entry.address)
    try:
        parse_namespaced(entry.service, "service")
        until = datetime.fromisoformat(entry.until.upper())
        if address is None or until.tzinfo is None:
            return None
        return Rest(until.astimezone(UTC), address, entry.service)
    except (BadInput, ValueError, OverflowError):
        return None


def _text(until: datetime) -> str:
    return until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
