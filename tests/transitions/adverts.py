"""
Captures the VRRP adverts on a segment, and says which node was master when.

``python -m tests.transitions.adverts COUNT`` listens on every port of the bridge until standard input closes. It prints
"ready" when it has received adverts of COUNT instances, or after :data:`_PATIENCE` seconds. At the end it prints a JSON
list of the adverts in the order of their arrival.

The port of the bridge identifies the node. The kernel stamps each advert: a program on a busy machine may read late.
"""

import json
import math
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import combinations
from typing import NamedTuple

VRRP = 112
_ALL_FRAMES = 3  # ETH_P_ALL
_IPV4, _IPV6 = 0x0800, 0x86DD
_BUFFER = 8 << 20
_PATIENCE, _PAUSE = 3.0, 0.05
_LOST = 2.5  # intervals without an advert that end a period
_STAMPED = 35  # SO_TIMESTAMPNS
_STAMP = struct.Struct("@ll")


class Advert(NamedTuple):
    """One advert, sent by *node* to *target* at *moment* (monotonic). *interval*: the one it announces, in seconds."""

    moment: float
    node: str
    family: int
    router_id: int
    priority: int
    interval: float
    target: str = ""


class MasterPeriod(NamedTuple):
    """A period in which *node* was master: its *adverts*, and when it sent priority 0, if it did."""

    node: str
    adverts: tuple[Advert, ...]
    resigned: float | None = None

    @property
    def began(self) -> float:
        """The moment of the first advert."""
        return self.adverts[0].moment

    @property
    def ended(self) -> float:
        """The moment of the last advert."""
        return self.adverts[-1].moment

    @property
    def interval(self) -> float:
        """The advert interval that it announced, in seconds."""
        return self.adverts[0].interval

    @property
    def established(self) -> float:
        """
        The moment of its second advert to the same target: a new master is established then; else infinite.

        What it sends at once, because it hears a lower priority, does not count.
        """
        first = self.adverts[0]
        later = (each for each in self.adverts[1:] if each.target == first.target)
        return next((each.moment for each in later if each.moment - first.moment > each.interval / 2), math.inf)

    def turns(self, since: float, until: float) -> int:
        """How many rounds of adverts it sent after *since*, until *until*. One round goes to every peer at once."""
        found, last = 0, -math.inf
        for each in self.adverts:
            if since < each.moment <= until and each.moment - last > each.interval / 2:
                found, last = found + 1, each.moment
        return found


class DoubleMaster(NamedTuple):
    """Two masters of one VRID, and for how many *seconds* both sent adverts."""

    router_id: int
    family: int
    nodes: tuple[str, str]
    seconds: float


def parse(frame: bytes) -> tuple[int, int, int, float, str] | None:
    """Family, VRID, priority, interval and target of the advert in an Ethernet *frame*; None for any other frame."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == _IPV4 and frame[14 + 9] == VRRP:
        family, target, vrrp = 4, frame[14 + 16 : 14 + 20], frame[14 + (frame[14] & 15) * 4 :]
    elif kind == _IPV6 and frame[14 + 6] == VRRP:
        family, target, vrrp = 6, frame[14 + 24 : 14 + 40], frame[14 + 40 :]
    else:
        return None
    version, tail = vrrp[0] >> 4, struct.unpack_from("!H", vrrp, 4)[0]
    interval = (tail & 0x0FFF) / 100 if version == 3 else float(tail & 0xFF)
    return family, vrrp[1], vrrp[2], interval, str(ip_address(target))


def master_periods(adverts: Iterable[Advert]) -> list[MasterPeriod]:
    """The periods in which nodes were master, by the *adverts* of one VRID and family, sorted by their beginning."""
    running: dict[str, list[Advert]] = {}
    done: list[MasterPeriod] = []
    for each in adverts:
        received = running.get(each.node, [])
        if received and each.moment > received[-1].moment + _LOST * received[-1].interval:
            done.append(MasterPeriod(each.node, tuple(running.pop(each.node))))
        if each.priority:
            running.setdefault(each.node, []).append(each)
        elif each.node in running:
            done.append(MasterPeriod(each.node, tuple(running.pop(each.node)), each.moment))
    done += [MasterPeriod(node, tuple(received)) for node, received in running.items()]
    return sorted(done, key=lambda period: period.began)


def by_router(adverts: Iterable[Advert]) -> dict[tuple[int, int], list[Advert]]:
    """*adverts* by VRID and family."""
    found: dict[tuple[int, int], list[Advert]] = {}
    for each in adverts:
        found.setdefault((each.router_id, each.family), []).append(each)
    return dict(sorted(found.items()))


def double_masters(adverts: Sequence[Advert]) -> tuple[DoubleMaster, ...]:
    """
    Every time that two nodes were master of the same VRID: each went on after the other had sent an advert.

    Adverts may cross: a master that is about to send one sends it, and receives the other one afterwards. So one round
    is allowed, however late it is. Between two rounds there is an interval in which the master did not yield.
    """
    found = []
    for (router_id, family), received in by_router(adverts).items():
        for first, second in combinations(master_periods(received), 2):
            since, until = second.began, min(first.ended, second.ended)
            if first.node != second.node and first.turns(since, until) > 1:
                found.append(DoubleMaster(router_id, family, (first.node, second.node), until - since))
    return tuple(found)


def listen(instances: int) -> list[Advert]:
    """The adverts that arrive until standard input closes."""
    found: list[Advert] = []
    received: set[tuple[int, int]] = set()
    is_ready, patient = False, time.monotonic() + _PATIENCE
    # the difference of the clocks; an interruption makes it smaller
    ahead = max(time.time_ns() - time.monotonic_ns() for _ in range(9))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        wire.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
        while sys.stdin not in (ready := select.select([wire, sys.stdin], [], [], _PAUSE)[0]) or wire in ready:
            if not is_ready and (len(received) >= instances or time.monotonic() > patient):
                is_ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            if wire not in ready:
                continue
            frame, [(_, _, stamp)], _, (port, _, kind, *_) = wire.recvmsg(2048, socket.CMSG_SPACE(_STAMP.size))
            if kind != socket.PACKET_OUTGOING and port.startswith("p-") and (fields := parse(frame)):
                seconds, nanoseconds = _STAMP.unpack(stamp)
                moment = (seconds * 1_000_000_000 + nanoseconds - ahead) / 1e9
                found.append(Advert(moment, port.removeprefix("p-"), *fields))
                received.add(fields[:2])
    return found


if __name__ == "__main__":
    json.dump(listen(int(sys.argv[1])), sys.stdout)
