"""
What the agents of a group have to find out for Services with ``externalTrafficPolicy: Local``.

kube-proxy drops what comes to their VIPs on a node without a ready endpoint, so the VIP has to be where one is. Where
kube-proxy has a health port for the Service the agents ask that themselves: nothing on the way from an endpoint to the
VIP depends on kavip's controller then. It has none for other types; there the controller tells the nodes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kavip.api.agent import LocalTrack
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import tracking
from kavip.vrrp.instances import Instance, Model

_ENTRY: Final = 64  # bytes of JSON around the nodes of one
_QUOTES: Final = 3  # and around the name of each


def most_bytes(snapshot: Snapshot, group: KeepalivedGroup, model: Model) -> int:
    """
    The bytes that those of *model* may take in the ConfigMap.

    As if every node had an endpoint of every Service: for one endpoint more nobody is to lose his VIP.
    """
    nodes = sum(len(name) + _QUOTES for name in snapshot.keeping_nodes(group))
    found = dict(_followed(snapshot, model.instances))
    return sum(_ENTRY + (nodes if service.follows_slices else 0) for service in found.values())


def locals_of(snapshot: Snapshot, group: KeepalivedGroup, model: Model) -> tuple[LocalTrack, ...]:
    """What each track file of *model* that follows endpoints is to say, sorted."""
    members = snapshot.keeping_nodes(group)
    found: dict[str, LocalTrack] = {}
    for track, service in _followed(snapshot, model.instances):
        port = service.spec.health_check_node_port if service.is_load_balancer else 0
        nodes = () if port else tuple(sorted(snapshot.endpoint_nodes(service.key) & members))
        if port or service.follows_slices:  # a LoadBalancer in a file has no port yet
            found[track] = LocalTrack(track=track, port=port, nodes=nodes)
    return tuple(found[track] for track in sorted(found))


def _followed(snapshot: Snapshot, instances: Iterable[Instance]) -> Iterator[tuple[str, Service]]:
    for instance in instances:
        for track in instance.tracks:
            service = snapshot.services.get(next(iter(instance.services), ""))
            if tracking.is_local(track.name) and service is not None:
                yield track.name, service
