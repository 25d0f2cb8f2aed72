"""
The address list of an instance in a published text, read only where it differs from the list that was read before.

An instance may have thousands of addresses, of which one event changes few. The others are compared as bytes, and not
line by line.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final

from kavip.api.address import MOST_READ, Address, read_address
from kavip.vrrp.virtualips import VirtualIP, addresses_of, is_anchor

_LINE: Final = re.compile(r"        ([0-9A-Fa-f:.]+)/([0-9]{1,3}) dev (\S+)")

Lines = tuple[VirtualIP | None, ...]


@dataclass(frozen=True, slots=True)
class AddressList:
    """The whole lines of a *text*: the VIP of each, or None for a line without one, and the *addresses* of the VIPs."""

    text: str = ""
    lines: Lines = ()
    addresses: frozenset[Address] = frozenset()

    @property
    def vips(self) -> tuple[VirtualIP, ...]:
        """The VIPs."""
        return tuple(filter(None, self.lines))

    def then(self, text: str) -> "AddressList":
        """The list in *text*, which mostly has the same lines."""
        begin = _same_beginning(self.text, text)
        end = _same_end(self.text, text, most=min(len(self.text), len(text)) - begin)
        first, last = text.count("\n", 0, begin), len(self.lines) - text.count("\n", len(text) - end)
        come = _read(text[begin : len(text) - end])
        lines = self.lines[:first] + come + self.lines[last:]
        addresses = self.addresses.difference(_addresses(self.lines[first:last])).union(_addresses(come))
        # if they are as many as the lines, no address has left one line and stayed in another
        return AddressList(text, lines, addresses if len(addresses) == len(lines) else _addresses(lines))


def _addresses(lines: Iterable[VirtualIP | None]) -> frozenset[Address]:
    return addresses_of(filter(None, lines))


def _read(text: str) -> Lines:
    return tuple(map(_vip, text.removesuffix("\n").split("\n"))) if text else ()


@lru_cache(maxsize=MOST_READ)  # most are in the next text, too
def _vip(line: str) -> VirtualIP | None:
    found = read_line(line)
    return None if found is None or is_anchor(found.address) else found


def read_line(line: str) -> VirtualIP | None:
    """The address of *line*, which may be an anchor."""
    match = _LINE.fullmatch(line)
    address = read_address(match[1]) if match else None
    return VirtualIP(address, int(match[2]), intern(match[3])) if match and address is not None else None


def _same_beginning(one: str, other: str) -> int:
    """The bytes of the whole lines with which both begin."""
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one.startswith(other[same:middle], same):
            same = middle
        else:
            most = middle - 1
    return one.rfind("\n", 0, same) + 1


def _same_end(one: str, other: str, *, most: int) -> int:
    """The bytes of whole lines with which both end, at *most*; the first of these lines may be left out."""
    same = 0
    while same < most:
        middle = (same + most + 1) // 2
        if one.endswith(other[len(other) - middle : len(other) - same], 0, len(one) - same):
            same = middle
        else:
            most = middle - 1
    return len(other) - 1 - other.find("\n", len(other) - same) if same else 0
