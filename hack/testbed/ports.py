"""Ports for programs that get their ports by flags.

They are outside the range that the kernel gives to clients: a connection of another process could take such a port
between the check and the program's start. Each process claims its own block of ports by a name that only one process
can have, and that the kernel releases when the process ends.
"""

import functools
import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

_FIRST = 12_000
_BLOCK = 64
_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 without a listener, which no other process of the testbed offers."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", next(_offers())))
            except OSError:
                continue
            found.append(int(one.getsockname()[1]))
        return found


@functools.cache
def _offers() -> Iterator[int]:
    """Ours, for ever; where clients may have any port, whatever the kernel chooses."""
    return _blocks(range(_FIRST, int(_CLIENTS.read_text().split()[0]), _BLOCK))


def _blocks(begins: range) -> Iterator[int]:
    ours: list[socket.socket] = []
    ports: list[int] = []
    for begin in random.sample(begins, len(begins)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0kavip-ports-{begin}")
        except OSError:  # another process has it
            claim.close()
            continue
        ours.append(claim)
        block = range(begin, min(begin + _BLOCK, begins.stop))
        yield from block
        ports += block
    yield from itertools.cycle(ports or [0])
