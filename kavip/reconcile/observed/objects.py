"""
What the controller has seen besides the Snapshot: the agents' states, and the objects that groups own.

Values that decisions read. The probe makes :class:`Observed`, the informers and the writer fill :class:`Objects`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from types import MappingProxyType
from typing import Any, Final

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Pod
from kavip.api.event import Event
from kavip.api.workload import ConfigMap, DaemonSet, PodMonitor, Role, RoleBinding
from kavip.reconcile.observed.operator import Rivals
from kavip.reconcile.observed.ownership import Foreign, Made
from kavip.reconcile.plan import Apply, GroupMemory, Key, Removal, Reserved, StatusPatch

MASTER: Final = "MASTER"  # as keepalived and the agent spell it
BACKUP: Final = "BACKUP"
FAULT: Final = "FAULT"
BY_KEEPALIVED: Final = "keepalived"  # as the agent says who refuses an instance

_NO_MEMORY: Final = GroupMemory()

EVER: Final = datetime.min.replace(tzinfo=UTC)
"""Before any moment at which agents could have been asked."""


@dataclass(frozen=True, slots=True)
class Sight:
    """
    One VRRP instance as one node's keepalived reports it; *since*, by that node's clock, it is in its *state*.

    *priority*: what checks and endpoints leave of it; 0 where it is not told.
    """

    name: str
    router_id: int
    family: int
    state: str
    virtual_ips: int
    since: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An instance that one node does not run as it is wanted; *by_keepalived*: for what is written in it."""

    name: str
    reason: str
    by_keepalived: bool = False
    kept: bool = False
    virtual_ips: frozenset[Address] = frozenset()


