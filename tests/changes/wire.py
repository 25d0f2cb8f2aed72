"""
The adverts on a segment, as its switch hears them, and who was master by them.

``python -m tests.changes.wire COUNT`` listens on every port of the bridge until standard input closes, and prints a
JSON list of adverts in the order of their arrival. It says "ready" when it has heard of as many instances as are there,
or has waited for :data:`_PATIENCE` seconds. A node is known by the port that it is plugged into.
"""

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

VRRP = 112
_ALL_FRAMES = 3  # ETH_P_ALL
_IPV4, _IPV6 = 0x0800, 0x86DD
_BUFFER = 8 << 20
_PATIENCE, _PAUSE = 3.0, 0.05
_LOST = 2.5  # intervals without an advert that end a reign


class Advert(NamedTuple):
    """One advertisement, sent by *node* at *moment* (monotonic seconds); *interval* as it says, in seconds."""

    moment: float
    node: str
    family: int
    router_id: int
    priority: int
    interval: float


class Reign(NamedTuple):
    """The time for which *node* was heard as master."""

    node: str
    began: float
    ended: float
    interval: float


class Double(NamedTuple):
    """Two masters of one VRID, and for how many *seconds* both were heard."""

    router_id: int
    family: int
    nodes: tuple[str, str]
    seconds: float


def parse(frame: bytes) -> tuple[int, int, int, float] | None:
    """Family, VRID, priority and interval of the advert in an Ethernet *frame*; None for what is none."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == _IPV4 and frame[14 + 9] == VRRP:
        family, vrrp = 4, frame[14 + (frame[14] & 15) * 4 :]
    elif kind == _IPV6 and frame[14 + 6] == VRRP:
        family, vrrp = 6, frame[14 + 40 :]
    else:
        return None
    version, tail = vrrp[0] >> 4, struct.unpack_from("!H", vrrp, 4)[0]
    interval = (tail & 0x0FFF) / 100 if version == 3 else float(tail & 0xFF)
    return family, vrrp[1], vrrp[2], interval


def reigns(adverts: Iterable[Advert]) -> list[Reign]:
    """The reigns that the *adverts* of one VRID and family make, by their beginning."""
    running: dict[str, tuple[Reign, float]] = {}  # with the moment until which the next advert continues it
    done: list[Reign] = []
    for each in adverts:
        reign, until = running.get(each.node, (Reign(each.node, each.moment, each.moment, each.interval), 0.0))
        if until and each.moment > until:
            done.append(reign)
            reign = Reign(each.node, each.moment, each.moment, each.interval)
        if each.priority:
            running[each.node] = reign._replace(ended=each.moment), each.moment + _LOST * each.interval
        elif each.node in running:  # it says goodbye
            done.append(running.pop(each.node)[0])
    done += [reign for reign, _ in running.values()]
    return sorted(done, key=lambda reign: reign.began)


def by_router(adverts: Iterable[Advert]) -> dict[tuple[int, int], list[Advert]]:
    """*adverts* by VRID and family."""
    found: dict[tuple[int, int], list[Advert]] = {}
    for each in adverts:
        found.setdefault((each.router_id, each.family), []).append(each)
    return dict(sorted(found.items()))


def doubles(adverts: Sequence[Advert]) -> tuple[Double, ...]:
    """
    Every time that two nodes were master of the same VRID, for more than half an interval.

    Adverts may cross: a master that was about to send one sends it, and hears the other one afterwards.
    """
    found = []
    for (router_id, family), heard in by_router(adverts).items():
        for one, other in combinations(reigns(heard), 2):
            seconds = min(one.ended, other.ended) - max(one.began, other.began)
            if one.node != other.node and seconds > max(one.interval, other.interval) / 2:
                found.append(Double(router_id, family, (one.node, other.node), seconds))
    return tuple(found)


def listen(instances: int) -> list[Advert]:
    """The adverts until standard input closes."""
    found: list[Advert] = []
    heard: set[tuple[int, int]] = set()
    is_ready, patient = False, time.monotonic() + _PATIENCE
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        while sys.stdin not in (ready := select.select([wire, sys.stdin], [], [], _PAUSE)[0]) or wire in ready:
            if not is_ready and (len(heard) >= instances or time.monotonic() > patient):
                is_ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()
            if wire not in ready:
                continue
            frame, (port, _, kind, *_) = wire.recvfrom(2048)
            if kind != socket.PACKET_OUTGOING and port.startswith("p-") and (said := parse(frame)):
                found.append(Advert(time.monotonic(), port.removeprefix("p-"), *said))
                heard.add(said[:2])
    return found


if __name__ == "__main__":
    json.dump(listen(int(sys.argv[1])), sys.stdout)
