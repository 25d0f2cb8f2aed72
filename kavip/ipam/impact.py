"""
Which Services an edit of a pool would strand: the webhook asks before a VIPPool changes.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kavip.api.address import Address
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import Pool
from kavip.ipam.request import Terms


class StrandedService(NamedTuple):
    """A Service and the address that it has."""

    service: Terms
    address: Address

    def __str__(self) -> str:
        """As a list in a message names it."""
        return f"{self.service.key} ({self.address})"


@dataclass(frozen=True, slots=True)
class PoolImpact:
    """
    What an edit does to the Services that have addresses of the pool, each sorted.

    *lost*: addresses in status that the pool would no longer assign; admission refuses. *external*: the same for
    externalIPs; *misfits*: addresses that would be reserved for another Service; admission warns.
    """

    lost: tuple[StrandedService, ...] = ()
    external: tuple[StrandedService, ...] = ()
    misfits: tuple[StrandedService, ...] = ()


def assess_edit(before: Pool, after: Pool | None, ledger: Ledger) -> PoolImpact:
    """The impact of replacing *before* by *after*; None: deleting it. In O(holders)."""
    lost: list[StrandedService] = []
    external: list[StrandedService] = []
    misfits: list[StrandedService] = []
    for address, terms, in_status in ledger.claims_in(before):
        entry = StrandedService(terms, address)
        if before.is_usable(address) and not (after and after.is_usable(address)):
            (lost if in_status else external).append(entry)
        elif after and in_status and after.why_barred(address, terms.key) and not before.why_barred(address, terms.key):
            misfits.append(entry)
    return PoolImpact(tuple(lost), tuple(external), tuple(misfits))
