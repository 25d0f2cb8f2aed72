"""
Rendering: the time after a change of one Service before the controller writes anything.

A full group (255 instances) and a Shared group with 5,000 VIPs are measured. Each has the time for model and text, as a
ratio to a join of the same lines, measured in turns, which is the least that any text of that size needs. The last
lines show for how many nodes a ConfigMap has room with 255 instances.

The goals are 1.3 x the largest ratios seen (39 and 34). In the time of a join they are tighter than the earlier ones of
20 ms and 50 ms, which were 51 and 178 joins.
"""

from collections.abc import Sequence
from typing import Final

from bench.timing import clock, frozen, in_turns, within
from kavip.api.address import Address, parse_address
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.vrrp import keys, routerids
from kavip.vrrp.config import MOST_BYTES, render
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer

ROUNDS: Final = 25
NODES: Final = 3


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


def members(count: int) -> list[Member]:
    """*count* Services with one IPv4 address each."""
    first = parse_address("198.18.0.1").value
    return [Member(key=f"shop/service-{number}", addresses=(Address(4, first + number),)) for number in range(count)]


def peers(count: int, name: str = "worker-{}") -> list[Peer]:
    """Nodes with an IPv4 address each."""
    first = parse_address("192.0.2.11").value
    return [Peer(name.format(number), Address(4, first + number)) for number in range(count)]


def built(mode: str, services: Sequence[Member], nodes: Sequence[Peer]) -> Model:
    """The model of a group with these Services and nodes, with assigned VRIDs."""
    edge = group(mode)
    ids = routerids.assign({}, keys.wanted_keys(edge, services), blacklist=frozenset(), taken=frozenset())
    return model_of(edge, services, nodes, ids)


def measure(name: str, mode: str, count: int, *, most: float) -> None:
    """Print two lines of the table; both steps together must take less than *most* joins."""
    services, nodes = members(count), peers(NODES)
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


def most_nodes(name: str) -> int:
    """The largest number of nodes with names like *name* whose text for 255 instances fits into a ConfigMap."""
    services = members(255)

    def size(count: int) -> int:
        return len(render(built("PerService", services, peers(count, name))).text)

    fixed, one = size(40), size(41)  # a node adds the same lines to each instance
    return 40 + (MOST_BYTES - fixed) // (one - fixed)


def main() -> None:
    """Print the table."""
    measure("255 instances", "PerService", 255, most=50)
    measure("5,000 VIPs in Shared mode", "Shared", 5000, most=45)
    for name in ("n{}", "worker-{}", "ip-10-0-123-{}.eu-central-1.compute.internal"):
        print(f"255 instances fit into a ConfigMap for {most_nodes(name):3} nodes called {name.format(10)}")


if __name__ == "__main__":
    main()
