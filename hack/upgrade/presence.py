"""Which nodes have each of many VIPs, from one look at all kernels to the next."""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hack.testbed.segment import Host

_ADDRESS: Final = re.compile(r"^local (\S+) dev eth0 ", re.MULTILINE)


@dataclass(slots=True)
class _Spans:
    """How long VIPs are in a state: *since* when it holds, and the *longest* time in seconds that it has held."""

    since: dict[str, float] = field(default_factory=dict)
    longest: float = 0.0

    def take(self, vips: frozenset[str], before: float, now: float) -> None:
        """The state holds for *vips*; *before*: when the last look began, and *now*: when this one ended."""
        for vip in vips - self.since.keys():
            self.since[vip] = before
        for vip in self.since:
            self.longest = max(self.longest, now - self.since[vip])
        for vip in self.since.keys() - vips:
            del self.since[vip]


class Presence:
    """
    The moves of *vips*, and the longest time in seconds for which one was on no node, or on several.

    Each time is a maximum: it includes the look before the state and the first one after it. What begins and ends
    between two looks is not seen; *gap*: the longest time in seconds from the begin of a look to the end of the next.
    """

    def __init__(self, vips: Iterable[str]) -> None:
        """Nothing is known of *vips* yet."""
        self.vips = frozenset(vips)
        self.moves = 0
        self.gap = 0.0
        self._absent, self._doubled = _Spans(), _Spans()
        self._holder: dict[str, str] = {}
        self._began: float | None = None

    @property
    def absent(self) -> float:
        """The longest time for which a VIP was on no node."""
        return self._absent.longest

    @property
    def doubled(self) -> float:
        """The longest time for which a VIP was on several nodes."""
        return self._doubled.longest

    def take(self, began: float, ended: float, held: Mapping[str, frozenset[str]]) -> None:
        """Take a look at all nodes, between *began* and *ended*: the addresses that each node has."""
        somewhere: set[str] = set()
        several: set[str] = set()
        for addresses in held.values():
            several |= somewhere & addresses
            somewhere |= addresses
        before = began if self._began is None else self._began
        self.gap = max(self.gap, ended - before)
        self._absent.take(self.vips - somewhere, before, ended)
        self._doubled.take(self.vips & several, before, ended)
        self._began = began
        for node, addresses in sorted(held.items()):
            for vip in self.vips & addresses - several:
                self.moves += self._holder.setdefault(vip, node) != node
                self._holder[vip] = node

    def __str__(self) -> str:
        return (
            f"{len(self.vips):,} VIPs moved {self.moves:,} times; one was on no node for at most {self.absent:.2f} s, "
            f"and on two nodes for at most {self.doubled:.2f} s (two looks take at most {self.gap:.2f} s)"
        )


def addresses(node: Host) -> frozenset[str]:
    """
    The IPv4 addresses in the kernel of *node*.

    They are read from its local routes. The kernel's list of addresses is read by position, so that an address may be
    missing if one before it is deleted meanwhile.
    """
    return frozenset(_ADDRESS.findall(node.exec("ip", "-4", "route", "show", "table", "local").stdout))


@contextmanager
def watching(nodes: Sequence[Host], vips: Mapping[str, Iterable[str]]) -> Iterator[Mapping[str, Presence]]:
    """Look at *nodes* again and again during the block; yields what is seen of each set of *vips*."""
    found, over = {name: Presence(some) for name, some in vips.items()}, threading.Event()

    def look() -> None:
        while not over.is_set():
            began = time.monotonic()
            held = {node.name: addresses(node) for node in nodes}
            for each in found.values():
                each.take(began, time.monotonic(), held)

    with ThreadPoolExecutor(1, "look at the nodes") as threads:
        looking = threads.submit(look)
        try:
            yield found
        finally:
            over.set()
            looking.result()
