"""
What a Service holds, and whether it may keep it.

**Who wrote the status?** kavip records the addresses that it assigns in its own condition (:mod:`.record`). An address
in status was written by another controller if kavip has not written that condition, if the condition says
``ForeignStatus`` or ``LeftToPlatform``, or if the address lies outside every pool and the record does not name it. Such
an address is *adopted* if the Service could get it from a pool: it stays, and kavip manages it from then on. Otherwise
kavip leaves the whole status as it is, with ``ForeignStatus``, until ``kavip.io/reassign: "true"`` permits changes. A
host name in status is never kavip's. While a status write of kavip is not observed yet, the status is kavip's.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Self

from kavip.api.address import Address
from kavip.api.refusal import SHOWN
from kavip.ipam import messages
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.record import FOREIGN_REASONS
from kavip.ipam.request import Request


class Ownership(NamedTuple):
    """One request, and the addresses that its Service holds. The ledger must be configured with *pools*."""

    request: Request
    pools: Pools
    ledger: Ledger
    labels: Mapping[str, str] | None  # of the namespace
    held: tuple[Address, ...]
    avoided: frozenset[Address] = frozenset()  # that it gives up, because another machine has them

    @classmethod
    def of(
        cls,
        request: Request,
        pools: Pools,
        ledger: Ledger,
        labels: Mapping[str, str] | None,
        avoided: frozenset[Address] = frozenset(),
    ) -> Self:
        """The Service holds what the ledger records, expected writes included."""
        held = ledger.held(request.key)
        current = request.current if held is None else held
        return cls(ledger.with_default_group(request), pools, ledger, labels, current, avoided)

    # --- the writer of the status ---------------------------------------------------------------------------------
    def is_foreign(self) -> bool:
        """Whether another controller wrote the status, and kavip does not adopt it."""
        request = self.request
        if request.alien:
            return True
        if not self.held or self.ledger.is_expecting(request.key):
            return False
        if all(map(self.is_ours, self.held)):
            return False
        fit = all(
            self.is_ours(address) or (address.family in request.families and self.fits(address))
            for address in self.held
        )
        return not fit or bool(self.surplus())

    def is_adopted(self, addresses: Iterable[Address]) -> bool:
        """Whether another controller wrote one of *addresses*, which the Service keeps, before kavip did."""
        record = self.request.record
        if record.reason not in FOREIGN_REASONS:
            return record.is_adopted and any(each in record.addresses for each in addresses)
        if not self.held or self.ledger.is_expecting(self.request.key):
            return False
        return any(each in self.held for each in addresses)

    def surplus(self) -> tuple[Address, ...]:
        """The addresses that it holds beyond the number that it may keep."""
        kept = self.first_of(self.held)
        return tuple(each for each in self.held if each not in kept and each.family in self.request.families)

    def is_ours(self, address: Address) -> bool:
        """Whether kavip assigned *address*, which stands in status."""
        record = self.request.record
        if record.reason in FOREIGN_REASONS or self.pools.pool_of(address):
            return record.reason not in FOREIGN_REASONS
        return address in record.addresses

    # --- what it may keep -----------------------------------------------------------------------------------------
    def fits(self, address: Address) -> bool:
        """Whether the Service could get *address* from its pool today if it were free."""
        return not self.flaw(address)

    def flaw(self, address: Address) -> str:
        """Why the Service could not get *address* today even if it were free; "" if it could."""
        pool = self.pools.pool_of(address)
        if pool is None:
            return "is in no pool"
        if flaw := pool.why_barred(address, self.request.key):
            return flaw
        if not pool.auto_assign and not self.pools.is_chosen(pool, self.request):
            return f"is in pool {pool.name}, which has autoAssign: false and is not named"
        mismatch = pool.mismatch(self.request, self.labels)
        return f"is in pool {pool.name}, which {mismatch}" if mismatch else ""

    def why_closed(self, pool: Pool) -> str:
        """Why *pool* gives the Service no new address now; "" if it may. Completes "pool X ..."."""
        return self.pools.why_closed(pool, self.request, self.labels)

    def keepable(self) -> tuple[Address, ...]:
        """
        The addresses that it holds, has the family for, and does not give up or lose to an owner or an older Service.
        """
        if not self.held:
            return ()
        families, terms = self.request.families, self.request.terms
        kept = tuple(each for each in self.held if each.family in families and self.ledger.keeps(each, terms))
        return tuple(each for each in kept if each not in self.avoided) if self.avoided else kept

    def first_of(
        self, addresses: tuple[Address, ...], *, most: int = 0, room_for: Collection[Address] = ()
    ) -> tuple[Address, ...]:
        """
        Those of *addresses* that it may keep by number: first those requested by name, then the others in their order.

        *most*: of each family, if not the number that it may keep. *room_for*: addresses that it gets, too.
        """
        if not addresses:
            return ()
        request, limit = self.request, most or self.request.most
        if len(addresses) + len(room_for) <= limit:  # most decisions
            return tuple(each for each in addresses if each.family in request.families)
        left = dict.fromkeys(request.families, limit)
        for family in (each.family for each in room_for if each not in addresses):
            left[family] -= 1
        kept: set[Address] = set()
        for each in sorted(addresses, key=lambda address: address not in request.wanted):
            if left.get(each.family, 0) > 0:
                left[each.family] -= 1
                kept.add(each)
        return tuple(each for each in addresses if each in kept)

    def is_enough(self, addresses: tuple[Address, ...]) -> bool:
        """Whether the Service has with *addresses* what it needs: PreferDualStack needs one family only."""
        request, lacks = self.request, self.request.lacking(addresses)
        if not lacks:
            return True
        if request.require_all or not set(request.wanted).issubset(addresses):
            return False
        return len(set(lacks)) < len(request.families)

    # --- what changes ---------------------------------------------------------------------------------------------
    def change(self, addresses: tuple[Address, ...]) -> tuple[str, bool]:
        """
        What it had before it has *addresses*, and whether it loses one of those to another holder.

        The text is "" if it had nothing or has the same.
        """
        if not self.held or addresses == self.held:
            return "", False
        gone = [each for each in self.held if each not in addresses]
        losses = [loss for each in gone if (loss := self._loss(each))]
        return "; ".join([f"was {messages.join_addresses(self.held)}", *losses[:SHOWN]]), bool(losses)

    def _loss(self, address: Address) -> str:
        """Why the Service loses *address*; "" if it keeps it."""
        if address in self.avoided:
            return f"another machine on the LAN has {address}"
        if owner := self.ledger.owner(address):
            return f"{address} is an address of {owner}"
        if self.ledger.keeps(address, self.request.terms):
            return ""
        return f"{address} belongs to {self.ledger.claims.rival(address, self.request.terms)}, which is older"

    def pool_names(self, addresses: Iterable[Address]) -> tuple[str, ...]:
        """The names of the pools of *addresses*, each once."""
        return tuple(dict.fromkeys(pool.name for each in addresses if (pool := self.pools.pool_of(each))))
