"""
A group on live nodes: real agents and daemons, the controller's own plan, and mounts with chosen delays.

The plan works on a Snapshot. What it applies is mounted on every node after that node's delay. What the agents answer
goes back into the plan. So a test can try any order of a roll-out.
"""

import base64
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from hack.testbed import process
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.agent.config import blocks
from kavip.api.agent import decode_state
from kavip.api.cluster import Node
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import Contact, NodeState
from kavip.reconcile.observed.templates import rendered
from kavip.rendering.process import render_now
from kavip.snapshot import Object
from tests.agent.pod import PATIENCE, Pod
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster, pod
from tests.support import build
from tests.vrrp.livedaemons import BEFORE_OTHERS

NO_DELAYS: Final[Mapping[str, float]] = MappingProxyType({})
INTERVAL: Final = 0.5
"""Seconds between two adverts of the group. A machine that pauses for less than three of them causes no new master."""
DEFAULT_INTERVAL: Final = 1.0
"""The same where the text does not set it."""
NEW: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "unicast_enabled": True,
        "segment": "default",
        "vrrp_version": 3,
        "advert_interval_milliseconds": round(INTERVAL * 1000),
    }
)
"""The defaults of a new group, except for a longer interval."""

_PAUSE: Final = 0.1
_STAY: Final = 4.5  # intervals: a backup waits for three and its skew, which is shorter than one
_ADVERT_INT: Final = re.compile(r"^ +advert_int ([0-9.]+)$", re.MULTILINE)
_PRIORITY: Final = re.compile(r"^    @(\S+) priority (\d+)$", re.MULTILINE)


def group(**spec: Any) -> KeepalivedGroup:
    """The group ``lb/edge`` with *spec*; the defaults are those of a new group."""
    return build.group(GROUP, **{**NEW, **spec})


def service(key: str, *vips: str, **more: Any) -> Service:
    """A Service of the group that has these VIPs without a pool."""
    return build.service(key, group=GROUP, type="ClusterIP", external_ips=list(vips), **more)


def drained(live: "LiveGroup", name: str, *, note: str = "true") -> Node:
    """The Node *name* with the annotation that drains it."""
    node = build.node(name, live.lan.node(name).ipv4)
    metadata = msgspec.structs.replace(node.metadata, annotations={names.DRAIN_ANNOTATION: note})
    return msgspec.structs.replace(node, metadata=metadata)


