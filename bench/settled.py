"""A settled group, as events find it in a cluster: its objects are applied, and all statuses are current."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.objects import GROUP
from kavip import names
from kavip.api.cluster import Pod, PodCondition, PodSpec, PodStatus
from kavip.api.group import GroupStatus
from kavip.api.meta import Metadata
from kavip.api.service import Service, ServiceStatus
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.mergepatch import patched
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import AppliedObject, record_key
from kavip.reconcile.plan import Apply, StatusPatch
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from kavip.vrrp.running import running_instances

NOW = datetime(2026, 2, 1, tzinfo=UTC)
_LATER = 4


@dataclass(frozen=True)
class Settled:
    """The input of plans: every node runs the text of the ConfigMap, and the status of every Service is current."""

    snapshot: Snapshot
    observed: Observed


def settled(snapshot: Snapshot) -> Settled:
    """*snapshot* after all writes of its plans were applied."""
    observed = Observed()
    group = snapshot.groups[GROUP]
    for node in snapshot.group_nodes(group):
        name = f"edge-{node.metadata.name}"
        status = PodStatus(conditions=[PodCondition(type="Ready", status="True")])
        labels = {names.GROUP_LABEL: group.metadata.name}
        observed.objects.store(
            None,
            Pod(
                metadata=Metadata(name=name, namespace=group.metadata.namespace, labels=labels),
                spec=PodSpec(node_name=node.metadata.name),
                status=status,
            ),
        )
    for turn in range(6):
        if turn == _LATER:
            observed.objects.configmaps.clear()  # written again, without the list of VIPs that are new on the nodes
        for write in plan_group(snapshot, GROUP, now=NOW, observed=observed).writes:
            carry_out(snapshot, observed, write)
        if GROUP in observed.objects.configmaps:
            observed = replace(observed, agents=seen(snapshot, observed.objects))
    for service in snapshot.members(GROUP):
        for write in plan_service(snapshot, service.key, now=NOW, observed=observed).writes:
            carry_out(snapshot, observed, write)
    assert not plan_group(snapshot, GROUP, now=NOW, observed=observed).writes
    return Settled(snapshot, observed)


def carry_out(snapshot: Snapshot, observed: Observed, write: object) -> None:
    """Apply *write* to *snapshot* and *observed*."""
    match write:
        case StatusPatch(kind, key, body):
            obj: Any = snapshot.groups[key] if kind == "group" else snapshot.services[key]
            status = patched(msgspec.to_builtins(obj.status), body["status"])
            made = msgspec.convert(status, ServiceStatus if isinstance(obj, Service) else GroupStatus)
            snapshot.put(msgspec.structs.replace(obj, status=made))
        case Apply(kind, key, body):
            metadata = msgspec.convert({**body["metadata"], "uid": "u", "generation": 1}, Metadata)
            whole = {**body, "metadata": metadata}
            is_text = kind == names.CONFIG_MAP
            observed.objects.store(
                None, msgspec.convert(whole, ConfigMap) if is_text else msgspec.convert(whole, DaemonSet)
            )
            observed.records.applied[record_key(write)] = AppliedObject(digest(body), "u", 1)


def seen(snapshot: Snapshot, objects: OwnedObjects) -> AgentStates:
    """The states of agents that run the text in the ConfigMap: each instance has one master."""
    group = snapshot.groups[GROUP]
    nodes = [node.metadata.name for node in snapshot.group_nodes(group)]
    data = objects.configmaps[GROUP].data or {}
    running = running_instances(data[names.CONFIG_KEY])
    where = {name: nodes[index % len(nodes)] for index, name in enumerate(sorted(running))}
    at = {vip.address: name for name, run in running.items() for vip in run.virtual_ips}
    states = {
        node: NodeState(
            config_hash=group.status.config_hash,
            runs=frozenset(at),
            masters=frozenset(address for address, name in at.items() if where[name] == node),
            instance_of=at,
            instances=tuple(
                InstanceState(
                    name, run.identity.router_id, 4, MASTER if where[name] == node else BACKUP, len(run.virtual_ips)
                )
                for name, run in sorted(running.items())
            ),
        )
        for node in nodes
    }
    contacts_by_node = {node: Contact(last=100.0, since=dict.fromkeys(running, 1.0)) for node in nodes}
    return AgentStates({GROUP: states}, probed_from=NOW, contacts={GROUP: contacts_by_node}, at=100.0)
