"""
What has changed between two pictures, and the Events of kavip before the first one, as rows of a timeline.

A row is about one object: a VIP that moved, a state that changed, a node that became silent. The timeline is bounded:
the oldest rows are dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from kavip import names
from kavip.api.event import Event
from kavip.cli.views.picture.picture import MOST_ROWS, Picture
from kavip.cli.views.picture.rows import (
    GroupRow,
    Level,
    MemberRow,
    PoolRow,
    Row,
    TimelineRow,
    VirtualIPRow,
    shown,
)

MOST: Final = 500
"""Rows of the timeline."""
NODE_CHANGED: Final = "NodeChanged"
_WELL: Final = "well"

R = TypeVar("R", bound=Row)


def from_events(events: Iterable[Event]) -> tuple[TimelineRow, ...]:
    """The newest of the *events* that kavip reported, by time."""
    found = (_event(each) for each in events if each.reporting_controller.startswith(f"{names.KAVIP_GROUP}/"))
    return _numbered((), sorted(found, key=lambda row: (row.at, row.kind, row.name, row.reason, row.text)))


def _event(event: Event) -> TimelineRow:
    about, series = event.regarding, event.series
    times = f" ({series.count} times)" if series is not None and series.count > 1 else ""
    return TimelineRow(
        id="",
        level=Level.WARNING if event.type == "Warning" else Level.OK,
        at=shown(event.last_time or event.event_time or ""),
        kind=shown(about.kind),
        name=shown(f"{about.namespace}/{about.name}" if about.namespace else about.name),
        reason=shown(event.reason),
        text=shown(f"{event.note}{times}"),
    )


def continued(before: Picture, after: Picture, *, at: str) -> tuple[TimelineRow, ...]:
    """The timeline of *before*, and what has changed until *after*, which was seen *at* a time."""
    return _numbered(before.timeline, changes_between(before, after, at=at))


def changes_between(before: Picture, after: Picture, *, at: str) -> list[TimelineRow]:
    """What has changed from *before* to *after*, sorted; without a timeline yet."""
    rows = [
        *_changed(before.vips, after.vips, at=at, describe=_vip),
        *_changed(before.members, after.members, at=at, describe=_member),
        *_changed(before.groups, after.groups, at=at, describe=_group),
        *_changed(before.pools, after.pools, at=at, describe=_pool),
    ]
    return sorted(rows, key=lambda row: (row.kind, row.name, row.reason, row.text))


def _numbered(before: tuple[TimelineRow, ...], new: Iterable[TimelineRow]) -> tuple[TimelineRow, ...]:
    """*before* and *new*, whose ids continue those of *before*; the newest of them."""
    number = int(before[-1].id) + 1 if before else 0
    numbered = [msgspec.structs.replace(row, id=f"{number + index:012}") for index, row in enumerate(new)]
    return (*before, *numbered)[-MOST:]


def _changed(
    before: Sequence[R],
    after: Sequence[R],
    *,
    at: str,
    describe: Callable[[R | None, R | None, str], TimelineRow | None],
) -> Iterator[TimelineRow]:
    old, new = ({row.id: row for row in rows} for rows in (before, after))
    ends = [rows[-1].id for rows in (before, after) if len(rows) >= MOST_ROWS]  # what comes after may be left out
    for key in sorted(old.keys() | new.keys()):
        if any(key > end for end in ends):
            return
        if old.get(key) != new.get(key) and (row := describe(old.get(key), new.get(key), at)) is not None:
            yield row


def _vip(old: VirtualIPRow | None, new: VirtualIPRow | None, at: str) -> TimelineRow | None:
    row = new or old
    if row is None:
        return None
    kind, name = (names.SERVICE, row.service) if row.service else (names.KEEPALIVED_GROUP, row.group)
    address = f"{row.address}: " if row.address else ""
    if new is None:
        reason, text = "Removed", f"{address}is gone"
    elif old is None:
        reason, text = new.state, f"{address}{_on(new.node)}{_why(new.message)}"
    elif old.node != new.node:
        reason, text = names.Reason.MASTER_CHANGED, f"{address}{_on(old.node)} → {_on(new.node)}{_why(new.message)}"
    elif (old.state, old.message) != (new.state, new.message):
        reason, text = new.state, f"{address}{old.state} → {new.state}{_why(new.message)}"
    else:
        return None
    return TimelineRow(id="", level=row.level, at=at, kind=kind, name=name, reason=reason, text=shown(text))


def _on(node: str) -> str:
    return node or "no node"


def _why(message: str) -> str:
    return f": {message}" if message else ""


def _member(old: MemberRow | None, new: MemberRow | None, at: str) -> TimelineRow | None:
    row = new or old
    if row is None:
        return None
    before, after = (_standing(each) if each else "not in the group" for each in (old, new))
    if old and new and "Unknown" in (old.agent, new.agent):  # what is not known has not changed
        before, after = _of_node(old), _of_node(new)
    if before == after:
        return None
    text = f"in group {row.group}: {before} → {after}"
    return TimelineRow(
        id="", level=row.level, at=at, kind=names.NODE, name=row.node, reason=NODE_CHANGED, text=shown(text)
    )


def _standing(member: MemberRow) -> str:
    """The state of a node and its agent in words, without the number of its VIPs."""
    agent = {"Silent": "agent silent", "Answers": "; ".join(member.problems)}.get(member.agent, "")
    node = _of_node(member)
    return ", ".join(filter(None, (node if node != _WELL or not agent else "", agent)))


def _of_node(member: MemberRow) -> str:
    """The state of a node in words."""
    words = {"not ready": member.ready is False, "drained": member.drained, "cordoned": member.cordoned}
    return ", ".join(word for word, holds in words.items() if holds) or _WELL


def _group(old: GroupRow | None, new: GroupRow | None, at: str) -> TimelineRow | None:
    return _state(names.KEEPALIVED_GROUP, old, new, at)


def _pool(old: PoolRow | None, new: PoolRow | None, at: str) -> TimelineRow | None:
    return _state(names.VIP_POOL, old, new, at)


def _state(kind: str, old: GroupRow | PoolRow | None, new: GroupRow | PoolRow | None, at: str) -> TimelineRow | None:
    """The change of the state of a group or a pool."""
    row = new or old
    before, after = (each.state if each else "" for each in (old, new))
    if row is None or before == after:
        return None
    name = row.group if isinstance(row, GroupRow) else row.pool
    text = f"{before or 'created'} → {after or 'deleted'}{_why(new.message if new else '')}"
    return TimelineRow(id="", level=row.level, at=at, kind=kind, name=name, reason=after or "Removed", text=shown(text))