class LiveGroup:
    """
    The group on some nodes of a segment.

    *pods*: by node. *simulation*: what the controller observes and has written. *secret*: the content of the Secret
    ``vrrp`` for pods that start, by key.

    :meth:`apply`, :meth:`delete`, :meth:`join` and :meth:`leave` wait for the roll-out. A test that changes pods itself
    calls :meth:`settle` where the plan has to react.
    """

    def __init__(self, lan: Segment, folder: Path, *, nodes: int) -> None:
        """Nothing runs before :meth:`apply` is called with a group."""
        self.lan, self.folder = lan, folder
        self.simulation = SimulatedCluster(cluster(nodes=0))
        self.pods: dict[str, Pod] = {}
        self.secret: Mapping[str, str] = {}
        self._servers: dict[str, Process] = {}
        self._mounted: dict[str, Mapping[str, bytes]] = {}
        self._waiting: dict[str, float] = {}
        for host in lan.nodes[:nodes]:
            self.simulation.snapshot.put(_node(host))

    # --- what happens -------------------------------------------------------------------------------------------------
    def apply(self, *objects: Object, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Write *objects* and roll out. *delays*: the seconds by which each node's mount lags behind."""
        for each in objects:
            self.simulation.snapshot.put(each)
        self.settle(delays=delays)

    def delete(self, kind: str, key: str, *, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Delete an object and roll out."""
        self.simulation.snapshot.drop(kind, key)
        self.settle(delays=delays)

    def join(self, *nodes: str, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Add nodes of the segment to the group and roll out."""
        self.apply(*(_node(self.lan.node(name)) for name in nodes), delays=delays)

    def leave(self, *nodes: str, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Remove nodes from the group: their pods stop gracefully, as a DaemonSet's pods do."""
        for name in nodes:
            self.simulation.snapshot.drop(names.NODE, name)
        self.settle(delays=delays)

    def settle(self, *, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Repeat :meth:`step` until every node runs what was written and there is nothing left to write."""
        process.wait_for("the roll-out ends", lambda: self.step(delays=delays), timeout=PATIENCE, interval=_PAUSE)

    def load(self) -> None:
        """
        Repeat :meth:`step` until every node runs every instance.

        A node that starts last in a multicast group waits for the controller's list of nodes, if it hears a new VIP of
        a node that it does not know.
        """
        wanted = set(re.findall(r"^vrrp_instance (\S+) \{", self.text, re.MULTILINE))

        def is_loaded() -> bool:
            return self.step() and all(wanted <= set(each.instances()) for each in self.pods.values())

        process.wait_for("every node runs every instance", is_loaded, timeout=PATIENCE, interval=_PAUSE)

    def step(self, *, delays: Mapping[str, float] = NO_DELAYS) -> bool:
        """Run one round of controller, kubelets and agents. Return whether everything is done."""
        self._observe()
        self.simulation.now = datetime.now(UTC)
        plan = self.simulation.group(GROUP)
        if plan.rendering is not None:  # as the renderer of the leader does
            found = render_now(plan.rendering)
            self.simulation.templates.rendered[GROUP] = rendered(plan.rendering, found)
            return False
        is_done = not plan.writes
        if GROUP not in self.simulation.objects.configmaps:
            return False
        self._run_pods()
        return self._mount(delays) and is_done and self._are_current()

    # --- what is ------------------------------------------------------------------------------------------------------
    @property
    def text(self) -> str:
        """The group's keepalived.conf as it was written last."""
        return self.simulation.text(GROUP)

    def transitions(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """How often each instance became and ceased to be master, by node and instance, for nodes with an agent."""
        return {name: each.transitions() for name, each in self.pods.items() if each.agent}

    def master(self, instance: str) -> str:
        """Wait until *instance* has exactly one master; return its node."""
        found: list[str] = []

        def one() -> bool:
            found[:] = [name for name, each in self.pods.items() if each.agent and instance in each.masters()]
            return len(found) == 1

        process.wait_for(f"one master of {instance}", one, timeout=PATIENCE)
        return found[0]

    def preferred_nodes(self, *, without: str = "") -> dict[str, str]:
        """The node that should be master of each instance: the one with the highest priority among those with a pod."""
        nodes = self.pods.keys() - {without}
        found: dict[str, tuple[int, str]] = {}
        for block in blocks.split(self.text):
            drawn = [(int(number), node) for node, number in _PRIORITY.findall(block.text) if node in nodes]
            if block.name and drawn:
                found[block.name] = max(drawn)
        return {name: node for name, (_, node) in found.items()}

    def wait_for_masters(self) -> dict[str, str]:
        """Wait until each instance has its preferred master and keeps it; return these nodes."""
        wanted = self.preferred_nodes()
        for name, node in wanted.items():
            self.wait_for_master(name, node)
        self.wait_until_stable()
        for name, node in wanted.items():
            self.wait_for_master(name, node)
        return wanted

    def wait_until_stable(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """
        Wait until no daemon changes its state for the longest time of an election; return the transitions until then.

        Daemons that start together may become master together: the second one an instant after it reported backup.
        """
        intervals = (float(each) for each in _ADVERT_INT.findall(self.text))
        recorded = [self.transitions()]

        def is_stable() -> bool:
            recorded.append(self.transitions())
            return recorded[-1] == recorded[-2]

        stay = _STAY * max(intervals, default=DEFAULT_INTERVAL)
        time.sleep(stay)
        process.wait_for("the masters are stable", is_stable, timeout=PATIENCE, interval=stay)
        return recorded[-1]

    def wait_for_master(self, instance: str, node: str) -> None:
        """Wait until *node* is the only master of *instance*."""
        process.wait_for(
            f"{node} leads {instance}",
            lambda: [name for name, each in self.pods.items() if each.agent and instance in each.masters()] == [node],
            timeout=PATIENCE,
        )

    def stop(self) -> None:
        """Stop all pods and servers."""
        _at_once(Pod.stop, self.pods.values())
        process.kill(self._servers.values())

    def report_silence(self, node: str) -> None:
        """Report the killed agent of *node* as silent until it answers again; the prober does so after seconds."""
        known = self.simulation.agents.contacts_of(GROUP).get(node, Contact())
        silent = replace(known, is_silent=True)
        self.simulation.agents = self.simulation.agents.with_contact(GROUP, node, contact=silent)

    # --- what a cluster does ------------------------------------------------------------------------------------------
    def _observe(self) -> None:
        """Ask the agents, as the prober does: without an answer the last one stays."""
        for name, each in self.pods.items():
            status, body = each.get(names.STATE_PATH)
            if status == 200:
                state = node_state(decode_state(body.encode()))
                self.simulation.agents = self.simulation.agents.with_state(GROUP, name, state=state)
                contact = Contact(last=(datetime.now(UTC) - NOW).total_seconds())
                self.simulation.agents = self.simulation.agents.with_contact(GROUP, name, contact=contact)
        self.simulation.agents = self.simulation.agents.with_nodes(GROUP, self.simulation.snapshot.nodes)
        # a pod is ready while its agent says so
        before = self.simulation.objects.pods.get(GROUP, {})
        found = {}
        for name, each in self.pods.items():
            fresh = pod(f"edge-{name}", name, ready=each.get(names.READY_PATH)[0] == 200)
            kept = before.get(fresh.metadata.key, fresh).metadata  # keeps the controller's annotations
            found[fresh.metadata.key] = msgspec.structs.replace(fresh, metadata=kept)
        self.simulation.objects.pods[GROUP] = found

    def _run_pods(self) -> None:
        """Start and stop pods where the nodes of the group have changed."""
        fresh = sorted(self.simulation.snapshot.nodes.keys() - self.pods.keys())
        for name in fresh:
            host = self.lan.node(name)
            if name not in self._servers:
                self._servers[name] = serve_vips(host)
            self.pods[name] = self._pod(host)
            self._mounted[name] = self._data()
            self.pods[name].config.swap(dict(self._mounted[name]))
        _at_once(Pod.start, (self.pods[name] for name in fresh))
        gone = sorted(self.pods.keys() - self.simulation.snapshot.nodes.keys())
        _at_once(Pod.stop, (self.pods.pop(name) for name in gone))
        for name in gone:
            self._mounted.pop(name, None)
            self._waiting.pop(name, None)

    def _pod(self, host: Host) -> Pod:
        made = Pod(host, self.folder / f"{host.name}-{time.monotonic_ns()}")
        if self.secret:
            made.mount_password("vrrp", **self.secret)
        return made

    def _mount(self, delays: Mapping[str, float]) -> bool:
        """Mount what is due; return whether no mount is pending. Newer content replaces pending content."""
        data, now = self._data(), time.monotonic()
        for name in self.pods:
            if self._mounted[name] == data:
                self._waiting.pop(name, None)
                continue
            since = self._waiting.setdefault(name, now)
            if now - since >= delays.get(name, 0.0):
                del self._waiting[name]
                self._mounted[name] = data
                self.pods[name].config.swap(dict(data))
        return not self._waiting

    def _are_current(self) -> bool:
        wanted = msgspec.json.decode(self._data()[names.AGENT_KEY])["configHash"]
        alive = [name for name, each in self.pods.items() if each.agent]
        states = self.simulation.agents.states_of(GROUP)
        return bool(alive) and all(
            name in states and states[name].config_hash == wanted and not self._doubts(states[name]) for name in alive
        )

    def _doubts(self, state: NodeState) -> bool:
        """Whether the node takes another node for a stranger: it does not know that one's hardware address yet."""
        known = {host.address.mac for host in self.lan.nodes}
        return any(each.hardware in known for each in state.claimed)

    def _data(self) -> Mapping[str, bytes]:
        """The files of the mounted ConfigMap."""
        found = self.simulation.objects.configmaps[GROUP]
        binary: Mapping[str, str] = getattr(found, "binary_data", None) or {}
        plain = {name: text.encode() for name, text in (found.data or {}).items()}
        return {**plain, **{name: base64.b64decode(text) for name, text in binary.items()}}


def _at_once(act: Callable[[Pod], None], pods: Iterable[Pod]) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(act, pods))


def _node(host: Host) -> Any:
    return build.node(host.name, host.ipv4, host.ipv6)


def serve_vips(host: Host) -> Process:
    """Start the server that answers on every address of *host*."""
    return host.spawn(
        *BEFORE_OTHERS, sys.executable, "-m", "tests.transitions.vipserver", host.name, log=host.home / "server.log"
    )
