"""
What all nodes of a group would change at one instant, of ``kavip plan --diff``.

Pure. A ConfigMap in which such a change waits already counts as it will stand when that is made: what the files would
change beside it is the difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap
from kavip.reconcile.rollout import switchover
from kavip.reconcile.rollout.configmap import PublishedRevisions, read_published, settings_of

_OF_THE_SWITCH: Final = ("blame", "next", "nextHash", "switchAt", "tries")
_OF_THE_NEXT: Final = ("configHash", "interfaceFromIP", "password", "secret", "secretKey")


@dataclass(frozen=True, slots=True)
class Together:
    """What the *group* (``ns/name``) would change on all nodes at one instant, in words."""

    group: str
    what: str
    waits: bool = False

    def __str__(self) -> str:
        """One line: what comes, or what waits already."""
        subject = f"{names.KEEPALIVED_GROUP} {self.group}"
        if self.waits:
            return f"{subject}: waits already for all nodes to change at one instant ({self.what}): see its Programmed"
        return f"{subject}: all nodes change at one instant ({self.what}), when each is prepared"


def together(group: KeepalivedGroup, found: ConfigMap, wanted: ConfigMap) -> tuple[Together, ...]:
    """What of the change of *group* from the ConfigMap *found* to the one *wanted* is made at one instant."""
    settings = settings_of(group)
    before, after = read_published(found, settings), read_published(wanted, settings)
    if before is None or after is None:
        return ()
    if before.next is not None and not switchover.difference(before.next, after.current):
        what = switchover.difference(before.current, before.next)
        return (Together(group.key, what, waits=True),) if what else ()
    what = switchover.difference(before.current, after.current)
    return (Together(group.key, what),) if what else ()


def settled(group: KeepalivedGroup, found: ConfigMap) -> Mapping[str, str]:
    """The texts of *found* as they will stand when what waits in it is made."""
    data = dict(found.data or {})
    published: PublishedRevisions | None = read_published(found, settings_of(group))
    if published is None or published.next is None:
        return data
    meta: dict[str, Any] = msgspec.json.decode(data[names.AGENT_KEY])
    following = meta["next"]
    meta = {name: value for name, value in meta.items() if name not in (*_OF_THE_SWITCH, *_OF_THE_NEXT)}
    meta |= {"interfaceFromIP": "", "switchAt": "", "authentication": "secret" in following}
    meta |= {name: following[name] for name in _OF_THE_NEXT if name in following}
    return data | {
        names.CONFIG_KEY: published.next.text,
        names.AGENT_KEY: msgspec.json.encode(meta, order="sorted").decode(),
    }
