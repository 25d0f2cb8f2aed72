"""
Whom an edit of a pool would strand, and whom it would no longer fit: what the webhook asks before a VIPPool changes.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.pool import VIPPool
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import parse_pool
from kavip.ipam.request import Terms


class Stranded(NamedTuple):
    """One Service and the address that it has."""

    service: Terms
    address: Address

    def __str__(self) -> str:
        """As a list in a message names it."""
        return f"{self.service.key} ({self.address})"


@dataclass(frozen=True, slots=True)
class Stranding:
    """
    What an edit does to those that have addresses of the pool.

    *lost*: addresses in status that the pool would no longer hand out: to be refused. *external*: the same of
    externalIPs, *misfits*: addresses that would be reserved for somebody else: to be warned about. Each sorted.
    """

    lost: tuple[Stranded, ...] = ()
    external: tuple[Stranded, ...] = ()
    misfits: tuple[Stranded, ...] = ()


def stranding(old: VIPPool, new: VIPPool | None, ledger: Ledger) -> Stranding:
    """What putting *new* in the place of *old* does, None: removing it; in O(holders)."""
    before, _ = parse_pool(old)
    if before is None:
        return Stranding()
    after, _ = parse_pool(new) if new is not None else (None, ())
    lost: list[Stranded] = []
    external: list[Stranded] = []
    misfits: list[Stranded] = []
    for address, terms, is_standing in ledger.assigned(before):
        entry = Stranded(terms, address)
        if before.is_usable(address) and not (after and after.is_usable(address)):
            (lost if is_standing else external).append(entry)
        elif after and is_standing and after.bar(address, terms.key) and not before.bar(address, terms.key):
            misfits.append(entry)
    return Stranding(tuple(lost), tuple(external), tuple(misfits))
