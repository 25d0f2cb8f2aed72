"""
Asks the segment who has some addresses, as a host without a neighbour cache would.

``python -m tests.cluster.migration.whohas EVERY ADDRESS...`` sends an ARP request for each IPv4 address every EVERY
seconds until its standard input closes, and prints "ready" after the first answer for each. At the end it prints one
JSON object: for each address the list of ``[seconds since start, MAC]`` of all answers.
"""

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from hack.testbed.cluster import Cluster
from tests.cluster.migration.watching import watching

INTERFACE = "eth0"
_ARP = 0x0806
_REPLY = 2
_BODY = struct.Struct("!HHBBH6s4s6s4s")


@dataclass(slots=True)
class Owners:
    """Who answered for each address; complete after the block of :func:`watch_owners`."""

    rows: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    def gap(self, address: str) -> float:
        """The longest time between two answers, in seconds."""
        return max((after[0] - before[0] for before, after in pairwise(self.rows[address])), default=0.0)

    def last(self, address: str, *, seconds: float) -> set[str]:
        """The MACs that answered in the last *seconds*."""
        end = max(moment for rows in self.rows.values() for moment, _ in rows)
        return {mac for moment, mac in self.rows[address] if moment > end - seconds}


@contextmanager
def watch_owners(cluster: Cluster, addresses: Sequence[str], *, every: float = 0.05) -> Iterator[Owners]:
    """Let the client of *cluster* ask for *addresses* during the block."""
    found = Owners()
    with watching(cluster, "tests.cluster.migration.whohas", str(every), *addresses) as output:
        yield found
    found.rows.update({each: [(row[0], row[1]) for row in rows] for each, rows in output.items()})


def ask(every: float, addresses: Sequence[str]) -> dict[str, list[tuple[float, str]]]:
    """Ask until standard input closes."""
    found: dict[str, list[tuple[float, str]]] = {each: [] for each in addresses}
    began, is_ready = time.monotonic(), False
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)) as wire:
        wire.bind((INTERFACE, _ARP))
        wire.setblocking(False)
        own = wire.getsockname()[4]
        sender = _own_address()

        due = began
        while True:
            now = time.monotonic()
            if now >= due:
                due += every
                for each in addresses:
                    body = _BODY.pack(1, 0x0800, 6, 4, 1, own, sender, b"\0" * 6, socket.inet_aton(each))
                    wire.send(b"\xff" * 6 + own + struct.pack("!H", _ARP) + body)
            ready, _, _ = select.select([wire, sys.stdin], [], [], max(0.0, due - time.monotonic()))
            if wire in ready:
                _take(wire, found, began)
            if not is_ready and all(found.values()):
                is_ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            if sys.stdin in ready:
                return found


def _take(wire: socket.socket, found: dict[str, list[tuple[float, str]]], began: float) -> None:
    frame = wire.recv(2048)
    if len(frame) < 14 + _BODY.size:
        return
    *_, operation, mac, address, _, _ = _BODY.unpack_from(frame, 14)
    text = socket.inet_ntoa(address)
    if operation == _REPLY and text in found:
        found[text].append((time.monotonic() - began, mac.hex(":")))


def _own_address() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return socket.inet_aton(probe.getsockname()[0])


if __name__ == "__main__":
    json.dump(ask(float(sys.argv[1]), sys.argv[2:]), sys.stdout)
