"""
The state of each address, kept consistent over all indexes.

An address is assigned, cools down, belongs to a node, a group or the API server, or is free. The state follows from the
claims on it, its owners and its cool-down; each change costs O(log n) in what it touches.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from kavip.api.address import Address
from kavip.ipam.ledger.claims import AddressClaim, AddressIndex, Claims, Owners
from kavip.ipam.ledger.cooldown import Cooldown
from kavip.ipam.ledger.holdings import Holding
from kavip.ipam.ledger.usage import PoolUsage, UsageByPool
from kavip.ipam.pools import Pools
from kavip.names import Contest


class AddressBook:
    """
    Claims, owners, cool-downs, requests by name and free addresses, over the pools in force.

    *touched* is called with the name of each pool in which something has changed. The sets that end in ``_changes``
    collect addresses until the ledger drains them.
    """

    def __init__(self, pools: Pools, *, touched: Callable[[str], None]) -> None:
        """Start empty."""
        self._touched = touched
        self.claims = Claims()
        self.owners = Owners()
        self.requested = AddressIndex()  # address -> the Services that request it by name
        self.usage = UsageByPool(pools)
        self.cooldown = Cooldown(pools, is_held=self.claims.is_served, changed=self._change)
        self.contests: Counter[Contest] = Counter()
        self.disputed: set[Address] = set()  # claimed by several Services, or by one although it has an owner
        self.dispute_changes: set[Address] = set()  # disputed now or before, and its claims or its owner have changed
        self.contest_changes: set[Address] = set()  # some of its holders may have lost it
        self.holder_changes: set[Address] = set()  # requested by name, and its holder or owner has changed
        self.undone_changes: set[Address] = set()  # an expected write was not done

    def configure(self, pools: Pools) -> None:
        """Replace the pools; in O(holders). Every Service keeps what it holds."""
        self.usage.configure(pools)
        for address in self.claims:
            if (usage := self.usage.of(address)) is not None:
                usage.assign(address)
                for namespace in self.claims.namespaces(address):
                    usage.count(namespace, 1)
        for address in self.owners:
            self._change(address)
        self.cooldown.configure(pools)

    def forget_changes(self) -> None:
        """Empty the sets that end in ``_changes``."""
        for each in (self.dispute_changes, self.contest_changes, self.holder_changes, self.undone_changes):
            each.clear()

    def reserve(self, owner: str, addresses: Iterable[Address]) -> None:
        """Set the own addresses of *owner*; none: it is deleted."""
        gone, new = self.owners.replace(owner, addresses)
        for address in (*gone, *new):
            self._update_disputed(address, len(self.claims.of(address)))
        for address in gone:
            self._change(address)
        for address in new:
            if address in self.claims:
                self.contest_changes.add(address)
                self.contests[Contest.NODE_OR_GROUP] += any(each.in_status for each in self.claims.of(address))
            self._change(address)

    def replace(self, key: str, before: Holding | None, after: Holding | None) -> None:
        """Replace what Service *key* holds and requests by name."""
        requested, requests = before.wanted if before else (), after.wanted if after else ()
        if requested != requests:
            self.requested.move(key, requested, requests)
        old = before.claims() if before else {}
        new = after.claims() if after else {}
        for address, claim in old.items():
            if new.get(address) != claim:
                self._replace_claim(address, key, claim, new.get(address))
                if before and self._is_released(address, claim) and (not after or before.is_observed(address)):
                    self.cooldown.release(address, key)  # but not what an expected write did not assign
                if before and address not in new and not before.is_observed(address):
                    self.undone_changes.add(address)
        for address, claim in new.items():
            if address not in old:
                self._replace_claim(address, key, None, claim)

    def _is_released(self, address: Address, was: AddressClaim) -> bool:
        """Whether *was* was the last claim for which kavip served *address*."""
        return was.is_served and not self.claims.is_served(address)

    def _replace_claim(self, address: Address, key: str, was: AddressClaim | None, now: AddressClaim | None) -> None:
        claims, usage = self.claims, self.usage.of(address)
        namespace = key.partition("/")[0]
        was_claimed = address in claims
        had = was is not None or (was_claimed and claims.has_namespace(address, namespace))
        if now is not None and now.in_status and (was is None or not was.in_status):
            self._count_contests(address, now)
        count = claims.put(address, key, was=was, now=now)
        self._update_disputed(address, count)
        if count > 1 and claims.may_clash(address):  # also if a third goes, which the others may have shared with
            self.contest_changes.add(address)
        has = now is not None or (count > 0 and claims.has_namespace(address, namespace))
        if was_claimed != (count > 0) and address in self.requested:
            self.holder_changes.add(address)
        if usage is not None:
            usage.count(namespace, has - had)
            self._update_usage(address, usage)

    def _update_disputed(self, address: Address, claims: int) -> None:
        was_disputed = address in self.disputed
        if claims > 1 or (claims and address in self.owners):
            self.disputed.add(address)
        else:
            self.disputed.discard(address)
        if was_disputed or address in self.disputed:
            self.dispute_changes.add(address)

    def _count_contests(self, address: Address, claim: AddressClaim) -> None:
        """Count the contests that begin with *claim*, which is about to be entered."""
        if address in self.owners:
            self.contests[Contest.NODE_OR_GROUP] += 1
        if self.claims.rival(address, claim.terms) is not None:
            self.contests[Contest.TWO_SERVICES] += self.claims.is_contested(address, claim.terms)

    def _change(self, address: Address) -> None:
        """The owner of *address*, or its cool-down, has changed."""
        if address in self.requested:
            self.holder_changes.add(address)
        if (usage := self.usage.of(address)) is not None:
            self._update_usage(address, usage)

    def _update_usage(self, address: Address, usage: PoolUsage) -> None:
        self._touched(usage.pool.name)
        if address in self.claims:
            usage.assign(address)
        elif address in self.cooldown:
            usage.cool(address)
        elif address in self.owners:
            usage.keep_back(address)
        else:
            usage.free(address)
