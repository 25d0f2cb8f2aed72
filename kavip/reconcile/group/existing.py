"""
What exists of a group: its pods, the revisions that its nodes run, how far it is taken over, and foreign objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kavip import names
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.scheduling import placement_fields
from kavip.api.workload import ConfigMap, controller_of
from kavip.names import Reason
from kavip.reconcile.group.manifests import PROMETHEUS_ACCESS
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.ownership import OLD_OPERATOR, OwnerConflict, owner_conflict
from kavip.reconcile.observed.records import RECHECK
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_as_written, settings_of, undamaged
from kavip.reconcile.rollout.peers import PATIENCE
from kavip.reconcile.takeover.progress import Takeover, takeover_of
from kavip.reconcile.takeover.replacement import with_leaders
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot

NEEDED: Final = (names.CONFIG_MAP, names.DAEMON_SET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """
    What exists of one group.

    *configmap*: the ConfigMap of its name, whichever program made it. *published*: its revisions, where kavip made it
    and their text is known. *is_lost*: there were some, so only the agents know what the nodes run.
    *conflict*: why kavip may write neither ConfigMap nor DaemonSet; None: it may write both.
    """

    configmap: ConfigMap | None
    pods: tuple[Pod, ...]
    takeover: Takeover
    published: PublishedRevisions | None
    is_lost: bool
    conflict: Refusal | None

    @property
    def running(self) -> Revision | None:
        """The revision that the nodes run now, by the ConfigMap."""
        return self.published.current if self.published else None


def existing_of(snapshot: Snapshot, group: KeepalivedGroup, observed: Observed, *, now: datetime) -> Existing:
    """What exists of *group*."""
    configmap, pods = observed.objects.configmaps.get(group.key), observed.objects.pods_of(group.key)
    states = observed.agents.states_of(group.key)
    controlled = configmap if _is_controlled(configmap, group) else None
    takeover = with_leaders(takeover_of(snapshot, group, configmap=controlled, pods=pods, states=states))
    conflict = find_conflict(group, observed, NEEDED, takeover=takeover, now=now)
    found = read_as_written(configmap if conflict is None else None, settings_of(group))
    published = undamaged(found.at(now), snapshot.memory(group.key)) if found else None
    return Existing(
        configmap=configmap,
        pods=pods,
        takeover=takeover,
        published=published,
        is_lost=published is None and conflict is None and (found is not None or bool(group.status.config_hash)),
        conflict=conflict,
    )


def awaits_agents(snapshot: Snapshot, group: KeepalivedGroup, agents: AgentStates, existing: Existing) -> bool:
    """Whether an agent of *group* may soon answer for the first time: the controller has only begun to ask."""
    if agents.at - agents.since > PATIENCE:
        return False
    nodes = {pod.spec.node_name for pod in existing.pods} - agents.states_of(group.key).keys()
    return any(node is not None and node.is_ready for node in map(snapshot.nodes.get, nodes))


def find_conflict(
    group: KeepalivedGroup, observed: Observed, kinds: Sequence[str], *, takeover: Takeover, now: datetime
) -> Refusal | None:
    """Why kavip must leave an object of *kinds* alone: another program made the object of that name."""
    for kind in kinds:
        key = object_key(group, kind)
        conflict = _conflict_of(group, observed, kind, key, now=now)
        if conflict is not None and not (conflict.is_old_operator and takeover.may_begin):
            return _refusal(group, f"{kind} {key}", conflict, takeover)
    if names.DAEMON_SET in kinds and takeover.is_blocked:
        return _refusal(group, f"{names.DAEMON_SET} {group.key}", OLD_OPERATOR, takeover)
    return None


def object_key(group: KeepalivedGroup, kind: str) -> str:
    """``ns/name`` of the object of *kind* that *group* owns."""
    return f"{group.key}{names.PROMETHEUS_ROLE_SUFFIX if kind in PROMETHEUS_ACCESS else ''}"


def _conflict_of(
    group: KeepalivedGroup, observed: Observed, kind: str, key: str, *, now: datetime
) -> OwnerConflict | None:
    obj = observed.objects.find(kind, key)
    if obj is not None:
        return owner_conflict(obj, group_uid=group.metadata.uid)
    recorded = observed.records.conflicts.get(f"{kind} {key}")  # the caches show objects with the group's label only
    if recorded is None or (now - recorded.since).total_seconds() >= RECHECK:
        return None
    return recorded.owner


def _refusal(group: KeepalivedGroup, what: str, conflict: OwnerConflict, takeover: Takeover) -> Refusal:
    if not conflict.is_old_operator:
        return Refusal(Reason.OBJECT_CONFLICT, f"{what} is {conflict.owner}: delete it, or rename the group")
    if takeover.approved and takeover.evicted:
        fields = placement_fields(group.spec)
        message = (
            f"{what} belongs to keepalived-operator, and its take-over would end the pods on {few(takeover.evicted)} "
            f"at once, with the VIPs that they hold: until it is done, let {fields} include these nodes"
        )
        return Refusal(Reason.OLD_OPERATOR_RUNNING, message)
    message = (
        f"{what} belongs to keepalived-operator, and changes reach no node; to take its VIPs over node by node: "
        f"kubectl annotate keepalivedgroup {group.metadata.name} -n {group.metadata.namespace} "
        f"{names.TAKE_OVER_ANNOTATION}=true"
    )
    return Refusal(Reason.OLD_OPERATOR_RUNNING, message)


def _is_controlled(configmap: ConfigMap | None, group: KeepalivedGroup) -> bool:
    owner = controller_of(configmap.metadata) if configmap else None
    return owner is not None and owner.uid == group.metadata.uid
