"""
What a Service holds, whether it may keep it, and how that is told.

**Whose status is it?** kavip writes ``AddressAssigned`` together with every address, and names the address in it. So an
entry in status is another controller's where that condition is missing or says ``ForeignStatus`` or ``LeftToPlatform``,
and where it lies outside every pool and the condition does not name it. Such an entry is *adopted* where
the Service could have got it from a pool: it stays, and is kavip's from then on. Else the whole status is left alone,
with ``ForeignStatus``: nothing is added, nothing taken away, until ``kavip.io/reassign`` gives kavip a free hand. A
host name in status is never kavip's. While a write of ours is on its way, the status is ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal, listed
from kavip.ipam import messages
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.record import ASSIGNED_REASONS, FOREIGN_REASONS, write_assigned, write_refused, write_stranded
from kavip.ipam.request import Request
from kavip.names import Reason


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
        return self.reason in ASSIGNED_REASONS or self.reason is Reason.FOREIGN_STATUS


class Tenure(NamedTuple):
    """One Service among the others: all that a decision looks at. The ledger must be configured with the pools."""

    request: Request
    pools: Pools
    ledger: Ledger
    labels: Mapping[str, str] | None
    held: tuple[Address, ...]

    @classmethod
    def of(cls, request: Request, pools: Pools, ledger: Ledger, labels: Mapping[str, str] | None) -> Self:
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
        record = self.request.record
        if record.reason in FOREIGN_REASONS or self.pools.pool_of(address):
            return record.reason not in FOREIGN_REASONS
        return address in record.addresses

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

    def missing(self, stay: tuple[Address, ...]) -> list[int]:
        """The families of which it needs an address besides what may *stay*."""
        has = {address.family for address in stay}
        return [family for family in self.request.families if family not in has]

    # --- outcomes -------------------------------------------------------------------------------------------------
    def foreign(self) -> Allocation:
        """The status stays as another controller wrote it."""
        what = messages.addressed(self.held) or "the host name in status"
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
            message = write_stranded(addresses, listed(flaws))
            if not self.request.reassign:
                message += f'; set {names.REASSIGN_ANNOTATION} to "true" to move to a legal address'
            return Allocation(addresses, pools, kept, Reason.STRANDED, message, None, note, is_driven)
        message = write_assigned(addresses, listed(pools))
        if lacks := self.missing(addresses):
            message += f"; no {FAMILY_NAMES[lacks[0]]} address yet: {self.why_not_more(lacks[0], addresses)}"
        return Allocation(addresses, pools, kept, Reason.ASSIGNED, message, None, note, is_driven)

    def why_not_more(self, family: int, addresses: Sequence[Address]) -> str:
        """Why the pool of *addresses*, which the Service has from now on, does not give it one of *family* as well."""
        pool, namespace = next(filter(None, map(self.pools.pool_of, addresses))), self.request.namespace
        left = self.ledger.quota_left(pool, namespace) if pool.has(family) else None
        if left is not None and left <= sum(self.ledger.costs_quota(each, namespace) for each in addresses):
            return f"maxPerNamespace of pool {pool.name} leaves namespace {namespace} no more"
        return f"pool {pool.name} has none to give"

    def change(self, addresses: tuple[Address, ...]) -> tuple[str, bool]:
        """What it had before it has *addresses*, "" where that is the same or nothing; whether others have it now."""
        if not self.held or addresses == self.held:
            return "", False
        gone = [each for each in self.held if each not in addresses]
        losses = [loss for each in gone if (loss := self.loss(each))]
        return "; ".join([f"was {messages.addressed(self.held)}", *losses[:SHOWN]]), bool(losses)

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
            return replace(refusal, message=write_refused(refusal.message))
        kept = self.with_addresses(keep)
        message = write_refused(refusal.message, keep)
        if kept.reason is Reason.STRANDED:  # stays what it is: the status must not look like another controller's
            return kept._replace(message=f"{kept.message}; {refusal.message}", refusal=refusal)
        return kept._replace(reason=refusal.reason, message=message, refusal=refusal)

    def names_of(self, addresses: Iterable[Address]) -> tuple[str, ...]:
        """The pools of *addresses*, each once."""
        return tuple(dict.fromkeys(pool.name for each in addresses if (pool := self.pools.pool_of(each))))
