"""
The adverts on a segment, as its switch hears them, and who was master by them.

``python -m tests.changes.wire COUNT`` listens on every port of the bridge until standard input closes, and prints a
JSON list of adverts in the order of their arrival. It says "ready" when it has heard of as many instances as are there,
or has waited for :data:`_PATIENCE` seconds. A node is known by the port that it is plugged into, and moments are the
kernel's: a program on a busy machine reads late, and in the right order.
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
_LOST = 2.5  # intervals without an advert that end a reign
_STAMPED = 35  # SO_TIMESTAMPNS
_STAMP = struct.Struct("@ll")


class Advert(NamedTuple):
    """One advertisement, sent by *node* to *target* at *moment* (monotonic); *interval* as it says, in seconds."""

    moment: float
    node: str
    family: int
    router_id: int
    priority: int
    interval: float
    target: str = ""


class Reign(NamedTuple):
    """The adverts by which *node* was heard as master, and when it was heard to be one no more, if it was."""

    node: str
    adverts: tuple[Advert, ...]
    goodbye: float | None = None

    @property
    def began(self) -> float:
        """When it was heard first."""
        return self.adverts[0].moment

    @property
    def ended(self) -> float:
        """When it was heard last."""
        return self.adverts[-1].moment

    @property
    def interval(self) -> float:
        """How often it said that it would speak, in seconds."""
        return self.adverts[0].interval

    @property
    def stood(self) -> float:
        """When it spoke again: by then it has done what a new master does. For ever, if it never did."""
        return next((each.moment for each in self.adverts[1:] if each.target == self.adverts[0].target), math.inf)

    def turns(self, since: float, until: float) -> int:
        """How often its time came after *since*, to *until*: to every peer, and in answer, it speaks at once."""
        found, last = 0, -math.inf
        for each in self.adverts:
            if since < each.moment <= until and each.moment - last > each.interval / 2:
                found, last = found + 1, each.moment
        return found


class Double(NamedTuple):
    """Two masters of one VRID, and for how many *seconds* both were heard."""

    router_id: int
    family: int
    nodes: tuple[str, str]
    seconds: float


def parse(frame: bytes) -> tuple[int, int, int, float, str] | None:
    """Family, VRID, priority, interval and target of the advert in an Ethernet *frame*; None for what is none."""
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


def reigns(adverts: Iterable[Advert]) -> list[Reign]:
    """The reigns that the *adverts* of one VRID and family make, by their beginning."""
    running: dict[str, list[Advert]] = {}
    done: list[Reign] = []
    for each in adverts:
        heard = running.get(each.node, [])
        if heard and each.moment > heard[-1].moment + _LOST * heard[-1].interval:
            done.append(Reign(each.node, tuple(running.pop(each.node))))
        if each.priority:
            running.setdefault(each.node, []).append(each)
        elif each.node in running:
            done.append(Reign(each.node, tuple(running.pop(each.node)), each.moment))
    done += [Reign(node, tuple(heard)) for node, heard in running.items()]
    return sorted(done, key=lambda reign: reign.began)


def by_router(adverts: Iterable[Advert]) -> dict[tuple[int, int], list[Advert]]:
    """*adverts* by VRID and family."""
    found: dict[tuple[int, int], list[Advert]] = {}
    for each in adverts:
        found.setdefault((each.router_id, each.family), []).append(each)
    return dict(sorted(found.items()))


def doubles(adverts: Sequence[Advert]) -> tuple[Double, ...]:
    """
    Every time that two nodes were master of the same VRID: each went on when the other had been heard.

    Adverts may cross: a master that was about to send one sends it, and hears and answers the other one afterwards. So
    one turn is excused, however late it is; between two lies an interval, in which it did not listen.
    """
    found = []
    for (router_id, family), heard in by_router(adverts).items():
        for first, second in combinations(reigns(heard), 2):
            since, until = second.began, min(first.ended, second.ended)
            if first.node != second.node and first.turns(since, until) > 1:
                found.append(Double(router_id, family, (first.node, second.node), until - since))
    return tuple(found)


def listen(instances: int) -> list[Advert]:
    """The adverts until standard input closes."""
    found: list[Advert] = []
    heard: set[tuple[int, int]] = set()
    is_ready, patient = False, time.monotonic() + _PATIENCE
    ahead = max(time.time_ns() - time.monotonic_ns() for _ in range(9))  # of the clocks; less where it was interrupted
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        wire.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
        while sys.stdin not in (ready := select.select([wire, sys.stdin], [], [], _PAUSE)[0]) or wire in ready:
            if not is_ready and (len(heard) >= instances or time.monotonic() > patient):
                is_ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            if wire not in ready:
                continue
            frame, [(_, _, stamp)], _, (port, _, kind, *_) = wire.recvmsg(2048, socket.CMSG_SPACE(_STAMP.size))
            if kind != socket.PACKET_OUTGOING and port.startswith("p-") and (said := parse(frame)):
                seconds, nanoseconds = _STAMP.unpack(stamp)
                moment = (seconds * 1_000_000_000 + nanoseconds - ahead) / 1e9
                found.append(Advert(moment, port.removeprefix("p-"), *said))
                heard.add(said[:2])
    return found


if __name__ == "__main__":
    json.dump(listen(int(sys.argv[1])), sys.stdout)
