"""
Cool-down: a freed address stays reserved for its previous Service until it expires (``spec.cooldownSeconds``).

An address cools down when the last Service that kavip served it for releases it: the Service is deleted, is no longer
managed by kavip, or has another address. The cool-down ends at its time (:meth:`Cooldown.expire`), or when its pool no
longer has one. While a Service claims the address, the cool-down is hidden but kept, because the claim may be a write
that fails.

The leader starts cool-downs (:meth:`Cooldown.lead`, :meth:`Cooldown.start`) and writes them into the status of the
pools. It ignores every copy of that status, because a copy may be older than its last write. The other replicas take
all cool-downs from status (:meth:`Cooldown.learn`), and remember which addresses they saw being freed that are not in
status yet: if such a replica becomes the leader, these cool down as well.

An address that another machine on the LAN has cools down as well (:meth:`Cooldown.withdraw`), an hour and for no
Service, whatever its pool says. Its entry names the Service that had it: so a leader counts, after a restart too, how
often a Service got another address for this reason.

:mod:`kavip.ipam.ledger.book` calls ``release``; :mod:`kavip.caches` calls ``lead``, ``start`` and ``follow``;
:mod:`kavip.controller.worker` calls ``expire`` and ``withdraw``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address
from kavip.api.pool import Cooling
from kavip.errors import BadInput
from kavip.ipam.annotations import parse_namespaced
from kavip.ipam.ledger.freed import FreedAddresses
from kavip.ipam.pool import LONGEST_COOLDOWN
from kavip.ipam.pools import Pools
from kavip.names import Reason

MAX_WITHDRAWN: Final = 16
"""Addresses of one pool in cool-down because another machine has them; a node that lies can withdraw no more."""
MAX_COOLING: Final = 512 - MAX_WITHDRAWN
"""Addresses of one pool that cool down; beyond that the namespace with most of them loses its oldest."""
WITHDRAWN_SECONDS: Final = 3600
"""The cool-down of an address that another machine has."""

_NO_POOL: Final = ""  # stands for the pool of an address that is in none at the moment
_SLACK: Final = 64  # entries of the heap that may be obsolete before it is built again


class CoolingAddress(NamedTuple):
    """
    *address* is kept for *service* (``ns/name``) *until* then. Sorts by time.

    If it *is_withdrawn*, it is for no Service: another machine has it, and *service* had it when that was found.
    """

    until: datetime
    address: Address
    service: str
    is_withdrawn: bool = False

    def __str__(self) -> str:
        """Completes "address X ..."."""
        if self.is_withdrawn:
            found = f"found for Service {self.service}"
            return f"is in cool-down until {_text(self.until)}, because another machine on the LAN has it ({found})"
        return f"cools down until {_text(self.until)} for Service {self.service}, which freed it"

    @property
    def wire(self) -> Cooling:
        """An entry of ``status.cooling``."""
        reason = Reason.ADDRESS_CONFLICT.value if self.is_withdrawn else ""
        return Cooling(address=str(self.address), service=self.service, until=_text(self.until), reason=reason)


def read_cooling(entries: Iterable[Cooling]) -> tuple[CoolingAddress, ...]:
    """The readable *entries*, by time. Any client that may write the status may have written them."""
    found = (_read(entry) for entry in entries)
    return tuple(sorted(each for each in found if each is not None))


class Cooldown:
    """
    All addresses that cool down, over the pools in force.

    *is_held*: whether kavip serves an address for a Service. *changed* is called with each address that begins or ends
    to cool down.
    """

    def __init__(self, pools: Pools, *, is_held: Callable[[Address], bool], changed: Callable[[Address], None]) -> None:
        """Start without any."""
        self._pools, self._is_held, self._changed = pools, is_held, changed
        self._leads = False
        self._is_used = any(pool.cooldown_seconds for pool in pools.in_force)
        self._now: datetime | None = None  # of the last call of lead() or expire()
        self._cooling: dict[Address, CoolingAddress] = {}
        self._pool_names: dict[Address, str] = {}
        self._by_pool: defaultdict[str, FreedAddresses] = defaultdict(FreedAddresses)
        self._by_service: defaultdict[str, set[Address]] = defaultdict(set)
        self._withdrawn: defaultdict[str, set[Address]] = defaultdict(set)  # by pool; not in the two above
        self._queue: list[CoolingAddress] = []  # a heap; obsolete entries are skipped when they come first
        self._status: dict[str, tuple[Cooling, ...]] = {}  # pool -> its status
        self._freed = FreedAddresses()  # seen being freed, and not cooling down yet

    # --- questions ------------------------------------------------------------------------------------------------
    def __contains__(self, address: Address) -> bool:
        """Whether *address* cools down, or would if no Service claimed it."""
        return address in self._cooling

    def blocking(self, address: Address, service: str) -> CoolingAddress | None:
        """The cool-down that keeps *address*, which no Service holds, from *service*; None if there is none."""
        found = self._cooling.get(address)
        if found is None or self._is_held(address):
            return None
        return found if found.is_withdrawn or found.service != service else None

    def withdrawn(self, pool: str) -> tuple[CoolingAddress, ...]:
        """The addresses of *pool* in cool-down because another machine has them, by time."""
        return tuple(sorted(self._cooling[each] for each in self._withdrawn.get(pool, ())))

    def withdrawn_from(self, service: str) -> tuple[Address, ...]:
        """The addresses in cool-down because another machine has them, and that *service* had."""
        found = (self._cooling[each] for some in self._withdrawn.values() for each in some)
        return tuple(sorted(each.address for each in found if each.service == service))

    def is_recorded(self, address: Address) -> bool:
        """Whether the status of the pools, as observed, says that *address* is withdrawn."""
        entry = self._cooling.get(address)
        return (
            entry is not None and entry.is_withdrawn and entry.wire in self._status.get(self._pool_names[address], ())
        )

    def freed_by(self, service: str) -> tuple[Address, ...]:
        """The addresses that cool down for *service*, the one that it freed last first."""
        mine = self._by_service.get(service)
        return tuple(sorted(mine, key=lambda each: (-self._cooling[each].until.timestamp(), each))) if mine else ()

    def of(self, pool: str) -> tuple[CoolingAddress, ...]:
        """The desired ``status.cooling`` of *pool*, by time. A pool that is not in force keeps its entries."""
        found: Iterable[Address] = (*self._by_pool.get(pool, ()), *self._withdrawn.get(pool, ()))
        if self._pools.get(pool) is None:
            written = {each.address for each in read_cooling(self._status.get(pool, ()))}
            found = (each for each in written if self._pool_names.get(each) == _NO_POOL)
        entries = (self._cooling[each] for each in found)
        return tuple(sorted(each for each in entries if each.is_withdrawn or not self._is_held(each.address)))

    @property
    def is_used(self) -> bool:
        """Whether any pool in force has a cool-down."""
        return self._is_used

    def is_persisted(self) -> bool:
        """Whether the status of the pools, as observed, has every cool-down."""
        if len(self._freed):
            return False
        found = ((pool, set(self._status.get(pool, ()))) for pool in self._by_pool if pool != _NO_POOL)
        return all(each.wire in written for pool, written in found for each in self.of(pool))

    # --- pools ----------------------------------------------------------------------------------------------------
    def configure(self, pools: Pools) -> None:
        """Replace the pools; cool-downs in a pool without one end, all others keep their time."""
        self._pools = pools
        self._is_used = any(pool.cooldown_seconds for pool in pools.in_force)
        if not self._leads:
            self._load()
            return
        cooling = sorted(self._cooling.values())
        self._clear()
        for each in cooling:
            self._put(each)

    def learn(self, pool: str, cooling: Iterable[Cooling] | None) -> None:
        """
        Observe ``status.cooling`` of *pool*; None: it is empty, or the pool is deleted.

        A leader only remembers it: it wrote the status itself.
        """
        before, after = self._status.pop(pool, ()), tuple(cooling or ())
        if after:
            self._status[pool] = after
        if self._leads or before == after:
            return
        for each in read_cooling(before):
            if self._cooling.get(each.address) == each:
                self._drop(each.address)
        self._enter(pool, after)

    # --- leader ---------------------------------------------------------------------------------------------------
    def lead(self, now: datetime) -> None:
        """
        Start and end cool-downs from *now* on: those of status, and of addresses freed that are not in status.

        Call it after the pools are configured and before any address is assigned.
        """
        self._leads, self._now = True, now
        self._load()
        self._cap(now)
        self.expire(now)
        self.start(now)

    def follow(self) -> None:
        """Take cool-downs from status again. Those that were not written yet are kept for the next term."""
        self._leads = False
        self._freed = FreedAddresses()
        for each in self._cooling.values():
            self._freed.add(each.address, each.service)
        self._load()

    def start(self, now: datetime) -> None:
        """
        Start the cool-down of each address that was freed since the last call.

        For the leader, after each change of what Services hold and before the next decision.
        """
        freed, self._freed = self._freed, FreedAddresses()
        for address, service in freed.items():
            pool = self._pools.pool_of(address)
            if pool is not None and pool.cooldown_seconds and not self._is_withdrawn(address):
                self._put(CoolingAddress(_until(now, pool.cooldown_seconds), address, service))

    def withdraw(self, address: Address, service: str, *, now: datetime) -> None:
        """Let *address*, which *service* has and another machine has too, rest for no Service."""
        pool = self._pools.pool_of(address)
        if pool is not None:
            self._put(CoolingAddress(_until(now, WITHDRAWN_SECONDS), address, service, is_withdrawn=True))

    def expire(self, now: datetime) -> None:
        """End the cool-downs whose time has come. A clock that was set back makes none longer than its pool allows."""
        if self._leads and self._now is not None and now < self._now:
            self._cap(now)
        self._now = now
        while self._queue and self._queue[0].until <= now:
            first = heappop(self._queue)
            if self._cooling.get(first.address) == first:
                self._drop(first.address)

    # --- holders --------------------------------------------------------------------------------------------------
    def release(self, address: Address, service: str) -> None:
        """Observe that *service*, the last one that kavip served *address* for, has released it."""
        if not self._is_used:
            return
        pool, known = self._pools.pool_of(address), self._cooling.get(address)
        is_in_status = known is not None and (known.is_withdrawn or (known.service == service and not self._leads))
        if pool is None or not pool.cooldown_seconds or is_in_status:
            return
        self._freed.add(address, service)
        if (surplus := self._freed.surplus(MAX_COOLING)) is not None:
            self._freed.discard(surplus)

    # --- indexes --------------------------------------------------------------------------------------------------
    def _load(self) -> None:
        self._clear()
        for pool in sorted(self._status):
            self._enter(pool, self._status[pool])

    def _enter(self, pool: str, entries: Iterable[Cooling]) -> None:
        """The status of *pool* counts for its own addresses, and for those that are in no pool at the moment."""
        for each in read_cooling(entries):
            found = self._pools.pool_of(each.address)
            if found is None or found.name == pool:
                self._put(each)
            self._freed.discard(each.address)

    def _cap(self, now: datetime) -> None:
        """Shorten each cool-down to that of its pool."""
        for each in sorted(self._cooling.values()):
            pool = self._pools.pool_of(each.address)
            seconds = pool.cooldown_seconds if pool is not None else LONGEST_COOLDOWN
            longest = _until(now, WITHDRAWN_SECONDS if each.is_withdrawn else seconds)
            if each.until > longest:
                self._put(each._replace(until=longest))

    def _put(self, entry: CoolingAddress) -> None:
        """Enter *entry* in the place of an earlier one for its address."""
        address, pool = entry.address, self._pools.pool_of(entry.address)
        self._drop(address)
        name = pool.name if pool is not None else _NO_POOL
        if entry.is_withdrawn:
            if len(self._withdrawn.get(name, ())) >= MAX_WITHDRAWN:
                return
            self._withdrawn[name].add(address)
        elif pool is not None and not pool.cooldown_seconds:
            return
        else:
            self._by_pool[name].add(address, entry.service)
            self._by_service[entry.service].add(address)
        self._cooling[address], self._pool_names[address] = entry, name
        heappush(self._queue, entry)
        if len(self._queue) > 2 * len(self._cooling) + _SLACK:
            self._queue = list(self._cooling.values())
            heapify(self._queue)
        self._changed(address)
        if name in self._by_pool and (surplus := self._by_pool[name].surplus(MAX_COOLING)) is not None:
            self._drop(surplus)

    def _drop(self, address: Address) -> None:
        entry = self._cooling.pop(address, None)
        if entry is None:
            return
        name = self._pool_names.pop(address)
        if entry.is_withdrawn:
            self._withdrawn[name].discard(address)
            if not self._withdrawn[name]:
                del self._withdrawn[name]
        else:
            self._by_service[entry.service].discard(address)
            if not self._by_service[entry.service]:
                del self._by_service[entry.service]
            self._by_pool[name].discard(address)
            if not len(self._by_pool[name]):
                del self._by_pool[name]
        self._changed(address)

    def _is_withdrawn(self, address: Address) -> bool:
        return address in self._cooling and self._cooling[address].is_withdrawn

    def _clear(self) -> None:
        for address in list(self._cooling):
            self._drop(address)
        self._queue.clear()


def _until(now: datetime, seconds: int) -> datetime:
    """*seconds* after *now*, rounded up: status holds whole seconds."""
    until = now + timedelta(seconds=seconds)
    return until if not until.microsecond else until.replace(microsecond=0) + timedelta(seconds=1)


def _read(entry: Cooling) -> CoolingAddress | None:
    address = read_address(entry.address)
    try:
        parse_namespaced(entry.service, "service")
        until = datetime.fromisoformat(entry.until.upper())
        if address is None or until.tzinfo is None:
            return None
        is_withdrawn = entry.reason == Reason.ADDRESS_CONFLICT
        return CoolingAddress(until.astimezone(UTC), address, entry.service, is_withdrawn)
    except (BadInput, ValueError, OverflowError):
        return None


def _text(until: datetime) -> str:
    return until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
