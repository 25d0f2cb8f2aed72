"""A live installation of keepalived-operator, and the steps in which kavip takes it over."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.cluster import NodeCondition, Taint
from kavip.reconcile.migration import exporter
from kavip.reconcile.observed.nodes import InstanceState, NodeState
from kavip.vrrp import operatorconfig
from tests.predecessor.live import conf, configmap, instance, metrics, new_pod, old_pod
from tests.reconcile.group.grouping import WEB, serving
from tests.reconcile.scenes import GROUP, World, cluster
from tests.support import build

VIP = "192.0.2.140"
NODES = ("n1", "n2", "n3")
OLD = conf(instance(WEB, 7, VIP, "192.0.2.141"))


def agreed(group: Any, value: str = "true") -> Any:
    """*group* with the annotation."""
    notes = {names.TAKE_OVER_ANNOTATION: value} if value else None
    return msgspec.structs.replace(group, metadata=msgspec.structs.replace(group.metadata, annotations=notes))


def world(*holders: str, text: str = OLD, consent: str = "true", nodes: tuple[str, ...] = NODES, **spec: Any) -> World:
    """An installation of keepalived-operator whose controller is stopped; *holders* are master of everything."""
    group = agreed(build.group(metrics_port=9650, router_ids={WEB: 7}, **spec), consent)
    found = World(cluster(group, serving(WEB, VIP, "192.0.2.141"), nodes=len(nodes)))
    found.objects.configmaps[GROUP] = configmap(text)
    found.objects.pods[GROUP] = {each.metadata.key: each for each in map(old_pod, nodes)}
    for node in nodes:
        runs = [(each.name, each.router_id) for each in operatorconfig.read_instances(text)]
        states = [(name, number, "MASTER" if node in holders else "BACKUP") for name, number in runs]
        see(found, node, exporter.state_of(metrics(*states)))
    return found


def see(found: World, node: str, state: NodeState) -> None:
    """*node* has told its state."""
    found.agents = found.agents.with_state(GROUP, node, state=state)


def start(found: World, node: str, *, state: str = "BACKUP") -> None:
    """The new pod on *node* runs what is wanted."""
    found.objects.pods[GROUP][f"lb/edge-new-{node}"] = new_pod(node)
    catch_up(found, node, state=state)


def catch_up(found: World, *nodes: str, state: str = "BACKUP", priority: int = 250) -> None:
    """The agents of *nodes* run what is wanted, and all is written."""
    for _ in range(4):
        found.group()
        wanted = found.snapshot.groups[GROUP].status.config_hash
        for node in nodes:
            sight = InstanceState(WEB, 7, 4, state, 2, priority=priority)
            see(found, node, NodeState(config_hash=wanted, instances=(sight,)))


def done(found: World) -> list[str]:
    """The nodes whose pods were replaced, in order."""
    return [key.removeprefix("lb/edge-old-") for key in found.removed]


def roll(found: World, *leaders: str, without: str = "", lagging: str = "BACKUP") -> list[str]:
    """
    Take everything over; those of *leaders* become master of all once they lead. The order of the nodes.

    *without*: the nodes whose priority is lowered to that of the old ones, by name. *lagging*: the state of all other
    nodes.
    """
    for _ in range(20):
        found.group()
        mine = {node.metadata.name for node in found.snapshot.group_nodes(found.snapshot.groups[GROUP])}
        for node in [each for each in done(found) if each in mine]:
            if f"lb/edge-new-{node}" not in found.objects.pods[GROUP]:
                start(found, node)
        leads = "leads" in (found.objects.configmaps[GROUP].data or {}).get(names.AGENT_KEY, "")
        for node in [each for each in done(found) if each in mine]:
            state = "MASTER" if leads and node in leaders else lagging
            catch_up(found, node, state=state, priority=100 if node in without.split() else 250)
    return done(found)


def down(found: World, node: str) -> None:
    """*node* is not ready."""
    there = found.snapshot.nodes[node]
    status = msgspec.structs.replace(there.status, conditions=[NodeCondition(type="Ready", status="False")])
    found.snapshot.put(msgspec.structs.replace(there, status=status))


def tainted(found: World, *nodes: str) -> World:
    """*found* with a taint on *nodes* that keeps new pods away and lets those stay that are there."""
    for name in nodes:
        there = found.snapshot.nodes[name]
        spec = msgspec.structs.replace(there.spec, taints=[Taint(key="for", value="others", effect="NoSchedule")])
        found.snapshot.put(msgspec.structs.replace(there, spec=spec))
    return found


def labelled(found: World, node: str, value: str = "vips") -> None:
    """*node* bears the label by which groups choose nodes; "" for none."""
    there = found.snapshot.nodes[node]
    metadata = msgspec.structs.replace(there.metadata, labels={"for": value} if value else None)
    found.snapshot.put(msgspec.structs.replace(there, metadata=metadata))
