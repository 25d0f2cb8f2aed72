"""
Rendering: the time after a change of one Service before the controller writes anything.

A full group (255 instances) and a Shared group with 5,000 VIPs are measured. Each has the time for model and text, as a
ratio to a join of the same lines, measured in turns, which is the least that any text of that size needs. The next
lines show what the compact and the packed notation cost and save. The last lines show how much fits into a ConfigMap
in each notation. These limits depend on the length of the nodes' names, the interface's name and the addresses.

The goals are 1.3 x the largest ratios seen (39 and 34). In the time of a join they are tighter than the earlier ones of
20 ms and 50 ms, which were 51 and 178 joins.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Final

from bench.timing import clock, frozen, in_turns, within
from kavip.api.address import Address, parse_address
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.memo import Memory
from kavip.vrrp import keys, routerids
from kavip.vrrp.compact import expand
from kavip.vrrp.config import PLAIN, Notations, Target, Use, render
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.packed import pack, unpack
from kavip.vrrp.sharding import shard_members

ROUNDS: Final = 25
NODES: Final = 3
COMPACT: Final = Target(notations=Notations(compact=Use.IF_LARGE))
PACKED: Final = Target(notations=Notations(Use.IF_LARGE, Use.IF_LARGE))
TARGETS: Final = (PLAIN, COMPACT, PACKED)
IPV4: Final = "198.18.0.1"
SHORT: Final = "2001:db8::1"
LONG: Final = "2001:db8:1234:5678:9abc:def0:1234:1001"
STEP: Final = 100  # of the limits of VIPs
TEXTS: Final = 32


def group(mode: str) -> KeepalivedGroup:
    """A new group."""
    spec = GroupSpec(
        interface="eth0",
        unicast_enabled=True,
        vrrp_version=3,
        advert_interval_milliseconds=200,
        instances=Instances(mode=mode),
    )
    return KeepalivedGroup(metadata=Metadata(name="edge", namespace="lb"), spec=spec)


def members(count: int, *first: str) -> list[Member]:
    """*count* Services; each has one address of each range that begins with one of *first*, or one of IPV4."""
    ranges = [parse_address(each) for each in first or (IPV4,)]
    return [
        Member(
            key=f"shop/service-{number}",
            addresses=tuple(Address(each.family, each.value + number) for each in ranges),
        )
        for number in range(count)
    ]


def peers(count: int, name: str = "worker-{}", *, dual: bool = False) -> list[Peer]:
    """Nodes with an IPv4 address each, and if *dual* with an IPv6 address too."""
    first, other = parse_address("192.0.2.11").value, parse_address("2001:db8::ffff:11").value
    return [
        Peer(name.format(number), Address(4, first + number), Address(6, other + number) if dual else None)
        for number in range(count)
    ]


def built(mode: str, services: Iterable[Member], nodes: Sequence[Peer]) -> Model:
    """The model of a group with these Services and nodes, with assigned VRIDs."""
    edge = group(mode)
    ids = routerids.assign({}, keys.wanted_keys(edge, services), blacklist=frozenset(), taken=frozenset())
    return model_of(edge, services, nodes, ids)


def measure(name: str, mode: str, count: int, *, most: float) -> None:
    """Print two lines of the table; both steps together must take less than *most* joins."""
    services, nodes = shard_members(group(mode), members(count)), peers(NODES)  # as a plan finds them
    model = built(mode, services, nodes)
    text = render(model).text
    lines = text.splitlines()
    with frozen():
        times = in_turns(
            clock(lambda: built(mode, services, nodes)),
            clock(lambda: render(model)),
            clock(lambda: "".join([f"{line}\n" for line in lines])),
            times=1,
            turns=ROUNDS,
        )
    found = dict(zip(("model", "text", "join"), times, strict=True))
    within(
        f"{name}: model and text", found["model"] + found["text"], found["join"], most=most, of="a join of the lines"
    )
    parts = (f"{what} {seconds * 1e3:.2f} ms" for what, seconds in found.items())
    print(f"  {len(lines):6,} lines {len(text):8,} bytes   {'   '.join(parts)}")


def largest(excess: Callable[[int], float]) -> int:
    """The largest number whose *excess* is at most 1: the root of a line through two numbers, again and again."""
    low, high = 1, 1 << 20
    one, two = 100, 200
    less, more = excess(one), excess(two)
    while low + 1 < high:
        root = two + int((1 - more) * (two - one) / (more - less))
        one, less, two = two, more, min(max(root, low + 1), high - 1)
        more = excess(two)
        low, high = (two, high) if more <= 1 else (low, two)
    return low


def most_nodes(name: str, target: Target) -> int:
    """The largest number of nodes with names like *name* on which 255 instances fit into a ConfigMap."""
    services = members(255)
    return largest(lambda count: render(built("PerService", services, peers(count, name)), target).excess)


def most_services(nodes: Sequence[Peer], target: Target, *first: str) -> int:
    """The largest number of Services, in steps, that fit into the ConfigMap of a Shared group on *nodes*."""
    return STEP * largest(lambda steps: render(built("Shared", members(steps * STEP, *first), nodes), target).excess)


def notation() -> None:
    """Print the cost of the compact notation, of 255 instances on 200 nodes, and what it saves."""
    model, memory = built("PerService", members(255), peers(200)), Memory()
    found = render(model, COMPACT, memory=memory)
    contents = cycle([found.content + "#\n" * each for each in range(4)])  # more than are kept
    with frozen():
        full, again, back, read = in_turns(
            clock(lambda: render(model, memory=memory)),
            clock(lambda: render(model, COMPACT, memory=memory)),
            clock(lambda: expand(next(contents))),
            clock(lambda: found.text.split("\n")),
            times=1,
            turns=ROUNDS,
        )
    sizes = f"{len(pack(found.content)):9,} packed, {found.size:9,} compact, {len(found.text):9,} in full"
    print(f"255 instances on 200 nodes, bytes: {sizes}")
    within("  rendered again, all instances kept: compact", again, full, most=2.5, of="in full")
    within("  expanded by an agent", back, read, most=12, of="a split of its lines")


def packing() -> None:
    """Print what packing the text of 20,000 VIPs on 200 nodes costs, and what it saves."""
    services, nodes = members(20_000), peers(200)
    found = render(built("Shared", services, nodes), PACKED)
    texts = [  # more than are kept
        render(built("Shared", services[:at] + services[at + 1 :], nodes), PACKED).content
        for at in range(0, len(services), len(services) // TEXTS)
    ]
    first, after, memory = cycle(texts), cycle(texts[TEXTS // 2 :] + texts[: TEXTS // 2]), Memory()
    short = pack(texts[-1], memory)
    with frozen():
        packed, again, back, hashed = in_turns(
            clock(lambda: pack(next(first))),
            clock(lambda: pack(next(after), memory)),
            clock(lambda: unpack(short)),
            clock(lambda: hashlib.sha256(found.content.encode())),
            times=1,
            turns=ROUNDS,
        )
    sizes = f"{found.size:9,} packed, {len(found.content):9,} compact, {len(found.text):9,} in full"
    print(f"20,000 VIPs on 200 nodes, bytes: {sizes}")
    within("  packed", packed, hashed, most=10, of="its SHA-256")
    within("  packed after a text with another VIP", again, hashed, most=3, of="its SHA-256")
    within("  unpacked by an agent", back, hashed, most=5, of="its SHA-256")


def limits() -> None:
    """Print what a ConfigMap holds in each notation; the interface is called eth0."""

    def row(what: str, found: Sequence[int]) -> None:
        print(f"  {what:78}" + "".join(f"{each:12,}" for each in found))

    print(f"{'a ConfigMap holds':80}{'in full':>12}{'compact':>12}{'packed':>12}")
    for name in ("n{}", "worker-{}", "ip-10-0-123-{}.eu-central-1.compute.internal"):
        row(f"PerService, 255 Services: nodes {name}", [most_nodes(name, target) for target in TARGETS])
    for what, first in (("IPv4", (IPV4,)), (f"IPv4 and {SHORT}", (IPV4, SHORT)), (f"IPv4 and {LONG}", (IPV4, LONG))):
        nodes = peers(200, dual=len(first) > 1)
        row(f"Shared, 200 nodes: {what}", [most_services(nodes, target, *first) for target in TARGETS])


def main() -> None:
    """Print the table."""
    measure("255 instances", "PerService", 255, most=50)
    measure("5,000 VIPs in Shared mode", "Shared", 5000, most=45)
    notation()
    packing()
    limits()


if __name__ == "__main__":
    main()
