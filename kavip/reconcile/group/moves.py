"""
Events about VIPs that have moved from one node to another: the status of the group names the old master.

The first master of a VIP, and a master after none or two, change the reason of ``Advertised``, which has its own Event.
A network that flaps, or a node that lies, may change masters as often as agents are asked. So Events about single
Services are limited, and one about the group, always with the same text, stands for the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.observed.agentstates import MASTER
from kavip.reconcile.plan import Allowance, Key, KeyKind, Notice
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot

BURST: Final = 100
"""Events of one group that are sent at once: a node of most groups has fewer Services."""
INTERVAL: Final = 5.0
"""Seconds between the Events after that."""
_OTHERS: Final = (
    "VIPs of more Services have moved than Events are sent for: `kavip status` shows which node holds each VIP"
)


class _Move(NamedTuple):
    """From one node to another."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The *events*, and how many of them may still be sent."""

    events: tuple[Notice, ...]
    allowance: Allowance


def moves_of(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    *,
    status: GroupStatus,
    desired: Desired,
    allowance: Allowance,
    at: float,
) -> Moves:
    """What has moved between the stored status of *group* and the new *status*, at the monotonic time *at*."""
    left = allowance.after(at, interval=INTERVAL)
    own, served = _own_moves(group, status), _moves_of_services(snapshot, group, status, desired)
    if not own and not served:
        return Moves((), left)
    notices = [*_notices(own, None)]
    for key, moved in served.items():
        notices += _notices(moved, Key(KeyKind.SERVICE, key))
    sent = notices[: max(0, BURST - left.spent)]
    others = (Notice(Reason.MASTER_CHANGED, _OTHERS, warning=False),) if len(sent) < len(notices) else ()
    return Moves((*sent, *others), Allowance(left.spent + len(sent), left.at))


def _own_moves(group: KeepalivedGroup, status: GroupStatus) -> Mapping[Address, _Move]:
    """The moves of the VIPs of the group itself."""
    old, new = (
        {each.address: each.node for each in some.virtual_ips or () if each.state == MASTER}
        for some in (group.status, status)
    )
    texts = _moved(old, new)
    return {vip: texts[str(vip)] for vip in group.virtual_ips if str(vip) in texts}


def _moves_of_services(
    snapshot: Snapshot, group: KeepalivedGroup, status: GroupStatus, desired: Desired
) -> Mapping[str, Mapping[Address, _Move]]:
    """The moves of VIPs, by Service; of at most one Service more than can have an Event."""
    old, new = (
        {each.name: each.node for each in some.instances or () if each.state == MASTER}
        for some in (group.status, status)
    )
    moved, model = _moved(old, new), desired.configuration.model
    if not moved or model is None:
        return {}
    by_vip = {vip: moved[each.name] for each in model.instances if each.name in moved for vip in each.carried}
    found = {}
    for service in snapshot.members(group.key):
        is_new = conditions.find(service.status.conditions, ConditionType.ADVERTISED) is None
        vips = {vip: by_vip[vip] for vip in service.virtual_ips if vip in by_vip}
        if vips and not is_new:
            found[service.key] = vips
        if len(found) > BURST:
            break
    return found


def _moved(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, _Move]:
    return {name: _Move(old[name], node) for name, node in new.items() if old.get(name, node) != node}


def _notices(moved: Mapping[Address, _Move], about: Key | None) -> list[Notice]:
    """One for each pair of nodes."""
    by_move: dict[_Move, list[str]] = {}
    for vip, move in sorted(moved.items()):
        by_move.setdefault(move, []).append(str(vip))
    return [
        Notice(
            Reason.MASTER_CHANGED,
            f"{few(vips)} moved from node {move.old} to node {move.new}",
            warning=False,
            about=about,
        )
        for move, vips in sorted(by_move.items())
    ]
