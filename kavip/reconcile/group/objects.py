"""
The objects of a group: which are there, whose they are, and which have to be applied.

ConfigMap and DaemonSet are what a group is for: where one of them is somebody else's, or the API server refuses it,
neither is written. What Prometheus needs (:mod:`.monitoring`) comes after them and stops nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, Role, RoleBinding
from kavip.reconcile.group import manifests, monitoring
from kavip.reconcile.group.desired import Roster
from kavip.reconcile.group.manifests import Manifest, digest
from kavip.reconcile.migration.progress import Takeover
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.ownership import OLD_OPERATOR, Made, OwnerConflict, owner_conflict
from kavip.reconcile.plan import Apply, ReconcileOptions
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of

RECHECK: Final = 60.0
"""Seconds after which an object that stood in the way, or a body that was refused, is tried again."""

_OURS: Final = frozenset({names.CONFIG_KEY, names.TAKE_OVER_KEY, names.AGENT_KEY})
_ON_DEMAND: Final = {"type": "OnDelete"}

LONGEST_NAME: Final = 63  # the name becomes a label's value


@dataclass(frozen=True, slots=True)
class InTheWay:
    """
    The object *what* (``Kind ns/name``) that must be left alone, and *why*.

    *doomed*: the nodes whose pods would end with the VIPs that they hold, were it taken over as is wanted.
    """

    what: str
    why: OwnerConflict
    doomed: tuple[str, ...] = ()


def bodies_of(
    group: KeepalivedGroup,
    roster: Roster,
    options: ReconcileOptions,
    published: PublishedRevisions | None,
    taken: Takeover,
) -> tuple[Manifest, ...]:
    """
    The objects as they should be, in the order in which they are written: pods need their ConfigMap.

    While pods of keepalived-operator exist, only :mod:`~kavip.reconcile.migration.replacement` replaces pods.
    """
    if published is None or len(group.metadata.name) > LONGEST_NAME:
        return ()
    return (
        manifests.config_map(
            group,
            published,
            key=names.TAKE_OVER_KEY if taken.is_active else names.CONFIG_KEY,
            leads=taken.leaders,
            followed=roster.followed,
        ),
        manifests.daemon_set(
            group,
            image=options.image,
            port=roster.port,
            allowed_cidrs=options.agent_allowed_cidrs,
            metrics=options.agent_metrics,
            strategy=_ON_DEMAND if taken.is_active else None,
            secrets=published.secrets,
        ),
    )


@dataclass(frozen=True)
class Belongings:
    """What *group* has, as *observed* at the time *now*; *taken*: what is there of keepalived-operator's."""

    group: KeepalivedGroup
    observed: Observed
    now: datetime
    taken: Takeover

    @property
    def configmap(self) -> ConfigMap | None:
        """The ConfigMap of the group's name, whoever made it."""
        return self.observed.objects.configmaps.get(self.group.key)

    @property
    def published(self) -> PublishedRevisions | None:
        """What the ConfigMap of kavip's says that is there."""
        ours = self.configmap if self.in_the_way((names.CONFIG_MAP, names.DAEMON_SET)) is None else None
        return read_published(ours, settings_of(self.group))

    @property
    def runs(self) -> Revision | None:
        """What its nodes run now, as the ConfigMap says."""
        published = self.published
        return published.at(self.now).current if published else None

    def holds(self, data: Mapping[str, str]) -> bool:
        """
        Whether the ConfigMap holds *data*, and besides nothing of kavip's but the text of keepalived-operator's pods.

        What others add is no concern of agents, and would never go: server-side apply leaves it.
        """
        there = (self.configmap.data if self.configmap else None) or {}
        stale = (there.keys() & _OURS) - data.keys() - ({names.CONFIG_KEY} if names.TAKE_OVER_KEY in data else set())
        return not stale and data.items() <= there.items()

    def in_the_way(self, kinds: Sequence[str]) -> InTheWay | None:
        """The first object of *kinds* that is not ours to write over."""
        taken = self.taken
        doomed = taken.evicted if taken.approved else ()
        for kind in kinds:
            obj, what = self._seen(kind, self._key(kind)), f"{kind} {self._key(kind)}"
            conflict = self.observed.records.conflicts.get(what)
            why = owner_conflict(obj, group_uid=self.group.metadata.uid) if obj is not None else None
            if obj is None and conflict is not None and (self.now - conflict.since).total_seconds() < RECHECK:
                why = conflict.owner
            if why is not None and not (why.is_old_operator and taken.may_begin):
                return InTheWay(what, why, doomed if why.is_old_operator else ())
        if names.DAEMON_SET in kinds and taken.is_blocked:
            return InTheWay(f"{names.DAEMON_SET} {self.group.key}", OLD_OPERATOR, doomed)
        return None

    def refused(self, bodies: Sequence[Manifest]) -> str:
        """What the API server said to one of *bodies* a moment ago; "" where it was not asked."""
        for body in bodies:
            what = f"{body['kind']} {_key_of(body)}"
            told = self.observed.records.rejected.get(what)
            if told and told.digest == digest(body) and (self.now - told.since).total_seconds() < RECHECK:
                return f"the API server refuses {what}: {told.message}"
        return ""

    def applies(self, bodies: Sequence[Manifest]) -> tuple[Apply, ...]:
        """What has to be written so that *bodies* stand."""
        result = []
        for body in bodies:
            kind, key = body["kind"], _key_of(body)
            seen = self._seen(kind, key)
            if seen is None or not self._is_current(seen, body):
                owner, adopts = self.group.metadata.uid, self.taken.approved
                result.append(Apply(kind, key, body, owner, unseen=seen is None, adopts=adopts))
        return tuple(result)

    def _key(self, kind: str) -> str:
        return f"{self.group.key}{names.PROMETHEUS_ROLE_SUFFIX if kind in monitoring.ACCESS else ''}"

    def _seen(self, kind: str, key: str) -> Made | None:
        match kind:
            case names.CONFIG_MAP:
                return self.observed.objects.configmaps.get(key)
            case names.DAEMON_SET:
                return self.observed.objects.daemonsets.get(key)
        return self.observed.objects.monitoring.get(f"{kind} {key}")

    def _is_current(self, seen: Made, body: Manifest) -> bool:
        """
        Whether *seen* is what *body* makes of it.

        ConfigMaps, Roles and RoleBindings come back as they were written. A DaemonSet or PodMonitor comes back with
        defaults, so its generation is compared with the one that the last apply of the same body gave: an edit by
        somebody else raises it. That costs one apply of each after a start, which changes nothing where nothing has
        changed, and mends what was edited while nobody led.
        """
        if isinstance(seen, ConfigMap):
            there, wanted = seen.binary_data or {}, body.get("binaryData") or {}
            return self.holds(body["data"]) and there.get(names.NEXT_KEY) == wanted.get(names.NEXT_KEY)
        if (content := _content(seen)) is not None:
            return all(content[name] == body.get(name) for name in content)
        applied = self.observed.records.applied.get(f"{body['kind']} {seen.metadata.key}")
        return (
            applied is not None
            and applied.digest == digest(body)
            and applied.uid == seen.metadata.uid
            and applied.generation >= seen.metadata.generation
        )


def _content(seen: Made) -> Mapping[str, Any] | None:
    if isinstance(seen, Role | RoleBinding):
        body: dict[str, Any] = msgspec.to_builtins(seen)
        return {name: value for name, value in body.items() if name != "metadata"}
    return None


def _key_of(body: Manifest) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
