"""
Taking a group over from keepalived-operator: what is there of it, and what was agreed.

Everything follows from what is seen, the ConfigMap and the pods, so that kavip may be restarted or called off at any
moment. While an old pod is there, the key ``keepalived.conf`` stays as it was found, and the new pods read
``kavip.conf``. What is done next: :mod:`~kavip.reconcile.migration.replacement`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kavip import names
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, controller_of
from kavip.vrrp import predecessor
from kavip.vrrp.predecessor import Inherited
from kavip.vrrp.succession import Succession

_THEIRS: Final = frozenset({"keepalived", "config-reloader"})
"""Containers of a pod of keepalived-operator's; kavip's has the first one too, and its agent."""


class _Noted(msgspec.Struct, frozen=True):
    """What ``agent.json`` notes for kavip itself."""

    leads: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """
    How far a group has been taken over.

    *agreed*: its owner wants it. *begun*: the ConfigMap holds kavip's text beside the old one. *old* and *new*: the
    pods by node. *instances*: what the old ones run. *leads*: see :class:`Succession`. *lost*: there is no ConfigMap
    that says what they run. *doomed*: the nodes whose old pods Kubernetes ends, all at once, as soon as the DaemonSet
    is kavip's.
    """

    group: KeepalivedGroup
    agreed: bool
    begun: bool
    old: Mapping[str, Pod]
    new: Mapping[str, Pod]
    instances: tuple[Inherited, ...]
    leads: frozenset[str]
    lost: bool = False
    doomed: tuple[str, ...] = ()

    @property
    def may_begin(self) -> bool:
        """Whether its owner wants it, and no VIP is lost by its beginning."""
        return self.agreed and (self.begun or not self.doomed)

    @property
    def goes_on(self) -> bool:
        """Whether there are old pods beside which kavip's text has to stand."""
        return bool(self.old) and (self.may_begin or self.begun)

    @property
    def is_aside(self) -> bool:
        """Whether old pods run on which nothing was agreed."""
        stays = any(not pod.metadata.deletion_timestamp for pod in self.old.values())
        return stays and (self.lost or not self.goes_on)

    @property
    def succession(self) -> Succession:
        """What the model owes; before anything is agreed as well, for VRIDs are persisted already."""
        return Succession(self.instances, self.leads)


def survey(
    group: KeepalivedGroup, configmap: ConfigMap | None, pods: Sequence[Pod], *, closed: Collection[str] = ()
) -> Takeover:
    """
    What is there of keepalived-operator's: *configmap* and *pods* are those of the name and the label of *group*.

    *closed*: nodes on which no pod of the group may be, nor stay.
    """
    data = (configmap.data if configmap else None) or {}
    agreed = group.metadata.annotation(names.TAKE_OVER_ANNOTATION) == "true"
    begun = names.TAKE_OVER_KEY in data
    old = {pod.spec.node_name: pod for pod in pods if is_old(pod, group)}
    stays = [node for node, pod in old.items() if not pod.metadata.deletion_timestamp]
    is_theirs = begun or (configmap is not None and names.AGENT_KEY not in data)
    noted = _noted(data.get(names.AGENT_KEY, ""))
    return Takeover(
        group=group,
        agreed=agreed,
        begun=begun,
        old=dict(sorted(old.items())),
        new={pod.spec.node_name: pod for pod in pods if not is_old(pod, group)},
        instances=predecessor.read(data.get(names.CONFIG_KEY, "")) if is_theirs and old else (),
        leads=noted if agreed or (begun and old) else frozenset(),
        lost=configmap is None,
        doomed=tuple(sorted(node for node in stays if node in closed)),
    )


def is_old(pod: Pod, group: KeepalivedGroup) -> bool:
    """Whether *pod* was made from keepalived-operator's template; its DaemonSet may be gone."""
    owner = controller_of(pod.metadata)
    if owner is not None and (owner.kind, owner.name) != (names.DAEMON_SET, group.metadata.name):
        return False
    containers = pod.spec.containers
    return containers is not None and {each.name for each in containers} >= _THEIRS


def _noted(text: str) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(text, type=_Noted).leads) if text else frozenset()
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
