"""
A group on real nodes: real agents and daemons, the controller's own plan, and mounts as slow as a test wants them.

The controller's plan works on a Snapshot, as everywhere; what it applies is mounted on every node after that node's
delay; what the agents answer goes back into the plan. So each order of a roll-out can be tried.
"""

import base64
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.nodes import Contact
from kavip.snapshot import Object
from tests.agent.pod import PATIENCE, Pod
from tests.reconcile.scenes import GROUP, NOW, World, cluster, pod
from tests.support import build
from tests.vrrp.livedaemons import BEFORE_OTHERS

AT_ONCE: Final[Mapping[str, float]] = MappingProxyType({})
INTERVAL: Final = 0.5
"""Seconds between two adverts of the rig's group: a machine that pauses for less than three of them makes no master."""
UNSAID: Final = 1.0
"""And where the text does not say how many."""
NEW: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "unicast_enabled": True,
        "segment": "default",
        "vrrp_version": 3,
        "advert_interval_milliseconds": round(INTERVAL * 1000),
    }
)
"""What the mutating webhook gives a new group, but for an interval that forgives more."""

_PAUSE: Final = 0.1
_STAY: Final = 3.5  # intervals: by then a backup that hears nobody has become master
_ADVERT_INT: Final = re.compile(r"^ +advert_int ([0-9.]+)$", re.MULTILINE)
_PRIORITY: Final = re.compile(r"^    @(\S+) priority (\d+)$", re.MULTILINE)


def group(**spec: Any) -> KeepalivedGroup:
    """The rig's group, ``lb/edge``; it is a new one where *spec* does not say otherwise."""
    return build.group(GROUP, **{**NEW, **spec})


def service(key: str, *vips: str, **more: Any) -> Service:
    """A Service of the group that has these VIPs, without any pool."""
    return build.service(key, group=GROUP, type="ClusterIP", external_ips=list(vips), **more)


