"""
The ledger: which Service holds which address, what is free, and which Services to requeue.

It is filled with objects as they are observed (:meth:`Ledger.observe`, :meth:`Ledger.reserve`), in any order and any
number of times, and with what kavip has decided but not observed yet (:meth:`Ledger.expect`). A decision reads the
ledger and never changes it; no question scans a pool or all Services.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.ledger.book import AddressBook
from kavip.ipam.ledger.holdings import Holding
from kavip.ipam.ledger.offers import Offers
from kavip.ipam.ledger.usage import FamilyUsage
from kavip.ipam.ledger.waiters import Waiter, Waiters
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import Range, find
from kavip.ipam.request import Request, Terms


class Ledger:
    """Holdings of Services over an :class:`.AddressBook`, with the Services that wait."""

    def __init__(self, pools: Pools | None = None) -> None:
        """Start empty, over *pools*."""
        self.waiters = Waiters()
        self._pools = pools or Pools()
        self._book = AddressBook(self._pools, touched=self.waiters.touch)
        self._holdings: dict[str, Holding] = {}
        self._leaving: set[str] = set()  # Services in deletion
        self._default_group = ""
        self.claims = self._book.claims
        self._owners = self._book.owners
        self.cooldown = self._book.cooldown
        self.contests = self._book.contests
        """How often an address has got a second holder; for metrics."""
        self.offers = Offers(self._book)

    # --- objects as observed --------------------------------------------------------------------------------------
    def configure(self, pools: Pools) -> frozenset[str]:
        """
        Replace the pools; in O(holders). Every Service keeps what it holds.

        Returns the Services with an address to which *pools* give another interface than the pools before.
        """
        before, self._pools = self._pools, pools
        self._book.configure(pools)
        self.waiters.touch_all()
        if before.interfaces == pools.interfaces:
            return frozenset()
        moving = (each for each in self.claims if before.interface_of(each) != pools.interface_of(each))
        return frozenset(terms.key for address in moving for terms in self.claims.claimants(address))

    def observe(self, key: str, service: Service | None, *, group: str = "") -> None:
        """
        Enter what Service *key* holds now; None: it is deleted. Idempotent.

        *group* serves it although it declares none; "": the default group. A copy that is older than an expected write
        does not end the expectation (:mod:`.holdings`).
        """
        if service is None:
            self.waiters.drop(key)
            self._put(key, None)
            return
        holding = Holding.of(service, default_group=group or self._default_group)
        self._put(key, holding.observed_after(self._holdings.get(key)))
        if not service.is_load_balancer:
            self.waiters.drop(key)

    def set_default_group(self, group: str) -> bool:
        """
        Services that declare no group belong to *group*, and may share addresses with those that declare it.

        True: it is another group than before, and those without a group that have a sharing key must be observed again.
        """
        is_other, self._default_group = group != self._default_group, group
        return is_other

    def reserve(self, owner: str, addresses: Iterable[Address]) -> None:
        """
        Set the own addresses of *owner* (``Node n1``, ``KeepalivedGroup lb/edge``), which no Service may have.

        Replaces the earlier ones; no addresses: the owner is deleted.
        """
        self._book.reserve(owner, addresses)

    # --- decided and not observed yet -----------------------------------------------------------------------------
    def expect(self, key: str, addresses: Iterable[Address], *, resource_version: str = "") -> None:
        """
        Expect that Service *key* holds *addresses* as soon as the write that is about to be sent is observed.

        The write is conditional on *resource_version*; without one only an equal status ends the expectation.
        """
        before = self._holdings.get(key) or Holding.unknown(key)
        self._put(key, before.expecting(addresses, resource_version))
        self.waiters.drop(key)

    def abandon(self, key: str) -> None:
        """Drop the newest expected write, which was certainly not done: refused or never sent, but not timed out."""
        before = self._holdings.get(key)
        if before is not None:
            self._put(key, before.abandoning())

    def drop_expectations(self) -> None:
        """Drop all expected writes: those that were done have been observed, the others were not. In O(holders)."""
        for key, holding in list(self._holdings.items()):
            if holding.expected:
                self._put(key, holding._replace(expected=()))
                if not holding.version:  # never observed, so it does not exist
                    self._put(key, None)

    def release_unheld(self, held: Mapping[Address, str]) -> int:
        """
        Observe that the addresses of *held*, each with its last holder, were freed, if they are served for none now.

        For what was freed while this ledger observed nothing. Returns how many there are.
        """
        freed = [(address, key) for address, key in held.items() if not self.claims.is_served(address)]
        for address, key in freed:
            self.cooldown.release(address, key)
        return len(freed)

    def _put(self, key: str, holding: Holding | None) -> None:
        before = self._holdings.pop(key, None)
        self._leaving.discard(key)
        if holding is not None:
            self._holdings[key] = holding
            if holding.terms.leaving:
                self._leaving.add(key)
        self._book.replace(key, before, holding)

    # --- what Services hold ---------------------------------------------------------------------------------------
    def held(self, key: str) -> tuple[Address, ...] | None:
        """The addresses of Service *key*, expected writes included; None if it is not in the ledger."""
        holding = self._holdings.get(key)
        return holding.held if holding else None

    def is_satisfied(self, key: str) -> bool:
        """Whether Service *key* has what it requests by name, at least one address, and keeps all that it has."""
        holding = self._holdings.get(key)
        if holding is None or not holding.is_satisfied:
            return False
        return all(self.keeps(address, holding.terms) for address in holding.current)

    def is_expecting(self, key: str) -> bool:
        """Whether a write for Service *key* was not observed yet."""
        holding = self._holdings.get(key)
        return holding is not None and bool(holding.expected)

    def owner(self, address: Address) -> str:
        """The node or group that has *address* itself, or the API server; "" if none has."""
        owners = self._owners.get(address)
        return min(owners) if owners else ""

    def owners(self, address: Address) -> frozenset[str]:
        """All nodes and groups that have *address* themselves, and the API server."""
        return frozenset(self._owners.get(address, ()))

    def keeps(self, address: Address, terms: Terms) -> bool:
        """
        Whether the Service of *terms*, which has *address*, keeps it: no owner and no older Service has it.

        For an edit that is only proposed, *terms* counts instead of the terms in the ledger.
        """
        return address not in self._owners and self.claims.keeps(address, terms)

    def disputing(self) -> set[str]:
        """The Services that claim an address which another Service claims too, or which has an owner."""
        return {claim.terms.key for address in self._book.disputed for claim in self.claims.of(address)}

    def requesting(self, address: Address) -> tuple[Terms, ...]:
        """The Services that request *address* by name and do not hold it, oldest first."""
        found = (self._holdings[key] for key in self._book.requested.get(address, ()))
        return _oldest_first(holding.terms for holding in found if address not in holding.held)

    def claims_in(self, pool: Pool) -> Iterator[tuple[Address, Terms, bool]]:
        """Each claim on an address of *pool*, with whether it stands in status; sorted. In O(holders)."""
        for address in sorted(each for each in self.claims if find(pool.ranges, each) is not None):
            for claim in sorted(self.claims.of(address), key=lambda claim: claim.terms.age):
                yield address, claim.terms, claim.in_status

    def claimants_in(self, ranges: Sequence[Range]) -> set[str]:
        """The Services with a claim on an address in *ranges*, which are sorted and disjoint. In O(holders)."""
        claimed = (address for address in self.claims if find(ranges, address) is not None) if ranges else ()
        return {claim.terms.key for address in claimed for claim in self.claims.of(address)}

    def count_leaving(self, pool: Pool, namespace: str) -> int:
        """How many addresses of *pool* are held by Services of *namespace* in deletion; in O(these Services)."""
        gone = (self._holdings[key] for key in self._leaving)
        claims = {address for holding in gone if holding.terms.namespace == namespace for address in holding.claims()}
        return sum(find(pool.ranges, address) is not None for address in claims)

    def usage(self, pool: str) -> dict[int, FamilyUsage]:
        """The usage of each family that *pool* has; empty if the pool is not in force."""
        usage = self._book.usage.get(pool)
        return usage.by_family() if usage else {}

    def with_default_group(self, request: Request) -> Request:
        """*request*, of a Service that kavip manages, in the group that serves it if it declares none."""
        terms = request.terms.within(request.group or self._default_group)
        return request if terms is request.terms else request._replace(terms=terms)

    # --- waiting and requeue --------------------------------------------------------------------------------------
    def wait(self, request: Request, pools: Iterable[str], *, reason: str = "") -> None:
        """
        Let *request* wait for one of *pools* (names, existing or not), in the order in which they are tried.

        *reason*: why it lacks something, "" if it lacks nothing. No pools: only an edit of the Service helps.
        """
        names, request = tuple(pools), self.with_default_group(request)
        if names or reason:
            stay = tuple(each for each in self.held(request.key) or () if self._stays(each, request, names))
            is_plain = not request.wanted and not self.offers.may_use_full_pools(request)
            self.waiters.put(Waiter.of(request, names, stay, reason=reason, is_plain=is_plain))
        else:
            self.waiters.drop(request.key)

    def _stays(self, address: Address, request: Request, pools: Collection[str]) -> bool:
        """Whether *request* keeps *address* and gets another one from *pools*: both families come from one pool."""
        pool = self._book.usage.pools.pool_of(address)
        if pool is None or pool.name not in pools or not self.keeps(address, request.terms):
            return False
        return not (request.reassign and pool.why_barred(address, request.key))

    def drain_requeues(self) -> tuple[str, ...]:
        """
        Take the Services to requeue for what has happened since the last call, oldest first.

        These are the Services that have lost a contest for an address; those that request one by name whose holder has
        changed; and, for each pool, the oldest waiter that it can serve. The next waiter follows after that one was
        reconciled (:mod:`.waiters`).
        """
        book = self._book
        contested, book.contest_changes = book.contest_changes, set()
        losers = {
            claim.terms
            for address in contested
            for claim in self.claims.of(address)
            if claim.in_status and not self.keeps(address, claim.terms)
        }
        changed, book.holder_changes = book.holder_changes, set()
        requesting = {terms for address in changed for terms in self.requesting(address)}
        keys = dict.fromkeys(terms.key for terms in (*_oldest_first(losers), *_oldest_first(requesting)))
        return tuple(dict.fromkeys((*keys, *self.waiters.call(self.offers.can_serve))))

    def drain_disputes(self) -> set[str]:
        """Take the Services that claim an address which is or was disputed, and whose claims or owner have changed."""
        changed, self._book.dispute_changes = self._book.dispute_changes, set()
        return {claim.terms.key for address in changed for claim in self.claims.of(address)}

    def forget_changes(self) -> None:
        """Drop what the ``drain`` methods would return: a replica that does not lead requeues nothing."""
        self._book.forget_changes()

    def drain_undone(self) -> set[Address]:
        """Take the addresses that expected writes did not assign after all: the status of their pools is stale."""
        undone, self._book.undone_changes = self._book.undone_changes, set()
        return undone


def _oldest_first(terms: Iterable[Terms]) -> tuple[Terms, ...]:
    return tuple(sorted(terms, key=lambda each: each.age))
