"""
A change that all nodes of a group make at one instant, as part of ``kavip plan --diff``.

A pending switchover in a ConfigMap counts as done: the difference contains only the further changes by the files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, Written
from kavip.reconcile.rollout.configmap import PublishedRevisions, read_published, settings_of
from kavip.reconcile.rollout.difference import may_roll, switched_fields

_SWITCH_FIELDS: Final = ("blame", "next", "nextHash", "switchAt", "tries")
_NEXT_FIELDS: Final = (
    "configHash",
    "interfaceFromIP",
    "password",
    "poolInterfaces",
    "routes",
    "secret",
    "secretKey",
)


@dataclass(frozen=True, slots=True)
class GroupSwitchover:
    """What the *group* (``ns/name``) would change on all nodes at one instant; *is_pending*: already without files."""

    group: str
    what: str
    is_pending: bool = False

    def __str__(self) -> str:
        """One line."""
        subject = f"{names.KEEPALIVED_GROUP} {self.group}"
        if self.is_pending:
            return f"{subject}: a switchover of all nodes is already pending ({self.what}): see its Programmed"
        return f"{subject}: all nodes change at one instant ({self.what}), when each is prepared"


def switchover_of(group: KeepalivedGroup, found: Written, body: Mapping[str, Any]) -> GroupSwitchover | None:
    """The part of the change of *group* from its ConfigMap *found* to the one of *body* that is made at one instant."""
    settings = settings_of(group)
    before = read_published(ConfigMap(data=found.data, binary_data=found.binary_data), settings)
    after = read_published(ConfigMap(data=body["data"], binary_data=body.get("binaryData")), settings)
    if before is None or after is None:
        return None
    is_pending = before.next is not None and may_roll(before.next, after.current)
    goal = before.next if is_pending and before.next else after.current
    what = switched_fields(before.current, goal)
    return GroupSwitchover(group.key, what, is_pending=is_pending) if what else None


def switched(group: KeepalivedGroup, found: ConfigMap) -> Mapping[str, str]:
    """The texts of *found* after its pending switchover."""
    data = dict(found.data or {})
    published: PublishedRevisions | None = read_published(found, settings_of(group))
    if published is None or published.next is None:
        return data
    meta: dict[str, Any] = msgspec.json.decode(data[names.AGENT_KEY])
    following = meta["next"]
    meta = {name: value for name, value in meta.items() if name not in (*_SWITCH_FIELDS, *_NEXT_FIELDS)}
    meta |= {"interfaceFromIP": "", "switchAt": "", "authentication": "secret" in following}
    meta |= {name: following[name] for name in _NEXT_FIELDS if name in following}
    return data | {
        names.CONFIG_KEY: published.next.text,
        names.AGENT_KEY: msgspec.json.encode(meta, order="sorted").decode(),
    }