class Rig:
    """
    The group on some of a segment's nodes.

    *pods* by node; *world* is what the controller sees and has written; *secret* is what pods that start find in the
    Secret ``vrrp``, by key.

    Only what :meth:`apply`, :meth:`join` and :meth:`leave` bring about is rolled out; what a test does to pods it does
    itself, and calls :meth:`settle` where the plan has to take note.
    """

    def __init__(self, lan: Segment, folder: Path, *, nodes: int) -> None:
        """Nothing runs yet; call :meth:`apply` with a group."""
        self.lan, self.folder = lan, folder
        self.world = World(cluster(nodes=0))
        self.pods: dict[str, Pod] = {}
        self.secret: Mapping[str, str] = {}
        self._servers: dict[str, Process] = {}
        self._mounted: dict[str, Mapping[str, bytes]] = {}
        self._waiting: dict[str, tuple[float, Mapping[str, bytes]]] = {}
        for host in lan.nodes[:nodes]:
            self.world.snapshot.put(_node(host))

    # --- what happens -------------------------------------------------------------------------------------------------
    def apply(self, *objects: Object, delays: Mapping[str, float] = AT_ONCE) -> None:
        """Write *objects*, and roll out; *delays* are the seconds that a change takes to a node's mount."""
        for each in objects:
            self.world.snapshot.put(each)
        self.settle(delays=delays)

    def delete(self, kind: str, key: str, *, delays: Mapping[str, float] = AT_ONCE) -> None:
        """Delete an object, and roll out."""
        self.world.snapshot.drop(kind, key)
        self.settle(delays=delays)

    def join(self, *nodes: str, delays: Mapping[str, float] = AT_ONCE) -> None:
        """Add nodes of the segment to the group, and roll out."""
        self.apply(*(_node(self.lan.node(name)) for name in nodes), delays=delays)

    def leave(self, *nodes: str, delays: Mapping[str, float] = AT_ONCE) -> None:
        """Take nodes out of the group: their pods are stopped in order, as the DaemonSet does it."""
        for name in nodes:
            self.world.snapshot.drop(names.NODE, name)
        self.settle(delays=delays)

    def settle(self, *, delays: Mapping[str, float] = AT_ONCE) -> None:
        """Plan, write, mount and look, until every node runs what was written and nothing is left to be written."""
        process.wait_for("the roll-out ends", lambda: self.step(delays=delays), timeout=PATIENCE, interval=_PAUSE)

    def step(self, *, delays: Mapping[str, float] = AT_ONCE) -> bool:
        """One round of controller, kubelets and agents; whether all is done."""
        self._observe()
        self.world.now = datetime.now(UTC)
        is_done = not self.world.group(GROUP).writes
        if GROUP not in self.world.objects.configmaps:
            return False
        self._run_pods()
        return self._mount(delays) and is_done and self._are_current()

    # --- what is ------------------------------------------------------------------------------------------------------
    @property
    def text(self) -> str:
        """The group's keepalived.conf as it was written last."""
        return self.world.text(GROUP)

    def transitions(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """By node and instance: how often it became master and ceased to be; nodes whose agent is away have none."""
        return {name: each.transitions() for name, each in self.pods.items() if each.agent}

    def master(self, instance: str) -> str:
        """The node that is the only master of *instance*, once one is."""
        found: list[str] = []

        def one() -> bool:
            found[:] = [name for name, each in self.pods.items() if each.agent and instance in each.masters()]
            return len(found) == 1

        process.wait_for(f"one master of {instance}", one, timeout=PATIENCE)
        return found[0]

    def leaders(self, *, without: str = "") -> dict[str, str]:
        """The node that is to hold each instance: of those that have a pod, the one with the highest priority."""
        crew = self.pods.keys() - {without}
        found: dict[str, tuple[int, str]] = {}
        for block in blocks.split(self.text):
            drawn = [(int(number), node) for node, number in _PRIORITY.findall(block.text) if node in crew]
            if block.name and drawn:
                found[block.name] = max(drawn)
        return {name: node for name, (_, node) in found.items()}

    def calm(self) -> dict[str, str]:
        """Wait until each instance has the master that it is to have, and keeps it; who that is."""
        wanted = self.leaders()
        for name, node in wanted.items():
            self.lead(name, node)
        self.rest()
        for name, node in wanted.items():
            self.lead(name, node)
        return wanted

    def rest(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """
        Wait until no daemon has risen or stood back for as long as one waits for a master; the transitions until then.

        Daemons that start together may rise together: the second an instant after it was seen as backup.
        """
        intervals = (float(each) for each in _ADVERT_INT.findall(self.text))
        seen = [self.transitions()]

        def stayed() -> bool:
            seen.append(self.transitions())
            return seen[-1] == seen[-2]

        stay = _STAY * max(intervals, default=UNSAID)
        time.sleep(stay)
        process.wait_for("the masters stay", stayed, timeout=PATIENCE, interval=stay)
        return seen[-1]

    def lead(self, instance: str, node: str) -> None:
        """Wait until *node* is the only master of *instance*."""
        process.wait_for(
            f"{node} leads {instance}",
            lambda: [name for name, each in self.pods.items() if each.agent and instance in each.masters()] == [node],
            timeout=PATIENCE,
        )

    def stop(self) -> None:
        """End everything."""
        _at_once(Pod.stop, self.pods.values())
        process.kill(self._servers.values())

    # --- what a cluster does ------------------------------------------------------------------------------------------
    def _observe(self) -> None:
        """Ask the agents, as the probe does: silence leaves the last answer."""
        for name, each in self.pods.items():
            status, body = each.get(names.STATE_PATH)
            if status == 200:
                state = node_state(decode_state(body.encode()))
                self.world.agents = self.world.agents.with_state(GROUP, name, state=state)
                hearing = Contact(last=(datetime.now(UTC) - NOW).total_seconds())
                self.world.agents = self.world.agents.with_contact(GROUP, name, contact=hearing)
        self.world.agents = self.world.agents.with_nodes(GROUP, self.world.snapshot.nodes)
        # a pod is ready while its agent says so
        before = self.world.objects.pods.get(GROUP, {})
        found = {}
        for name, each in self.pods.items():
            fresh = pod(f"edge-{name}", name, ready=each.get(names.READY_PATH)[0] == 200)
            told = before.get(fresh.metadata.key, fresh).metadata  # with what the controller has noted on it
            found[fresh.metadata.key] = msgspec.structs.replace(fresh, metadata=told)
        self.world.objects.pods[GROUP] = found

    def _run_pods(self) -> None:
        """Start and stop pods where the nodes of the group have changed."""
        fresh = sorted(self.world.snapshot.nodes.keys() - self.pods.keys())
        for name in fresh:
            host = self.lan.node(name)
            if name not in self._servers:
                self._servers[name] = _serve(host)
            self.pods[name] = self._pod(host)
            self._mounted[name] = self._data()
            self.pods[name].config.swap(dict(self._mounted[name]))
        _at_once(Pod.start, (self.pods[name] for name in fresh))
        gone = sorted(self.pods.keys() - self.world.snapshot.nodes.keys())
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
        """Mount what is due; whether nothing waits. A newer content takes the place of one that waits."""
        data, now = self._data(), time.monotonic()
        for name in self.pods:
            if self._mounted[name] == data:
                self._waiting.pop(name, None)
                continue
            due, _ = self._waiting.get(name, (now + delays.get(name, 0.0), data))
            self._waiting[name] = due, data
            if due <= now:
                del self._waiting[name]
                self._mounted[name] = data
                self.pods[name].config.swap(dict(data))
        return not self._waiting

    def _are_current(self) -> bool:
        wanted = msgspec.json.decode(self._data()[names.AGENT_KEY])["configHash"]
        alive = [name for name, each in self.pods.items() if each.agent]
        states = self.world.agents.states_of(GROUP)
        return bool(alive) and all(name in states and states[name].config_hash == wanted for name in alive)

    def _data(self) -> Mapping[str, bytes]:
        """The files that the ConfigMap is mounted as."""
        found = self.world.objects.configmaps[GROUP]
        binary: Mapping[str, str] = getattr(found, "binary_data", None) or {}
        plain = {name: text.encode() for name, text in (found.data or {}).items()}
        return {**plain, **{name: base64.b64decode(text) for name, text in binary.items()}}


def _at_once(act: Callable[[Pod], None], pods: Iterable[Pod]) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(act, pods))


def _node(host: Host) -> Any:
    return build.node(host.name, host.ipv4, host.ipv6)


def _serve(host: Host) -> Process:
    return host.spawn(
        *BEFORE_OTHERS, sys.executable, "-m", "tests.changes.server", host.name, log=host.home / "server.log"
    )
