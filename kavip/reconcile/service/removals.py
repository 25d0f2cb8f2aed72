"""
What to do when somebody else takes the address that kavip gave out of the status of a Service.

Once may be a slip, and the address is written again at once. Whoever does it again, a second controller that wants the
same Service, would do it for ever: kavip writes ever more rarely, and says so in between.
"""

from datetime import datetime, timedelta
from typing import Final

from kavip.api.address import Address
from kavip.ipam import messages
from kavip.names import Reason
from kavip.reconcile.plan import AddressRemoval, ConditionState

FIRST: Final = 1.0  # seconds between the first two attempts, at least
LONGEST: Final = 300.0
FORGOTTEN: Final = 600.0  # seconds of peace after which the next removal is the first again


def removal(before: AddressRemoval | None, addresses: tuple[Address, ...], *, now: datetime) -> AddressRemoval:
    """*addresses* were removed, once more than *before*."""
    is_first = before is None or (now - before.until).total_seconds() > FORGOTTEN
    times = 1 if is_first or before is None else before.times + 1
    return AddressRemoval(addresses, times, now + timedelta(seconds=min(FIRST * 2.0 ** (times - 1), LONGEST)))


def rest(found: AddressRemoval, now: datetime) -> float:
    """The seconds until the addresses are written again."""
    return (found.until - now).total_seconds()


def verdict(found: AddressRemoval) -> ConditionState:
    """What is said until then."""
    message = (
        f"another controller removes {messages.join_addresses(found.addresses)}, which kavip assigned; kavip tries "
        "again every few minutes: have the other one leave this Service alone (MetalLB: --lb-class)"
    )
    return ConditionState("False", Reason.FOREIGN_STATUS, message)
