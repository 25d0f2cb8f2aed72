"""
The checker: replays the audit log and reports violations.

It reads only the audit log, and recognizes writes of kavip by their user agent. A *double* is an address in the status
of two Services that may not share it. A double that a write of kavip causes is a fault of kavip. One that an edit
causes (two Services that share an address get the same port) must be repaired; the older Service keeps the address.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hack.faults.facts import Fact
from hack.faults.rules import Ip, Pool, Service, cause, place

Pair = tuple[Ip, str, str]

LAG: Final = 2.0
"""
Seconds for which a decision may be older than other objects than the one that is written.

A write to a Service is conditional on that Service alone: another Service or a pool may be edited at the same time.
"""


_MEMORY: Final = 30.0  # seconds; requests overlap, so this is longer than the lag


class _Previous(NamedTuple):
    """A pool or Service as it was *until* it was edited or deleted."""

    what: Pool | Service
    until: float


@dataclass(slots=True)
class Double:
    """An address with two holders: writer (*by*), start (*since*), duration, and the number of status writes
    of the loser that did not end it (*passes*)."""

    address: Ip
    holders: tuple[str, str]
    by: str
    since: float
    seconds: float | None = None
    passes: int = 0


@dataclass(slots=True)
class Findings:
    """The results of a history."""

    doubles: list[Double] = field(default_factory=list)
    clashes: list[Double] = field(default_factory=list)
    """Doubles that an edit has made."""
    moves: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Addresses that were not freed."""
    counters: list[str] = field(default_factory=list)
    """Pools with wrong counts in their status."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def unrepaired(self) -> list[Double]:
        """Doubles of both kinds that exist at the end."""
        return [each for each in (*self.doubles, *self.clashes) if each.seconds is None]


class Checker:
    """Checks one fact after the other; :meth:`close` checks the remaining objects once kavip is idle."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._services: dict[str, Service] = {}
        self._pools: dict[str, Pool] = {}
        self._holders: defaultdict[Ip, set[str]] = defaultdict(set)
        self._open: dict[Pair, Double] = {}
        self._contested: set[tuple[str, Ip]] = set()
        self._past: list[_Previous] = []

    def replay(self, facts: Iterable[Fact]) -> Findings:
        """Take all of *facts*, which are in order, and close."""
        for fact in facts:
            self.take(fact)
        return self.close()

    def take(self, fact: Fact) -> None:
        """Replay one write."""
        if fact.kind == "vippools":
            old_pool = self._pools.pop(fact.key, None)
            self._remember(fact, old_pool)
            if fact.made is not None:
                new_pool = Pool.of(fact.made)
                if fact.is_kavips and old_pool is not None and _plain(old_pool.status) == _plain(new_pool.status):
                    self.findings.needless.append(f"pool {fact.key} at {fact.version} by {fact.user}")
                self._pools[fact.key] = new_pool
            self._count(fact, "pool")
        elif fact.made is None:
            self._count(fact, "service")
            self._replace(fact, self._services.get(fact.uid), None)
        else:
            self._count(fact, "service")
            new = Service.of(fact.made)
            self._replace(fact, self._services.get(new.uid), new)

    def _count(self, fact: Fact, what: str) -> None:
        writer = "kavip" if fact.is_kavips else "user"
        self.findings.counts[f"{writer} {what} {fact.verb}{'/' if fact.part else ''}{fact.part}"] += 1

    # --- one step -------------------------------------------------------------------------------------------------
    def _replace(self, fact: Fact, old: Service | None, new: Service | None) -> None:
        before = set(old.held) if old else set()
        after = set(new.held) if new else set()
        if fact.is_kavips and old is not None and new is not None:
            self._check_write(fact, old, new)
        uid = new.uid if new else fact.uid
        self._remember(fact, old)
        for address in before - after:
            self._holders[address].discard(uid)
        for address in after - before:
            self._holders[address].add(uid)
        if new is None:
            self._services.pop(uid, None)
        else:
            self._services[uid] = new
        for address in before | after:
            self._compare(fact, uid, address)
        for address in before - after:
            self._contested.discard((uid, address))
        self.findings.counts["addresses given"] += len(after - before) if fact.is_kavips else 0
        self.findings.counts["addresses held at once"] = max(
            self.findings.counts["addresses held at once"], sum(map(bool, self._holders.values())) if after else 0
        )

    def _check_write(self, fact: Fact, old: Service, new: Service) -> None:
        found = self.findings
        if fact.since not in (0, old.version, new.version):
            found.counts["writes after a lost response"] += 1  # it is not known what this one was to change
            return
        if old.version == new.version or _plain(old.status) == _plain(new.status):
            found.needless.append(f"{new.key} at {new.version} by {fact.user}")
        for address in set(old.held) - set(new.held):
            found.counts["addresses taken back"] += 1
            if any(cause(old, address, pools) for pools in self._known(fact)):
                continue
            if (old.uid, address) not in self._contested:
                found.moves.append(f"{old.key} lost {address} at {new.version} without cause")
            elif not self._has_older_holder(fact, old, address):
                found.moves.append(f"{old.key} lost {address} at {new.version}, without an older holder")
        for (address, *uids), double in self._open.items():
            if old.uid in uids and address in old.held and address in new.held:
                double.passes += 1

    # --- states that a cache may have had -------------------------------------------------------------------------
    def _remember(self, fact: Fact, what: Pool | Service | None) -> None:
        """Record the end of the state *what*."""
        self._past = [each for each in self._past if fact.at - each.until < _MEMORY]
        if what is not None:
            self._past.append(_Previous(what, fact.at))

    def _recent(self, fact: Fact) -> Iterator[Pool | Service]:
        """The replaced states of objects that were current shortly before *fact* was requested."""
        return (each.what for each in self._past if fact.requested_at - each.until < LAG)

    def _known(self, fact: Fact) -> Iterator[Mapping[str, Pool]]:
        """The current pools, and each recent state of them."""
        yield self._pools
        for each in self._recent(fact):
            if isinstance(each, Pool):
                yield {**self._pools, each.name: each}

    def _has_older_holder(self, fact: Fact, service: Service, address: Ip) -> bool:
        """Whether an older Service that does not share *address* with *service* holds it, or held it recently."""
        before = (each for each in self._recent(fact) if isinstance(each, Service) and address in each.held)
        others = [*(self._services[uid] for uid in self._holders[address]), *before]
        return any(
            (each.born, each.key) < (service.born, service.key) and not each.shares_with(service)
            for each in others
            if each.uid != service.uid
        )

    def _did_share(self, fact: Fact, one: Service, other: Service) -> bool:
        """Whether *other* shared its addresses with *one* until a recent edit."""
        return any(
            isinstance(each, Service) and each.uid == other.uid and each.held == other.held and each.shares_with(one)
            for each in self._recent(fact)
        )

    def _compare(self, fact: Fact, uid: str, address: Ip) -> None:
        """Enter and close doubles of *uid* on *address*."""
        mine = self._services.get(uid)
        rivals = set()
        if mine is not None and uid in self._holders[address]:
            others = (self._services[each] for each in self._holders[address] if each != uid)
            rivals = {each.uid for each in others if not each.shares_with(mine)}
        for other in rivals:
            pair = (address, min(uid, other), max(uid, other))
            if pair not in self._open:
                is_edited = not fact.is_kavips or self._did_share(fact, self._services[uid], self._services[other])
                by = "" if is_edited else fact.user
                keys = sorted((self._services[uid].key, self._services[other].key))
                self._open[pair] = Double(address, (keys[0], keys[1]), by, fact.at)
                (self.findings.doubles if by else self.findings.clashes).append(self._open[pair])
                self._contested |= {(uid, address), (other, address)}
        for pair in [each for each in self._open if each[0] == address and uid in each[1:]]:
            if not rivals & set(pair[1:]):
                self._open[pair].seconds = fact.at - self._open[pair].since
                del self._open[pair]

    # --- when kavip is idle ---------------------------------------------------------------------------------------
    def close(self) -> Findings:
        """Check the waiting Services when kavip is idle: each one that could be served is a finding."""
        found = self.findings
        for service in sorted(self._services.values(), key=lambda each: each.key):
            if not service.is_managed:
                found.kept += [f"{service.key} holds {address}" for address in service.held]
            elif better := next(self._available(service), ""):
                found.waiting.append(f"{service.key} has {_names(service.held)} and could have {better}")
        for pool in self._pools.values():
            found.counters += _miscounted(pool, self._holders)
        found.counts["services at the end"] = len(self._services)
        found.counts["of them waiting"] = sum(
            each.is_managed and len({address.version for address in each.held}) < len(each.families)
            for each in self._services.values()
        )
        return found

    def _available(self, service: Service) -> Iterator[str]:
        """The addresses that *service* requests, does not have, and could get."""
        if any(family not in service.families for family in service.wanted):
            return  # a request that cannot be met
        requested = {place(address, self._pools) for address in service.wanted.values()}
        named = self._pools.get(service.pool)
        stays = [each for each in service.held if not cause(service, each, self._pools)]
        lacks = [family for family in service.families if all(each.version != family for each in stays)]
        if not lacks or (service.pool and named is None) or None in requested or len({*requested, named} - {None}) > 1:
            return
        homes = {home for each in stays if (home := place(each, self._pools))}
        if stays and not homes:
            return  # the other address must be of the same pool, which does not exist any more
        chosen = {each for each in (*requested, named) if each}
        for pool in homes or chosen or self._pools.values():
            if not pool.is_automatic and pool not in chosen:
                continue  # it gives nothing new; what is held of it stays
            found = {family: self._free(service, pool, family) for family in lacks}
            wishes = [family for family in lacks if family in service.wanted]
            needed = lacks if service.needs_all else wishes
            if any(found.values()) and all(found[family] for family in needed):
                yield f"{_names(each for each in found.values() if each)} of {pool.name}"

    def _free(self, service: Service, pool: Pool, family: int) -> Ip | None:
        wanted = service.wanted.get(family)
        choice = [wanted] if wanted else pool.addresses(family)
        for address in choice:
            others = [self._services[uid] for uid in self._holders.get(address, ()) if uid != service.uid]
            if pool.gives(address) and all(each.shares_with(service) for each in others):
                return address
        return None


def _plain(status: Mapping[str, Any]) -> object:
    """*status* without transition times."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}


def _miscounted(pool: Pool, holders: Mapping[Ip, set[str]]) -> Iterator[str]:
    for family in (4, 6):
        held = sum(
            bool(uids) and address.version == family and pool.gives(address) for address, uids in holders.items()
        )
        reported = (pool.status.get(f"ipv{family}") or {}).get("assigned", 0)
        if held != reported:
            yield f"pool {pool.name} reports {reported} assigned addresses of IPv{family}; {held} are assigned"


def _names(addresses: Iterable[Ip]) -> str:
    return " and ".join(map(str, addresses)) or "nothing"
