"""
The address list of an instance in a published text, read only where it differs from the list that was read before.

An instance may have thousands of addresses, of which one event changes few. The others are compared as text, and not
line by line.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final

from kavip.api.address import BITS, MOST_READ, Address, read_address
from kavip.api.naming import is_interface
from kavip.vrrp.tokens import WORD
from kavip.vrrp.virtualips import SHORTEST_PREFIX, VirtualIP, addresses_of, is_anchor

_LINE: Final = re.compile(rf"        ([0-9A-Fa-f:.]+)/([0-9]{{1,3}}) dev ({WORD})")
_LONGEST: Final = 128  # characters of a line; one with an IPv6 address has 71 at most

Lines = tuple[VirtualIP | None, ...]


@dataclass(frozen=True, slots=True)
class AddressList:
    """
    The whole lines of a *text*: the VIP of each, or None for a line without one, and the *addresses* of the VIPs.

    *unreadable*: how many lines are no address that kavip writes.
    """

    text: str = ""
    lines: Lines = ()
    addresses: frozenset[Address] = frozenset()
    unreadable: int = 0

    @property
    def vips(self) -> tuple[VirtualIP, ...]:
        """The VIPs."""
        return tuple(filter(None, self.lines))

    def then(self, text: str) -> "AddressList":
        """The list in *text*, which mostly has the same lines."""
        before, shorter = self.text, min(len(self.text), len(text))
        begin = _agreement(shorter, lambda since, until: before.startswith(text[since:until], since))
        begin = text.rfind("\n", 0, begin) + 1  # whole lines
        end = len(text) - _agreement(
            shorter - begin,
            lambda since, until: before.endswith(text[len(text) - until : len(text) - since], 0, len(before) - since),
        )
        end = text.find("\n", end) + 1 or len(text)
        first, last = text.count("\n", 0, begin), len(self.lines) - text.count("\n", end)
        come, left = _read(text[begin:end]), before[begin : end + len(before) - len(text)]
        lines = self.lines[:first] + come + self.lines[last:]
        addresses = self.addresses.difference(_addresses(self.lines[first:last])).union(_addresses(come))
        # if they are as many as the lines, no address has left one line and stayed in another
        unreadable = self.unreadable + _unreadable(text[begin:end], come) - _unreadable(left, self.lines[first:last])
        return AddressList(text, lines, addresses if len(addresses) == len(lines) else _addresses(lines), unreadable)


def _agreement(most: int, agrees: Callable[[int, int], bool]) -> int:
    """The largest number up to *most* such that two texts agree so far; *agrees* compares a further part of both."""
    same = 0
    while same < most:
        middle = (same + most + 1) // 2
        if agrees(same, middle):
            same = middle
        else:
            most = middle - 1
    return same


def _unreadable(text: str, lines: Lines) -> int:
    """How many of *lines*, which are those of *text*, are neither a VIP nor an anchor."""
    if all(lines):
        return 0
    return sum(vip is None and read_line(line) is None for vip, line in zip(lines, _split(text), strict=True))


def _split(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _addresses(lines: Iterable[VirtualIP | None]) -> frozenset[Address]:
    return addresses_of(filter(None, lines))


def _read(text: str) -> Lines:
    lines = _split(text)
    if max(map(len, lines), default=0) > _LONGEST:
        lines = [each if len(each) <= _LONGEST else "" for each in lines]  # others must not fill the cache
    return tuple(map(_vip, lines))


@lru_cache(maxsize=MOST_READ)  # most are in the next text, too
def _vip(line: str) -> VirtualIP | None:
    found = read_line(line)
    return None if found is None or is_anchor(found.address) else found


def read_line(line: str) -> VirtualIP | None:
    """The address of *line*, which may be an anchor; None if no configuration of kavip can have it."""
    match = _LINE.fullmatch(line)
    address = read_address(match[1]) if match else None
    if match is None or address is None or not is_interface(match[3]):
        return None
    length = int(match[2])
    is_valid = SHORTEST_PREFIX[address.family] <= length <= BITS[address.family]
    return VirtualIP(address, length, intern(match[3])) if is_valid else None
