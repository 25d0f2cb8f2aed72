"""
What is entered in the ledger: who holds which address, who asks for it, and what follows for those that wait.

It is fed with what stands in the cluster (:meth:`Register.observe`, :meth:`Register.reserve`), in any order and any
number of times, and with what kavip has decided and not yet seen come back (:meth:`Register.expect`). Each change costs
O(log n) in what it touches.
"""

from collections import Counter
from collections.abc import Iterable

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.ledger.claims import Claim
from kavip.ipam.ledger.cooldown import Rests
from kavip.ipam.ledger.holdings import Holding
from kavip.ipam.ledger.owners import Names, Owners
from kavip.ipam.ledger.tenants import Tenants
from kavip.ipam.ledger.usage import Shelf, Stock
from kavip.ipam.ledger.waiters import Waiting
from kavip.ipam.pools import Pools
from kavip.names import Contest


class Register:
    """What is entered; the questions are those of :class:`.ledger.Ledger`."""

    def __init__(self, pools: Pools | None = None) -> None:
        """Empty, over *pools*."""
        self._holdings: dict[str, Holding] = {}
        self._tenants = Tenants()
        self._owners = Owners()
        self._ungiven: set[Address] = set()  # since the last call of ungiven()
        self._wishes = Names()
        self._leaving: set[str] = set()  # Services in deletion
        self._default_group = ""
        self._waiting = Waiting()
        self._contested: set[Address] = set()
        self._disputed: set[Address] = set()  # claimed by several, or by one beside its owner
        self._passed: set[Address] = set()  # asked for by name, and kept by others than before
        self._stock = Stock(pools or Pools())
        self.rests = Rests(self._stock.pools, held=self._tenants, changed=self._review)
        """The addresses that cool down: who begins and ends that, and who is told."""
        self.contests: Counter[Contest] = Counter()
        """How often an address has got a second holder."""

    # --- what stands in the cluster -------------------------------------------------------------------------------
    def configure(self, pools: Pools) -> None:
        """Count over *pools* from now on; in O(holders). Everybody keeps what he holds."""
        self._stock = Stock(pools)
        for address in self._tenants:
            if (shelf := self._stock.shelf_of(address)) is not None:
                shelf.assign(address)
                for namespace in self._tenants.namespaces(address):
                    shelf.count(namespace, 1)
        for address in self._owners:
            self._review(address)
        self.rests.configure(pools)
        self._waiting.touch_all()

    def observe(self, key: str, service: Service | None) -> None:
        """
        Enter what Service *key* holds now; None: it is gone. Idempotent.

        A copy that is older than a write of ours takes nothing back (:mod:`.holdings`).
        """
        if service is None:
            self.release(key)
            return
        seen = Holding.of(service, default_group=self._default_group)
        self._put(key, seen.seen_after(self._holdings.get(key)))
        if not service.is_load_balancer:
            self._waiting.drop(key)

    def enroll(self, group: str, services: Iterable[Service]) -> None:
        """
        Services that declare no group belong to *group* from now on: whoever declares it may share with them.

        *services*: those of them with a sharing key.
        """
        if group != self._default_group:
            self._default_group = group
            for service in services:
                self.observe(service.key, service)

    def reserve(self, owner: str, addresses: Iterable[Address]) -> None:
        """
        Keep *addresses* from Services: they are *owner*'s own, ``Node n1``'s or ``KeepalivedGroup lb/edge``'s.

        Replaces what *owner* had; no addresses: it is gone.
        """
        gone, come = self._owners.replace(owner, addresses)
        for address in (*gone, *come):
            self._count_claims(address)
        for address in gone:
            self._review(address)
        for address in come:
            if address in self._tenants:
                self._contested.add(address)
                self.contests[Contest.NODE_OR_GROUP] += any(each.standing for each in self._tenants.of(address))
            self._review(address)

    # --- what is decided and not yet seen -------------------------------------------------------------------------
    def expect(self, key: str, addresses: Iterable[Address], *, resource_version: str = "") -> None:
        """
        Service *key* holds *addresses* as soon as a write that is about to be sent has come back.

        *resource_version* is what the write is conditional on; without one only an equal status ends the expectation.
        """
        before = self._holdings.get(key) or Holding.unknown(key)
        self._put(key, before.expecting(addresses, resource_version))
        self._waiting.drop(key)

    def abandon(self, key: str) -> None:
        """The newest expected write was surely not done: refused, or never sent. Not for writes that timed out."""
        before = self._holdings.get(key)
        if before is not None:
            self._put(key, before.abandoning())

    def settle(self) -> None:
        """Expect nothing any more: whatever was written has been observed; what has not, was not. In O(holders)."""
        for key, holding in list(self._holdings.items()):
            if holding.expected:
                self._put(key, holding._replace(expected=()))
                if not holding.version:  # it was never seen, so it is not there
                    self._put(key, None)

    def release(self, key: str) -> None:
        """Service *key* is gone, with all its addresses and wishes."""
        self._waiting.drop(key)
        self._put(key, None)

    # --- keeping the indexes --------------------------------------------------------------------------------------
    def _put(self, key: str, holding: Holding | None) -> None:
        before = self._holdings.pop(key, None)
        self._leaving.discard(key)
        if holding is not None:
            self._holdings[key] = holding
            if holding.terms.leaving:
                self._leaving.add(key)
        wished, wishes = before.wanted if before else (), holding.wanted if holding else ()
        if wished != wishes:
            self._wishes.move(key, wished, wishes)
        old = before.claims() if before else {}
        new = holding.claims() if holding else {}
        for address, claim in old.items():
            if new.get(address) != claim:
                self._replace(address, key, claim, new.get(address))
                if before and address not in self._tenants and (not holding or before.shows(address)):
                    self.rests.let_go(address, key)  # but not what a write was to give and did not
                if before and address not in new and not before.shows(address):
                    self._ungiven.add(address)
        for address, claim in new.items():
            if address not in old:
                self._replace(address, key, None, claim)

    def _replace(self, address: Address, key: str, was: Claim | None, now: Claim | None) -> None:
        """Service *key* claims *address* as *now*, no longer as *was*."""
        tenants, shelf = self._tenants, self._stock.shelf_of(address)
        namespace = key.partition("/")[0]
        was_held = address in tenants
        had = was is not None or (was_held and tenants.has_namespace(address, namespace))
        if now is not None and now.standing and (was is None or not was.standing):
            self._count_contests(address, now)
        tenants.put(address, key, was=was, now=now)
        self._count_claims(address)
        if tenants.may_dispute(address):  # among others, too: who leaves may be the one because of whom they kept it
            self._contested.add(address)
        is_held = address in tenants
        has = now is not None or (is_held and tenants.has_namespace(address, namespace))
        if was_held != is_held and address in self._wishes:
            self._passed.add(address)
        if shelf is not None:
            shelf.count(namespace, has - had)
        self._change(address, shelf)

    def _count_claims(self, address: Address) -> None:
        claims = len(self._tenants.of(address))
        if claims > 1 or (claims and address in self._owners):
            self._disputed.add(address)
        else:
            self._disputed.discard(address)

    def _count_contests(self, address: Address, now: Claim) -> None:
        """Count whom *now*, which is about to stand, contests *address* with."""
        self.contests[Contest.NODE_OR_GROUP] += address in self._owners
        if self._tenants.rival(address, now.terms) is not None:
            self.contests[Contest.TWO_SERVICES] += self._tenants.is_contested(address, now.terms)

    def _review(self, address: Address) -> None:
        if address in self._wishes:
            self._passed.add(address)
        self._change(address, self._stock.shelf_of(address))

    def _change(self, address: Address, shelf: Shelf | None) -> None:
        """Somebody has *address* now, or has it no longer; or it rests, or does no more."""
        if shelf is None:
            return
        self._waiting.touch(shelf.pool.name)
        if address in self._tenants:
            shelf.assign(address)
        elif address in self.rests:
            shelf.cool(address)
        elif address in self._owners:
            shelf.keep(address)
        else:
            shelf.free(address)