@dataclass(frozen=True, slots=True, order=True)
class Collision:
    """Somebody else uses the VRID of *instance* on *interface*: adverts with *sign* come in."""

    instance: str
    router_id: int
    interface: str
    sign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """
    The last answer of one node's agent.

    *instance_of*: the VIPs of the configuration that keepalived has read, and the name of the instance of each.
    *prepared*: the digest of what it can switch to, *next_refused* why it cannot, *switch_at* when it will. *drift*: by
    how many seconds its clock is off, 0 where that does not matter, None where it does not tell. *new_password*: since
    when it sees another than the one that runs. *unready*: the track files of Services without a ready endpoint there.
    """

    config_hash: str = ""
    refused: str = ""
    note: str = ""
    running: bool = True
    runs: frozenset[Address] = frozenset()
    masters: frozenset[Address] = frozenset()
    instance_of: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    instances: tuple[Sight, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    collisions: tuple[Collision, ...] = ()
    prepared: str = ""
    next_refused: str = ""
    switch_at: str = ""
    drift: float | None = None
    new_password: str = ""
    unready: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hearing:
    """
    When a node was heard, by the controller's monotonic clock.

    *last*: what it last said was so then. *since*: from when on each of its instances is known to be in its state
    without a break. *is_silent*: it has not answered for a while.
    """

    last: float = inf
    since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    is_silent: bool = False


Owned = Made | Pod | Event

NOTHING: Mapping[str, NodeState] = MappingProxyType({})
UNHEARD: Mapping[str, Hearing] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Observed:
    """
    Group -> node -> the last answer of its agent. A node that has never answered is absent.

    *began*: when the agents were first asked, and *since*: the same by the monotonic clock. *hearings*: when each was
    heard. *at*: the moment of this view, by the monotonic clock.
    """

    groups: Mapping[str, Mapping[str, NodeState]] = field(default_factory=lambda: MappingProxyType({}))
    began: datetime = EVER
    hearings: Mapping[str, Mapping[str, Hearing]] = field(default_factory=lambda: MappingProxyType({}))
    at: float = 0.0
    since: float = -inf

    def of(self, group: str) -> Mapping[str, NodeState]:
        """The answers of the nodes of *group*."""
        return self.groups.get(group, NOTHING)

    def heard(self, group: str) -> Mapping[str, Hearing]:
        """When the nodes of *group* were heard."""
        return self.hearings.get(group, UNHEARD)

    def with_node(self, group: str, node: str, *, state: NodeState) -> "Observed":
        """The same, with the answer of *node* replaced."""
        return replace(self, groups={**self.groups, group: {**self.of(group), node: state}})

    def with_hearing(self, group: str, node: str, *, hearing: Hearing) -> "Observed":
        """The same, with *hearing* as the last of *node*."""
        return replace(self, hearings={**self.hearings, group: {**self.heard(group), node: hearing}})

    def with_nodes(self, group: str, nodes: Iterable[str]) -> "Observed":
        """The same, without the answers of nodes that no longer belong to *group*; of no nodes: without the group."""
        kept = {node: state for node in nodes if (state := self.of(group).get(node))}
        heard = {node: hearing for node in kept if (hearing := self.heard(group).get(node))}
        rest = {key: states for key, states in self.groups.items() if key != group}
        hearings = {key: each for key, each in self.hearings.items() if key != group}
        return replace(
            self,
            groups={**rest, group: kept} if kept else rest,
            hearings={**hearings, group: heard} if heard else hearings,
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """What was last applied under a key: the *digest* of the body, and which object came out of it."""

    digest: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """An object of a name that kavip needs and must leave alone; looked at when it was *since*."""

    why: Foreign
    since: datetime


@dataclass(frozen=True, slots=True)
class Rejected:
    """A body, by *digest*, that the API server did not take, its *message*, and when it was sent."""

    digest: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Replaced:
    """The pod *uid* that was to be deleted; not *is_done* where the API server has not said that it is."""

    uid: str
    is_done: bool


@dataclass(slots=True)
class Objects:
    """
    The objects that groups own, as last seen, by ``ns/name``; and what the writer remembers about them.

    Informers on objects that carry the label of a group fill the first ones through :meth:`see`; *pods* is by group,
    then by pod, *monitoring* by ``Kind ns/name``, *complaints* of a DaemonSet that gets no pods by group, then by
    Event. *has_monitors*: there are PodMonitors here. *rivals* is what was seen of keepalived-operator itself.

    The writer fills the rest. By ``Kind ns/name``: *applied*, *strangers* and *refused*. By group: *groups*, what its
    last plan says; *replaced*, the pod deleted last. By Service: *sent*, the last status write, until the watch shows
    something new of the Service; *removals*, what others took out of its status. *written*: the resourceVersion that
    the last status write was decided on, where that write has made a new one.
    """

    daemonsets: dict[str, DaemonSet] = field(default_factory=dict)
    configmaps: dict[str, ConfigMap] = field(default_factory=dict)
    pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    monitoring: dict[str, Made] = field(default_factory=dict)
    has_monitors: bool = False
    complaints: dict[str, dict[str, Event]] = field(default_factory=dict)
    applied: dict[str, Applied] = field(default_factory=dict)
    strangers: dict[str, Stranger] = field(default_factory=dict)
    refused: dict[str, Rejected] = field(default_factory=dict)
    groups: dict[str, GroupMemory] = field(default_factory=dict)
    replaced: dict[str, Replaced] = field(default_factory=dict)
    written: dict[Key, str] = field(default_factory=dict)
    sent: dict[str, StatusPatch] = field(default_factory=dict)
    removals: dict[str, Removal] = field(default_factory=dict)
    rivals: Rivals = field(default_factory=Rivals)

    @property
    def reserved(self) -> Mapping[str, Reserved]:
        """By group, what no other group may take."""
        return {key: memory.reserves for key, memory in self.groups.items()}

    def memory_of(self, group: str) -> GroupMemory:
        """What the last plan of *group* says; empty before the first."""
        return self.groups.get(group, _NO_MEMORY)

    def see(self, old: Owned | None, new: Owned | None) -> str:
        """Take what an informer tells; return the group that it concerns, "" for none."""
        if old is not None:
            self._store(old).pop(_key_of(old), None)
        if new is not None:
            self._store(new)[_key_of(new)] = new
        return group_of(seen) if (seen := new or old) else ""

    def complaint(self, group: str) -> str:
        """What the DaemonSet of *group* said last about pods that it cannot create; "" where it said nothing."""
        daemonset = self.daemonsets.get(group)
        told = [
            event
            for _, event in sorted(self.complaints.get(group, {}).items())
            if daemonset is not None and event.regarding.uid == daemonset.metadata.uid
        ]
        return max(told, key=lambda event: event.last_time).note if told else ""

    def settle(self) -> None:
        """Forget the writes that were not seen to come back: all that can be seen has been."""
        self.written.clear()
        self.groups = {key: replace(memory, reserves=Reserved()) for key, memory in self.groups.items()}

    def forget(self, group: str) -> None:
        """Forget what is remembered about a *group* that is gone."""
        self.groups.pop(group, None)
        self.replaced.pop(group, None)
        for memory in (self.applied, self.strangers, self.refused):
            for name in [
                name for name in memory if name.endswith((f" {group}", f" {group}{names.PROMETHEUS_ROLE_SUFFIX}"))
            ]:
                del memory[name]

    def _store(self, obj: Owned) -> dict[str, Any]:
        match obj:
            case DaemonSet():
                return self.daemonsets
            case ConfigMap():
                return self.configmaps
            case Pod():
                return self.pods.setdefault(group_of(obj), {})
            case Event():
                return self.complaints.setdefault(group_of(obj), {})
            case _:
                return self.monitoring


def _key_of(obj: Owned) -> str:
    key = obj.metadata.key
    return f"{type(obj).__name__} {key}" if isinstance(obj, PodMonitor | Role | RoleBinding) else key


def group_of(obj: Owned) -> str:
    """The key of the group whose label *obj* carries, or that the DaemonSet of an Event is named as; or ""."""
    if isinstance(obj, Event):
        return f"{obj.regarding.namespace}/{obj.regarding.name}"
    name = obj.metadata.label(names.GROUP_LABEL)
    return f"{obj.metadata.namespace}/{name}" if name else ""


def memory_key(write: Apply) -> str:
    """The key under which :class:`Objects` remembers the object of *write*."""
    return f"{write.kind} {write.key}"
