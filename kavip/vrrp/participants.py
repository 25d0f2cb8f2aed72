"""
Who takes part in a text that runs: which nodes it lists, from where each of them sends, and whom the others hear.

All instances of a family agree on that, so the first of each is read, and of a large text no more than that.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kavip.api.address import Address, read_address
from kavip.vrrp.instances import NOBODY

_LINE: Final = re.compile(
    r"^ +@(?P<listed>\S+) priority \d+$|^ +@(?P<source>[^\s^]+) unicast_src_ip (?P<own>\S+)$"
    r"|^ +@\^(?P<peer>\S+) (?P<heard>[0-9A-Fa-f:.]+)(?: |$)",
    re.MULTILINE,
)
_OPEN: Final = "vrrp_instance "
_VIPS: Final = "\n    virtual_ipaddress {\n"


@dataclass(frozen=True, slots=True)
class Participants:
    """The *listed* nodes have a priority; *sources* and *heard* are (node, address), and empty in multicast."""

    listed: frozenset[str] = frozenset()
    sources: frozenset[tuple[str, Address]] = frozenset()
    heard: frozenset[tuple[str, Address]] = frozenset()

    def source(self, node: str, family: int) -> Address | None:
        """The address of *family* that *node* sends from."""
        return next((address for name, address in self.sources if name == node and address.family == family), None)

    def hears(self, node: str, family: int) -> frozenset[Address]:
        """The addresses of *family* at which the others hear *node*."""
        return frozenset(address for name, address in self.heard if name == node and address.family == family)

    def families(self) -> frozenset[int]:
        """The families in which unicast runs."""
        return frozenset(address.family for _, address in self.sources)


@lru_cache(maxsize=16)
def participants_of(text: str) -> Participants:
    """Who takes part in *text*; nobody where kavip has not written it."""
    listed: set[str] = set()
    sources: set[tuple[str, Address]] = set()
    heard: set[tuple[str, Address]] = set()
    for block in _blocks(text):
        for match in _LINE.finditer(block):
            if match["listed"]:
                listed.add(match["listed"])
            elif match["source"] and (address := read_address(match["own"])):
                sources.add((match["source"], address))
            elif match["peer"] and (address := read_address(match["heard"])):
                heard.add((match["peer"], address))
    return Participants(frozenset(listed), frozenset(sources), frozenset(heard))


def _blocks(text: str) -> Iterator[str]:
    """The first instance, and the first unicast one of each family: what stands before their VIPs."""
    marks = [_OPEN, *(f" unicast_src_ip {address}\n" for address in NOBODY.values())]
    for mark in marks:
        found = text.find(mark)
        if found >= 0:
            begin = text.rfind(_OPEN, 0, found + len(_OPEN))
            yield text[begin : text.find(_VIPS, begin)]
