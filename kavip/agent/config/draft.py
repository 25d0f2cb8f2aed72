"""A ``vrrp_instance`` while it is being read: what the agent compares, word by word as keepalived would take it."""

import re
from dataclasses import dataclass, field
from typing import Final

from kavip.agent.config.model import DEFAULT_PRIORITY, Instance
from kavip.api.address import BITS, read_address
from kavip.names import MAX_ROUTER_ID
from kavip.vrrp.tracking import Track
from kavip.vrrp.virtualips import VirtualIP

_WEIGHT: Final = re.compile(r"0|-?[1-9][0-9]{0,2}")
_MOST_WEIGHT: Final = 253


@dataclass(slots=True)
class Draft:
    """A ``vrrp_instance`` while it is being read."""

    name: str
    router_id: int = 0
    interface: str = ""
    priority: int = DEFAULT_PRIORITY
    virtual_ips: list[VirtualIP] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)

    def finished(self) -> Instance:
        """What was read, as it stands."""
        return Instance(
            self.name, self.router_id, self.interface, self.priority, tuple(self.virtual_ips), tuple(self.tracks)
        )

    def fault(self) -> str:
        """What is wrong with the instance as a whole."""
        if not self.router_id:
            return "virtual_router_id is missing"
        if not self.interface:
            return "interface is missing"
        twice = first_doubled([str(each.address) for each in self.virtual_ips])
        return f"virtual IP {twice} stands twice" if twice else ""

    def set(self, given: list[str]) -> str:
        """Take a keyword with its values; what is wrong with it, or an empty text."""
        keyword, *values = given
        match keyword:
            case "interface":
                if len(values) != 1:
                    return "interface wants one name"
                self.interface = values[0]
            case "virtual_router_id":
                self.router_id = _number(values, 1, MAX_ROUTER_ID)
                return "" if self.router_id else f"virtual_router_id wants a number from 1 to {MAX_ROUTER_ID}"
            case "priority":
                self.priority = _number(values, 1, 254)
                return "" if self.priority else "priority wants a number from 1 to 254"
        return ""

    def add(self, given: list[str]) -> str:
        """Take a line of an address block; what is wrong with it, or an empty text."""
        text, *options = given
        bare, slash, length = text.partition("/")
        address = read_address(bare)
        if address is None:
            return "not an IP address"
        prefix = _number([length], 1, BITS[address.family]) if slash else BITS[address.family]
        if not prefix:
            return f"prefix length wants a number from 1 to {BITS[address.family]}"
        named = options[options.index("dev") + 1 :] if "dev" in options else []
        interface = named[0] if named else self.interface
        if not interface:
            return "an address without an interface"
        self.virtual_ips.append(VirtualIP(address, prefix, interface))
        return ""

    def follow(self, given: list[str]) -> str:
        """Take a line of the block of track files; what is wrong with it, or an empty text."""
        match given:
            case (name, "weight", weight) if _WEIGHT.fullmatch(weight) and abs(int(weight)) <= _MOST_WEIGHT:
                self.tracks.append(Track(name, int(weight)))
                return ""
        return f"a track file wants a name and a weight from -{_MOST_WEIGHT} to {_MOST_WEIGHT}"


def _number(values: list[str], lowest: int, highest: int) -> int:
    """The number that *values* consist of, or 0, which is nowhere allowed."""
    if len(values) != 1 or not re.fullmatch(r"[1-9][0-9]{0,3}", values[0]):
        return 0
    number = int(values[0])
    return number if lowest <= number <= highest else 0


def first_doubled(values: list[str]) -> str:
    """The first of *values* that stands there again; "" if none does."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return ""
