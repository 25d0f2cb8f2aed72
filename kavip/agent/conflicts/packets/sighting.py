"""What a packet on the LAN says about an address; hardware addresses as text and as bytes."""

from enum import Enum
from typing import Final, NamedTuple

from kavip.api.address import Address

BROADCAST: Final = b"\xff" * 6
_MULTICAST_BIT: Final = 1  # of the first byte


class SightingKind(Enum):
    """
    CLAIM: the sender has the address. PROBE: the sender asks whether another machine has it, to use it then.

    ANSWER: the sender answers an announcement. A router with proxy ARP does so for addresses of other machines; only a
    machine that has the address answers a probe.
    """

    CLAIM = 1
    PROBE = 2
    ANSWER = 3


class Sighting(NamedTuple):
    """*address* was claimed, probed or answered for by the machine with the *hardware* address."""

    address: Address
    hardware: str
    kind: SightingKind


def hardware_text(raw: bytes) -> str:
    """The text of an Ethernet address; "" if *raw* is none of a single machine."""
    is_one = len(raw) == 6 and any(raw) and not raw[0] & _MULTICAST_BIT
    return raw.hex(":") if is_one else ""
