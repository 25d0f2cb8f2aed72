"""
The result of a reconcile: a key goes in, a Plan of its kind comes out.

A Plan is a value: the writes that are still needed, the Events, and what the worker must remember until the watch shows
the writes. Without work to do it is empty: ``ServicePlan()``, ``GroupPlan()``, ``PoolPlan()``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from math import inf
from types import MappingProxyType
from typing import Any, Final

from kavip import names
from kavip.api.address import Address
from kavip.api.meta import Condition, Metadata
from kavip.api.refusal import Refusal
from kavip.api.text import one_line
from kavip.podtemplate.permissions import NOTHING_PERMITTED, TemplatePermissions
from kavip.vrrp.configtemplate import RenderRequest
from kavip.vrrp.operatorconfig import OperatorInstance

_LONGEST: Final = 8_000  # characters of a message: at most 32,000 bytes in UTF-8; the limit is 32,768

Json = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as data."""


class KeyKind(StrEnum):
    """The kinds that keys are about."""

    SERVICE = "service"
    GROUP = "group"
    POOL = "pool"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One piece of work: an object by *kind* and *name* (``ns/name``, or the name of a pool)."""

    kind: KeyKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOptions:
    """What the administrator chose and decisions depend on; the defaults are those of the settings."""

    image: str = "kavip:latest"
    pull_policy: str = names.PULL_POLICY
    pull_secrets: tuple[str, ...] = ()
    ipam: str = "auto"
    agent_port: int = names.AGENT_PORT
    agent_allowed_cidrs: str = ""
    agent_metrics: str = names.Exporter.GEN2BRAIN.value
    prometheus_account: str = names.PROMETHEUS_ACCOUNT
    policy_images: tuple[str, ...] = ()
    policy_service_accounts: tuple[str, ...] = ()
    templates: TemplatePermissions = NOTHING_PERMITTED
    compact_text: bool = True

    @property
    def related_images(self) -> tuple[str, ...]:
        """Each image that a pod of a group may run, where the administrator lists images: kavip's own, and these."""
        return (self.image, *self.policy_images)


class ConditionChange(IntEnum):
    """How a desired condition differs from the stored one. Only a change of STATE is urgent."""

    NONE = 0
    MESSAGE = 1
    STATE = 2


@dataclass(frozen=True, slots=True)
class ConditionState:
    """
    A desired condition: *status*, *reason*, and a *message* that names the next step.

    Unprintable characters of the message are escaped, and a message that is longer than the CRDs allow is cut.
    *is_progress*: it only counts how many nodes are ready, or run a configuration.
    """

    status: str
    reason: str
    message: str
    is_progress: bool = False

    def __post_init__(self) -> None:
        """Change the message here, so that the compared message is the written one."""
        message = one_line(self.message[: _LONGEST + 1])
        message = f"{message[:_LONGEST]}..." if len(message) > _LONGEST else message
        if message is not self.message:
            object.__setattr__(self, "message", message)

    def change(self, stored: Condition | None, metadata: Metadata) -> ConditionChange:
        """How this differs from *stored*, which is on the object with *metadata*."""
        if stored is None or (stored.status, stored.reason) != (self.status, self.reason):
            return ConditionChange.STATE
        if stored.observed_generation != metadata.generation:
            return ConditionChange.STATE
        return ConditionChange.NONE if stored.message == self.message else ConditionChange.MESSAGE

    def condition(self, metadata: Metadata, kind: str) -> Condition:
        """The condition of type *kind* on the object with *metadata*; merging it sets its transition time."""
        return Condition(
            type=kind,
            status=self.status,
            reason=self.reason,
            message=self.message,
            observed_generation=metadata.generation,
        )


@dataclass(frozen=True, slots=True)
class Apply:
    """
    Server-side apply of the whole *body* of an object that the object with *owner* (a UID) controls.

    *unseen*: the cache holds no object of that name, so the writer first reads its owner. *adopts*: an object
    of keepalived-operator with that name becomes an object of kavip.
    """

    kind: str
    key: str
    body: Json = field(hash=False)
    owner: str
    unseen: bool
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """
    A patch of ``status``; *body* carries the resourceVersion that it was decided on.

    *is_progress*: it reports nothing but how many nodes run the newest configuration, how much that contains, and other
    messages; every condition keeps its state, but for one that is progress too.
    """

    kind: KeyKind
    key: str
    body: Json = field(hash=False)
    is_progress: bool = False


@dataclass(frozen=True, slots=True)
class PodAnnotation:
    """Annotate the pod *key* of *group* for a new configuration, so that kubelet refreshes its mount at once."""

    key: str
    value: str
    group: str


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """Replace the pod *key* with that *uid*, of *group*: its DaemonSet makes another one."""

    key: str
    uid: str
    group: str


Write = Apply | StatusPatch | PodAnnotation | PodRemoval


@dataclass(frozen=True, slots=True)
class Notice:
    """One Event, *warning* or normal, about the object with the key *about*; None: about that of the plan."""

    reason: str
    message: str
    warning: bool
    about: Key | None = None


