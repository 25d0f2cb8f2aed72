"""
Services with ``externalTrafficPolicy: Local``: how each node learns whether it has a ready endpoint.

kube-proxy drops packets to their VIPs on a node without a ready endpoint, so the VIP must be on a node that has one.
Where kube-proxy has a health port for the Service, the agents ask it themselves: then kavip's controller takes no part
when endpoints change. kube-proxy has such a port for type LoadBalancer only. For other types the controller names the
nodes with a ready endpoint in ``agent.json``.

The agent writes the answer into a track file (:mod:`kavip.agent.keepalived.trackfiles`), which lowers the node's
priority. :mod:`kavip.vrrp.instances` adds the track file to the instance.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kavip.api.agentconfig import LocalTrack
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import tracking
from kavip.vrrp.instances import Instance, Model

_ENTRY: Final = 64  # bytes of JSON around the nodes of one Service
_QUOTES: Final = 3  # and around the name of each node


def local_tracks(snapshot: Snapshot, group: KeepalivedGroup, model: Model) -> tuple[LocalTrack, ...]:
    """For each track file of *model* that follows endpoints: the health port to ask, or the nodes, sorted."""
    members = snapshot.keeping_nodes(group)
    found: dict[str, LocalTrack] = {}
    for track, service in _local_services(snapshot, model.instances):
        port = service.spec.health_check_node_port if service.is_load_balancer else 0
        nodes = () if port else tuple(sorted(snapshot.endpoint_nodes(service.key) & members))
        if port or service.follows_slices:  # a LoadBalancer from a file has no port yet
            found[track] = LocalTrack(track=track, port=port, nodes=nodes)
    return tuple(found[track] for track in sorted(found))


def reserved_bytes(snapshot: Snapshot, group: KeepalivedGroup, model: Model) -> int:
    """
    The bytes of the ConfigMap to reserve for the Services of *model*.

    They suffice for an endpoint of every Service on every node: one more endpoint must not exclude a Service.
    """
    nodes = sum(len(name) + _QUOTES for name in snapshot.keeping_nodes(group))
    services = dict(_local_services(snapshot, model.instances))
    return sum(_ENTRY + (nodes if service.follows_slices else 0) for service in services.values())


def _local_services(snapshot: Snapshot, instances: Iterable[Instance]) -> Iterator[tuple[str, Service]]:
    """Each track file that follows endpoints, with its Service."""
    for instance in instances:
        for track in instance.tracks:
            service = snapshot.services.get(next(iter(instance.services), ""))
            if tracking.is_local(track.name) and service is not None:
                yield track.name, service
