"""Settled groups, as events find them in a cluster: their objects are applied, and all statuses are current."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from kavip import names
from kavip.api.cluster import Pod, PodCondition, PodSpec, PodStatus
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.mergepatch import patched
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import AppliedObject, record_key
from kavip.reconcile.plan import Apply, Json, Key, KeyKind, Plan, PodAnnotation, StatusPatch, Write
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from kavip.vrrp.packed import in_full
from kavip.vrrp.running import running_instances

NOW = datetime(2026, 2, 1, tzinfo=UTC)
_TURNS, _LATER = 4, 2
_PATIENCE = 10


@dataclass(frozen=True)
class Settled:
    """
    The input of plans: every node runs the text of the ConfigMap, and the status of every Service is current.

    Each pod has the annotation for the text.
    """

    snapshot: Snapshot
    observed: Observed


def settled(snapshot: Snapshot) -> Settled:
    """*snapshot* after all writes of its plans were applied."""
    observed = Observed()
    for group in snapshot.every_group:
        for node in snapshot.group_nodes(group):
            observed.objects.store(None, _pod(group, node.metadata.name))
    for turn in range(_TURNS):
        if turn == _LATER:
            observed.objects.configmaps.clear()  # written again, without the list of VIPs that are new on the nodes
        for key in sorted(snapshot.groups):
            plan_and_carry_out(snapshot, observed, Key(KeyKind.GROUP, key))
        if observed.objects.configmaps:
            observed = replace(observed, agents=seen(snapshot, observed.objects))
    for kind, keys in ((KeyKind.SERVICE, snapshot.services), (KeyKind.POOL, snapshot.pools)):
        for key in sorted(keys):
            plan_and_carry_out(snapshot, observed, Key(kind, key))
    for key in snapshot.groups:
        turns = iter(range(_PATIENCE))  # a plan annotates some pods
        while plan_and_carry_out(snapshot, observed, Key(KeyKind.GROUP, key)):
            next(turns)
    return Settled(snapshot, observed)


def _pod(group: KeepalivedGroup, node: str) -> Pod:
    """The ready pod of the DaemonSet of *group* on *node*."""
    metadata = group.metadata
    return Pod(
        metadata=Metadata(
            name=f"{metadata.name}-{node}",
            namespace=metadata.namespace,
            labels={names.GROUP_LABEL: metadata.name},
            owner_references=[OwnerReference("apps/v1", names.DAEMON_SET, metadata.name, "u", controller=True)],
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(conditions=[PodCondition(type="Ready", status="True")]),
    )


def plan(snapshot: Snapshot, observed: Observed, key: Key) -> Plan:
    """The plan of *key*, which is recorded as the worker does it."""
    match key.kind:
        case KeyKind.SERVICE:
            return plan_service(snapshot, key.name, now=NOW, observed=observed)
        case KeyKind.POOL:
            return plan_pool(snapshot, key.name, now=NOW)
    found = plan_group(snapshot, key.name, now=NOW, observed=observed)
    if found.record is not None:
        observed.records.groups[key.name] = found.record
    return found


def plan_and_carry_out(snapshot: Snapshot, observed: Observed, key: Key) -> tuple[Write, ...]:
    """Apply the writes of the plan of *key*, and return them."""
    writes = plan(snapshot, observed, key).writes
    for write in writes:
        carry_out(snapshot, observed, write)
    return writes


def carry_out(snapshot: Snapshot, observed: Observed, write: Write) -> None:
    """Apply *write* to *snapshot* and *observed*."""
    match write:
        case StatusPatch(kind, key, body):
            stores: dict[KeyKind, Mapping[str, Any]] = {
                KeyKind.SERVICE: snapshot.services,
                KeyKind.GROUP: snapshot.groups,
                KeyKind.POOL: snapshot.pools,
            }
            snapshot.put(with_status(stores[kind][key], body))
        case Apply(kind, key, body):
            metadata = msgspec.convert({**body["metadata"], "uid": "u", "generation": 1}, Metadata)
            whole = {**body, "metadata": metadata}
            is_text = kind == names.CONFIG_MAP
            observed.objects.store(
                None, msgspec.convert(whole, ConfigMap) if is_text else msgspec.convert(whole, DaemonSet)
            )
            observed.records.applied[record_key(write)] = AppliedObject(digest(body), "u", 1)
        case PodAnnotation(key, value, group):
            pod = observed.objects.pods[group][key]
            metadata = msgspec.structs.replace(pod.metadata, annotations={names.CONFIG_HASH_ANNOTATION: value})
            observed.objects.store(pod, msgspec.structs.replace(pod, metadata=metadata))


def with_status(obj: Any, patch: Json) -> Any:
    """*obj* after *patch* of its status."""
    status = patched(msgspec.to_builtins(obj.status), patch["status"])
    return msgspec.structs.replace(obj, status=msgspec.convert(status, type(obj.status)))


def seen(snapshot: Snapshot, objects: OwnedObjects) -> AgentStates:
    """The states of agents that run the texts in the ConfigMaps: each instance has one master."""
    states = {key: _states(snapshot, snapshot.groups[key], found) for key, found in objects.configmaps.items()}
    contacts = {
        key: {
            node: Contact(last=100.0, since={each.name: 1.0 for each in state.instances})
            for node, state in some.items()
        }
        for key, some in states.items()
    }
    return AgentStates(states, probed_from=NOW, contacts=contacts, at=100.0)


def _states(snapshot: Snapshot, group: KeepalivedGroup, configmap: ConfigMap) -> dict[str, NodeState]:
    """The states by node of the agents of *group*, which run the text in *configmap*."""
    nodes = [node.metadata.name for node in snapshot.group_nodes(group)]
    running = running_instances(in_full((configmap.data or {})[names.CONFIG_KEY]))
    where = {name: nodes[index % len(nodes)] for index, name in enumerate(sorted(running))}
    at = {vip.address: name for name, run in running.items() for vip in run.virtual_ips}
    runs = frozenset(at)  # the prober shares it between nodes, too
    return {
        node: NodeState(
            config_hash=group.status.config_hash,
            runs=runs,
            masters=frozenset(address for address, name in at.items() if where[name] == node),
            instance_of=at,
            instances=tuple(
                InstanceState(
                    name, run.identity.router_id, 4, MASTER if where[name] == node else BACKUP, len(run.virtual_ips)
                )
                for name, run in sorted(running.items())
            ),
            reads_compact=True,
            reads_packed=True,
        )
        for node in nodes
    }