@dataclass(frozen=True, slots=True)
class GroupReservation:
    """What a group's status will say once its write is seen: no other group may take these VRIDs or this port."""

    router_ids: frozenset[int] = frozenset()
    port: int = 0


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """
    Where the agents of a group are asked, and which configuration they should run: node name -> host, one *port*.

    *old*: the nodes where keepalived-operator's pod is asked instead, which runs *instances*. *prepared*, *switch_at*:
    what else agents should say. *vips*: by text and in parts, those that are read in their answers; None: all.
    """

    hosts: Mapping[str, str] = field(hash=False)
    port: int
    config_hash: str
    old: frozenset[str] = frozenset()
    instances: tuple[OperatorInstance, ...] = ()
    prepared: str = ""
    switch_at: str = ""
    vips: tuple[Mapping[str, Address], ...] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class AddressRemoval:
    """*addresses* that kavip gave were removed so many *times*; until *until* they are not written again."""

    addresses: tuple[Address, ...]
    times: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A state that is reported only if it persists: its *reason*, observed *since* (monotonic seconds)."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many of a burst, of Events or of writes, are *spent* at the time *at* (monotonic seconds)."""

    spent: int = 0
    at: float = 0.0

    def after(self, now: float, *, interval: float) -> "Allowance":
        """The same at *now*: one is regained in each *interval*."""
        regained = int((now - self.at) / interval)
        if regained >= self.spent:
            return Allowance(0, now)
        return Allowance(self.spent - regained, self.at + regained * interval)


@dataclass(frozen=True, slots=True)
class PublishedList:
    """
    The VIPs that nodes ask the LAN for, as a ConfigMap lists them.

    *since*: when they last changed, or it was last examined whether some may leave the list; in monotonic seconds.
    """

    probe: tuple[str, ...] = ()
    since: float = 0.0

    def after(self, probe: tuple[str, ...], *, at: float) -> "PublishedList":
        """The same if the list is still *probe*, else that list since *at*."""
        return self if probe == self.probe else PublishedList(probe, at)


@dataclass(frozen=True, slots=True)
class CalledOffSwitch:
    """
    A switch that was called off. Pods that still have one of the *annotations* of that moment have not learnt of it.

    *until*: its instant, in monotonic seconds.
    """

    annotations: frozenset[str] = frozenset()
    until: float = -inf


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """
    What the worker records of the last plan of a group.

    *reservation*: what its writes will take, until the watch shows them. *excluded*: by Service, why the configuration
    does not contain it. *unconfirmed*: by Service. *unconfirmed_masters*: by instance or VIP of the group's status.
    *obstructed*: the Services whose stored ``Programmed`` names an obstacle, and not only the progress. *allowance*: of
    Events about VIPs that move. *annotated*: when its pods were annotated; *notation_left*: when its text last left a
    notation; both in monotonic seconds. *listed*: the VIPs in its ConfigMap that were new. *called_off*: the last
    such switch.
    """

    reservation: GroupReservation = GroupReservation()
    excluded: Mapping[str, Refusal] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    unconfirmed: Mapping[str, Unconfirmed] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    unconfirmed_masters: Mapping[str, Unconfirmed] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    obstructed: frozenset[str] = frozenset()
    allowance: Allowance = Allowance()
    annotated: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    notation_left: float = -inf
    listed: PublishedList = PublishedList()
    called_off: CalledOffSwitch = CalledOffSwitch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The difference between the observed and the desired state of one object, whatever its kind.

    *requeue_after*: reconcile the same key again after so many seconds. *also*: other keys to reconcile now.
    """

    writes: tuple[Write, ...] = ()
    events: tuple[Notice, ...] = ()
    requeue_after: float | None = None
    also: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan(Plan):
    """
    The plan of one Service.

    *claims*: the addresses that the Service holds from now on; None leaves the ledger unchanged. *waits*: the pools
    that it waits for; None leaves them unchanged. *unmet*: the reason why it lacks an address. *removal*: another
    controller removed the addresses that kavip wrote; None leaves the record of that unchanged. *is_rewording*: nothing
    differs but messages, so the write and the requeue wait until no other key is ready. *withdrawn*: addresses that
    cool down for no Service from now on, because another machine has them; the Service gives them up after that is
    written.
    """

    claims: tuple[Address, ...] | None = None
    waits: tuple[str, ...] | None = None
    unmet: str = ""
    removal: AddressRemoval | None = None
    is_rewording: bool = False
    withdrawn: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(Plan):
    """
    The plan of one KeepalivedGroup.

    *also_low_priority*: other keys to reconcile when no other key is ready, because only messages of theirs differ.
    *record*: what is recorded until the next plan; None leaves that unchanged. *target*: where the prober asks the
    agents; None leaves that unchanged. *rendering*: the template to render for the next plan. *template_problem*: why
    the template of the configuration cannot be used. *pod_allowance*: how many pods of all
    groups may be annotated; None leaves that unchanged.
    """

    also_low_priority: tuple[Key, ...] = ()
    record: GroupRecord | None = None
    target: ProbeTarget | None = None
    rendering: RenderRequest | None = field(default=None, hash=False)
    template_problem: Refusal | None = None
    pod_allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan(Plan):
    """The plan of one VIPPool."""


def timestamp(now: datetime) -> str:
    """*now* as conditions carry it: RFC 3339, UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(text: str, now: datetime) -> float:
    """Seconds between the timestamp *text* and *now*; infinite if *text* is none."""
    try:
        return (now - datetime.fromisoformat(text)).total_seconds()
    except (TypeError, ValueError):
        return float("inf")
