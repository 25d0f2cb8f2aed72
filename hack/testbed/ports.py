"""Ports for programs that want to be told theirs before they start.

They are none that the kernel gives to clients: between our look and the program's start some connection of somebody's
would now and then have taken one of those. Each process offers one after the other, from a beginning of its own, so
that two at once do not offer the same.
"""

import functools
import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

_FIRST = 12_000
_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens now."""
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
    """All below those of clients, for ever; where there are none, whatever the kernel chooses."""
    ports = range(_FIRST, int(_CLIENTS.read_text().split()[0]))
    begin = random.randrange(len(ports)) if ports else 0
    return itertools.cycle([*ports[begin:], *ports[:begin]] or [0])
