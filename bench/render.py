"""
Rendering: the time after a change of one Service before the controller writes anything.

A full group (255 instances) and a Shared group with 5,000 VIPs are measured. Each has the milliseconds for model and
text, and the ratio of the text to a join of the same lines, which is the least that any text of that size needs. The
last lines show for how many nodes a ConfigMap has room with 255 instances.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from bench.goal import row
from kavip.api.address import Address, parse_address
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.vrrp import keys, routerids
from kavip.vrrp.config import MOST_BYTES, render
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer

ROUNDS: Final = 9
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


def milliseconds(work: Callable[[], object]) -> float:
    """The median time of several runs of *work*."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1000


def measure(name: str, mode: str, count: int, *, most: float) -> None:
    """Print two lines of the table; both steps together must take less than *most* milliseconds."""
    services, nodes = members(count), peers(NODES)
    model = built(mode, services, nodes)
    text = render(model).text
    lines = text.splitlines()
    modelled = milliseconds(lambda: built(mode, services, nodes))
    rendered = milliseconds(lambda: render(model))
    joined = milliseconds(lambda: "".join([f"{line}\n" for line in lines]))
    whole = modelled + rendered
    row(f"{name}: model and text", f"{whole:.1f} ms", goal=f"under {most:g} ms", met=whole < most)
    print(
        f"  {len(lines):6,} lines {len(text):8,} bytes   model {modelled:6.1f} ms   text {rendered:6.1f} ms   "
        f"join {joined:5.2f} ms   ratio {rendered / joined:5.1f}"
    )


def most_nodes(name: str) -> int:
    """The largest number of nodes with names like *name* whose text for 255 instances fits into a ConfigMap."""
    services = members(255)

    def size(count: int) -> int:
        return len(render(built("PerService", services, peers(count, name))).text)

    fixed, one = size(40), size(41)  # a node adds the same lines to each instance
    return 40 + (MOST_BYTES - fixed) // (one - fixed)


def main() -> None:
    """Print the table."""
    measure("255 instances", "PerService", 255, most=20)
    measure("5,000 VIPs in Shared mode", "Shared", 5000, most=50)
    for name in ("n{}", "worker-{}", "ip-10-0-123-{}.eu-central-1.compute.internal"):
        print(f"255 instances fit into a ConfigMap for {most_nodes(name):3} nodes called {name.format(10)}")


if __name__ == "__main__":
    main()
