"""A cluster of many groups, in process: Services spread over Shared groups, and more nodes with more Services."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from bench.objects import LARGE, first_of, group, namespaces, node, pool, service
from kavip.api.cluster import Node
from kavip.api.service import Service
from kavip.snapshot import Snapshot

GROUPS = 50
EDGES = 5
"""The nodes of each group; in a small cluster the groups share nodes."""
SERVICES_PER_NODE, LEAST_NODES = 100, 10


def cluster(count: int) -> Snapshot:
    """A Snapshot of *count* Services with addresses from a pool that has one more; each group has its own segment."""
    addresses = first_of(LARGE, count + 1)
    return Snapshot.from_objects(
        (
            *(group(group_key(number), _label(number), segment=f"s{number}") for number in range(GROUPS)),
            *namespaces(),
            *_nodes(max(LEAST_NODES, count // SERVICES_PER_NODE)),
            pool("bench", f"{addresses[0]}-{addresses[-1]}", groups=list(map(group_key, range(GROUPS)))),
            *(
                _complete(service(index, held=addresses[index : index + 1], group=group_key(index % GROUPS)), index)
                for index in range(count)
            ),
        )
    )


def group_key(number: int) -> str:
    """The key of a group."""
    return f"lb/edge-{number:02}"


def _label(number: int) -> dict[str, str]:
    return {f"edge-{number:02}": "true"}


def _nodes(count: int) -> Iterator[Node]:
    labels: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for number in range(GROUPS):
        for edge in range(EDGES):
            labels[(number * EDGES + edge) % count] |= _label(number)
    return (node(number, labels=labels.get(number)) for number in range(count))


def _complete(found: Service, number: int) -> Service:
    """*found* with the fields that an API server adds and that kavip keeps in memory."""
    replace, address = msgspec.structs.replace, f"10.{96 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    spec = replace(found.spec, cluster_ip=address, cluster_ips=[address], selector={"app": found.metadata.name})
    metadata = replace(found.metadata, uid=f"6f1f6a2e-8f0e-4a3e-9d3c-{number:012}", resource_version=f"{number + 1}")
    return replace(found, metadata=metadata, spec=spec)
