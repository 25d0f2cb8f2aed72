"""
An installation of keepalived-operator on live nodes: its daemons, and kavip's controller that takes the group over.

The old daemons run the text of the key ``keepalived.conf`` and reload it whenever the ConfigMap changes, as their
reloader does: so a change of that key would be noticed. When the plan deletes an old pod, it stops, and kavip's pod
starts in its place.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hack.testbed.errors import TestbedError
from hack.testbed.segment import Segment
from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.observed import exporter
from kavip.vrrp import operatorconfig
from tests.keepalived_operator.oldobjects import configmap, metrics, old_pod
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.livegroup import NO_DELAYS, LiveGroup, serve_vips
from tests.vrrp.livedaemons import Daemon

Transitions = dict[str, dict[str, tuple[int, ...]]]


class OldInstallation(LiveGroup):
    """A live group with pods of keepalived-operator; *old*: the daemons that are left, by node."""

    def __init__(self, lan: Segment, folder: Path, *, nodes: int, text: str, password: str = "") -> None:
        """The old daemons run *text* on every node; *password* is in the Secret for kavip's pods."""
        super().__init__(lan, folder, nodes=nodes)
        self.secret = {"password": password} if password else {}
        self._inherited = operatorconfig.read_instances(text)
        self.old = {host.name: Daemon(host).start(text) for host in lan.nodes[:nodes]}
        for name in self.old:
            self._servers[name] = serve_vips(lan.node(name))
        self.simulation.objects.configmaps[GROUP] = configmap(text)
        self._shown: Mapping[str, bytes] = self._data()

    def programmed_message(self) -> str:
        """The message of the group's condition Programmed."""
        found = self.simulation.snapshot.groups[GROUP].status.conditions or ()
        return next((each.message for each in found if each.type == names.ConditionType.PROGRAMMED), "")

    def settle(self, *, delays: Mapping[str, float] = NO_DELAYS) -> None:
        """Roll out; a timeout reports the message of Programmed."""
        try:
            super().settle(delays=delays)
        except TestbedError as error:
            raise AssertionError(f"{error}: {self.programmed_message()}") from error

    def approve_takeover(self, value: str = "true") -> None:
        """Set the take-over annotation on the group; "" removes it."""
        group: KeepalivedGroup = self.simulation.snapshot.groups[GROUP]
        notes = {names.TAKE_OVER_ANNOTATION: value} if value else None
        metadata = msgspec.structs.replace(group.metadata, annotations=notes)
        self.simulation.snapshot.put(msgspec.structs.replace(group, metadata=metadata))

    def masters(self, instance: str) -> list[str]:
        """The nodes whose old daemons are master of *instance*."""
        return [name for name, each in self.old.items() if each.look()[instance].state == "MASTER"]

    def step(self, *, delays: Mapping[str, float] = NO_DELAYS) -> bool:
        """Run one round; returns whether the roll-out has ended: no old daemon is left, or the plan has no writes."""
        is_settled = super().step(delays=delays) if names.AGENT_KEY in self._data() else self._look_only()
        self._reload()
        for node in [node for node in self.old if f"lb/edge-old-{node}" in self.simulation.removed]:
            self.old.pop(node).stop()
        return is_settled and not (self.old and names.AGENT_KEY in self._data())

    def transitions(self) -> Transitions:
        """The transitions of the old daemons too."""
        return {**super().transitions(), **{name: _changes(each) for name, each in self.old.items()}}

    def stop(self) -> None:
        """Stop all daemons, pods and servers."""
        for each in self.old.values():
            each.stop()
        super().stop()

    def _look_only(self) -> bool:
        self._observe()
        return not self.simulation.group(GROUP).writes

    def _observe(self) -> None:
        super()._observe()
        for node, each in self.old.items():
            pod = old_pod(node)
            self.simulation.objects.pods[GROUP][pod.metadata.key] = pod
            ids = {instance.name: instance.router_id for instance in self._inherited}
            seen = [(name, ids[name], sight.state) for name, sight in each.look().items()]
            state = exporter.node_state(metrics(*seen), self._inherited)
            self.simulation.agents = self.simulation.agents.with_state(GROUP, node, state=state)

    def _run_pods(self) -> None:
        """Run kavip's pods only on nodes of the group where the old pod is gone."""
        snapshot = self.simulation.snapshot
        mine = {node.metadata.name for node in snapshot.group_nodes(snapshot.groups[GROUP])}
        without = self.old.keys() | (snapshot.nodes.keys() - mine)
        for node in without:
            self.pods.setdefault(node, None)  # type: ignore[arg-type]  # so that no pod is started
        try:
            super()._run_pods()
        finally:
            for node in without:
                del self.pods[node]

    def _reload(self) -> None:
        """Reload the old daemons where the ConfigMap has changed, as the old reloader does."""
        if (data := self._data()) != self._shown and self.old:
            self._shown = data
            for each in self.old.values():
                each.reload(data[names.CONFIG_KEY].decode())


def _changes(daemon: Daemon) -> dict[str, tuple[int, ...]]:
    return {name: recorded.changes for name, recorded in daemon.look().items()}
