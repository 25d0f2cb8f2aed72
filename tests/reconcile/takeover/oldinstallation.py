"""An installation of keepalived-operator, and the steps in which kavip takes it over."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.cluster import Taint
from kavip.reconcile.observed import exporter
from kavip.reconcile.observed.agentstates import InstanceState, NodeState
from kavip.vrrp import operatorconfig
from tests.keepalived_operator.oldobjects import conf, configmap, instance, metrics, new_pod, old_pod
from tests.reconcile.group.settledgroup import WEB, serving
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

VIP = "192.0.2.140"
NODES = ("n1", "n2", "n3")
OLD = conf(instance(WEB, 7, VIP, "192.0.2.141"))


def with_approval(group: Any, value: str = "true") -> Any:
    """*group* with the take-over annotation."""
    notes = {names.TAKE_OVER_ANNOTATION: value} if value else None
    return msgspec.structs.replace(group, metadata=msgspec.structs.replace(group.metadata, annotations=notes))


def old_installation(
    *holders: str, text: str = OLD, approval: str = "true", nodes: tuple[str, ...] = NODES, **spec: Any
) -> SimulatedCluster:
    """An installation of keepalived-operator with a stopped controller; *holders* are master of all instances."""
    group = with_approval(build.group(metrics_port=9650, router_ids={WEB: 7}, **spec), approval)
    found = SimulatedCluster(cluster(group, serving(WEB, VIP, "192.0.2.141"), nodes=len(nodes)))
    found.objects.configmaps[GROUP] = configmap(text)
    found.objects.pods[GROUP] = {each.metadata.key: each for each in map(old_pod, nodes)}
    for node in nodes:
        runs = [(each.name, each.router_id) for each in operatorconfig.read_instances(text)]
        states = [(name, number, "MASTER" if node in holders else "BACKUP") for name, number in runs]
        report_state(found, node, exporter.node_state(metrics(*states)))
    return found


def report_state(found: SimulatedCluster, node: str, state: NodeState) -> None:
    """The agent or exporter of *node* reports *state*."""
    found.agents = found.agents.with_state(GROUP, node, state=state)


def start_new_pod(found: SimulatedCluster, node: str, *, state: str = "BACKUP") -> None:
    """The new pod on *node* starts and runs the current configuration."""
    found.objects.pods[GROUP][f"lb/edge-new-{node}"] = new_pod(node)
    catch_up(found, node, state=state)


def catch_up(found: SimulatedCluster, *nodes: str, state: str = "BACKUP", priority: int = 250) -> None:
    """The agents of *nodes* run the current configuration, and the plan has nothing left to write."""
    for _ in range(4):
        found.group()
        wanted = found.snapshot.groups[GROUP].status.config_hash
        for node in nodes:
            sight = InstanceState(WEB, 7, 4, state, 2, priority=priority)
            report_state(found, node, NodeState(config_hash=wanted, instances=(sight,)))


def replaced_nodes(found: SimulatedCluster) -> list[str]:
    """The nodes whose pods were replaced, in order."""
    return [key.removeprefix("lb/edge-old-") for key in found.removed]


def take_over(found: SimulatedCluster, *leaders: str, without: str = "", lagging: str = "BACKUP") -> list[str]:
    """
    Replace all pods; return the nodes in the order of replacement.

    *leaders* become master of all instances once they lead; *lagging* is the state of all other nodes. *without*: the
    names of nodes whose priority is lowered to that of the old pods.
    """
    for _ in range(20):
        before, writes = found.agents, found.group().writes
        mine = {node.metadata.name for node in found.snapshot.group_nodes(found.snapshot.groups[GROUP])}
        for node in [each for each in replaced_nodes(found) if each in mine]:
            if f"lb/edge-new-{node}" not in found.objects.pods[GROUP]:
                start_new_pod(found, node)
        leads = "leads" in (found.objects.configmaps[GROUP].data or {}).get(names.AGENT_KEY, "")
        for node in [each for each in replaced_nodes(found) if each in mine]:
            state = "MASTER" if leads and node in leaders else lagging
            catch_up(found, node, state=state, priority=100 if node in without.split() else 250)
        if not writes and found.agents == before:
            break  # each further round would be the same
    return replaced_nodes(found)


def make_not_ready(found: SimulatedCluster, node: str) -> None:
    """Set *node* to not ready."""
    found.snapshot.put(build.not_ready(found.snapshot.nodes[node]))


def with_taint(found: SimulatedCluster, *nodes: str) -> SimulatedCluster:
    """*found* with a taint on *nodes* that keeps new pods away and does not evict existing ones."""
    for name in nodes:
        there = found.snapshot.nodes[name]
        spec = msgspec.structs.replace(there.spec, taints=[Taint(key="for", value="others", effect="NoSchedule")])
        found.snapshot.put(msgspec.structs.replace(there, spec=spec))
    return found


def set_label(found: SimulatedCluster, node: str, value: str = "vips") -> None:
    """Set the label of *node* by which groups select nodes; "" removes it."""
    there = found.snapshot.nodes[node]
    metadata = msgspec.structs.replace(there.metadata, labels={"for": value} if value else None)
    found.snapshot.put(msgspec.structs.replace(there, metadata=metadata))
