"""
The objects that groups own, as last observed by the informers. Decisions only read them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kavip import names
from kavip.api.cluster import Pod
from kavip.api.event import Event
from kavip.api.text import one_line
from kavip.api.workload import ConfigMap, DaemonSet, PodMonitor, Role, RoleBinding
from kavip.reconcile.observed.ownership import GroupObject
from kavip.vrrp.packed import unpacked

Owned = GroupObject | Pod | Event


@dataclass(slots=True)
class OwnedObjects:
    """
    A cache of the objects that carry the label of a group, by ``ns/name``. Informers fill it through :meth:`store`.

    *pods*: by group, then by pod. *monitoring*: by ``Kind ns/name``. *failures*: Events of DaemonSets that cannot
    create pods, by group, then by Event. *has_pod_monitors*: the cluster has the resource PodMonitor.
    """

    daemonsets: dict[str, DaemonSet] = field(default_factory=dict)
    configmaps: dict[str, ConfigMap] = field(default_factory=dict)
    pods: dict[str, dict[str, Pod]] = field(default_factory=dict)
    monitoring: dict[str, GroupObject] = field(default_factory=dict)
    failures: dict[str, dict[str, Event]] = field(default_factory=dict)
    has_pod_monitors: bool = False

    def store(self, old: Owned | None, new: Owned | None) -> tuple[str, ...]:
        """Replace *old* by *new*; return the groups that they concern, sorted: a label may have changed."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._store_of(new)[_key_of(new)] = new
        return tuple(sorted({group for each in (old, new) if each is not None for group in _groups_of(each)}))

    def pods_of(self, group: str) -> tuple[Pod, ...]:
        """The pods of *group*."""
        return tuple(self.pods.get(group, {}).values())

    def published_text(self, group: str) -> str:
        """The text that kavip has published for the nodes of *group*; "" without one."""
        configmap = self.configmaps.get(group)
        data = (configmap.data if configmap else None) or {}
        return unpacked(data.get(names.TAKE_OVER_KEY, data.get(names.CONFIG_KEY, "")))

    def find(self, kind: str, key: str) -> GroupObject | None:
        """The object of *kind* with *key*, except pods."""
        match kind:
            case names.CONFIG_MAP:
                return self.configmaps.get(key)
            case names.DAEMON_SET:
                return self.daemonsets.get(key)
        return self.monitoring.get(f"{kind} {key}")

    def failure_of(self, group: str) -> str:
        """Why the DaemonSet of *group* cannot create pods, by its last Event; "" without one."""
        daemonset = self.daemonsets.get(group)
        events = [
            event
            for _, event in sorted(self.failures.get(group, {}).items())
            if daemonset is not None and event.regarding.uid == daemonset.metadata.uid
        ]
        return one_line(max(events, key=lambda event: event.last_time).note) if events else ""

    def _remove(self, obj: Owned) -> None:
        """Remove *obj*; any user may label pods with names of groups, so no group without any keeps an entry."""
        store = self._store_of(obj)
        store.pop(_key_of(obj), None)
        if not store and isinstance(obj, Pod | Event):
            by_group: dict[str, Any] = self.pods if isinstance(obj, Pod) else self.failures
            del by_group[group_of(obj)]

    def _store_of(self, obj: Owned) -> dict[str, Any]:
        match obj:
            case DaemonSet():
                return self.daemonsets
            case ConfigMap():
                return self.configmaps
            case Pod():
                return self.pods.setdefault(group_of(obj), {})
            case Event():
                return self.failures.setdefault(group_of(obj), {})
            case _:
                return self.monitoring


def _key_of(obj: Owned) -> str:
    key = obj.metadata.key
    return f"{type(obj).__name__} {key}" if isinstance(obj, PodMonitor | Role | RoleBinding) else key


def _groups_of(obj: Owned) -> Iterator[str]:
    """The group of *obj*, and the one whose ConfigMap or DaemonSet has its name."""
    if group := group_of(obj):
        yield group
    if isinstance(obj, ConfigMap | DaemonSet):
        yield obj.metadata.key


def group_of(obj: Owned) -> str:
    """The group whose label *obj* carries, or whose DaemonSet an Event is about; "" for none."""
    if isinstance(obj, Event):
        return f"{obj.regarding.namespace}/{obj.regarding.name}"
    name = obj.metadata.label(names.GROUP_LABEL)
    return f"{obj.metadata.namespace}/{name}" if name else ""
