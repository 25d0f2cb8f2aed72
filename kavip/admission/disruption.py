"""
What an edit of a running group disrupts: only warnings, each of at most 256 bytes.

All nodes change their fields together in one switch, so these have one warning: the fields, the effect on all nodes,
and what the VIPs do, which is the worst that one of the fields does to them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kavip.admission import routeridusage
from kavip.admission.chain import Context
from kavip.admission.text import listed
from kavip.admission.verdict import AdmissionWarning
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import timing
from kavip.vrrp.groupspec import has_password

SWITCHOVER: Final = "all nodes switch at the same moment (see the group's Programmed condition)"
"""How a change is made that nodes cannot make one after the other."""
_CONTINUE: Final = "continue"
_MOVE: Final = "move to other instances"
PAUSE: Final = "pause for a fail-over"
_REPLACE: Final = "fail over while the pods are replaced one by one"
_EFFECTS: Final = (_CONTINUE, _MOVE, PAUSE)
"""What VIPs do at a switchover, the worst last."""

_FIELDS: Final[dict[str, tuple[Callable[[GroupSpec], str], str]]] = {
    "interface": (lambda spec: spec.interface, PAUSE),
    "interfaceFromIP": (lambda spec: spec.interface_from_ip, PAUSE),
    "vrrpInterface": (lambda spec: spec.vrrp_interface, PAUSE),
    "unicastEnabled": (lambda spec: str(bool(spec.unicast_enabled)).lower(), PAUSE),
    "vrrpVersion": (lambda spec: str(timing.version_of(spec)), _CONTINUE),
    "advertIntervalMilliseconds": (lambda spec: str(timing.timing_of(spec, 4).milliseconds), _CONTINUE),
}
"""
Fields in which nodes with the old and the new value do not hear each other's adverts, how to read them, and what the
VIPs do at the switchover.
"""


@dataclass(frozen=True, slots=True)
class _Change:
    """A *field* of the spec that changes, as *text* says ("" for a secret), and what the VIPs of *members* do."""

    field: str
    text: str
    effect: str
    members: Sequence[Service]


def running_vips_are_disrupted(group: KeepalivedGroup, context: Context[KeepalivedGroup]) -> Iterator[AdmissionWarning]:
    """A change of interface, unicast, version, interval, password, instances or segment disrupts running VIPs."""
    old, snapshot = context.old, context.snapshot
    if old is None or not routeridusage.held_ids(group, snapshot):
        return
    members = [service for service in snapshot.members(group.key) if service.virtual_ips]
    if changes := list(_changes(old, group, members)):
        yield _warning(changes)
    yield from _repinned(old.spec, group.spec)
    if old.segment != group.segment:
        yield AdmissionWarning(_collisions(group, snapshot), "spec.segment")


def _changes(old: KeepalivedGroup, group: KeepalivedGroup, members: Sequence[Service]) -> Iterator[_Change]:
    """What all nodes change together."""
    for field, (read, effect) in _FIELDS.items():
        if (before := read(old.spec)) != (after := read(group.spec)):
            yield _Change(field, f'"{before}" becomes "{after}"', effect, members)
    if (secret := _secret(old.spec)) != _secret(group.spec):
        yield _Change("passwordAuth", "", _CONTINUE if secret[0] == _secret(group.spec)[0] else _REPLACE, members)
    moving = [service for service in members if not service.is_local]  # Local ones have own instances in both modes
    if _layout(old) != _layout(group) and (moving or group.spec.virtual_ips):
        yield _Change("instances", f"{_layout(old)} becomes {_layout(group)}", _MOVE, moving)


def _warning(changes: Sequence[_Change]) -> AdmissionWarning:
    """One warning for the switch that makes all *changes*."""
    worst = max(changes, key=lambda change: (*_EFFECTS, _REPLACE).index(change.effect))
    at_once = max((each.effect for each in changes if each.effect != _REPLACE), default=_CONTINUE, key=_EFFECTS.index)
    effect = worst.effect if at_once in (_CONTINUE, worst.effect) else f"{at_once}, and {worst.effect}"
    what = f"{SWITCHOVER}; {_vips_of(worst.members)} {effect}"
    if len(changes) == 1:
        return AdmissionWarning(f"{worst.text}: {what}" if worst.text else what, f"spec.{worst.field}")
    return AdmissionWarning(f"{listed([each.field for each in changes], most=4)}: {what}", "spec")


def _repinned(old: GroupSpec, new: GroupSpec) -> Iterator[AdmissionWarning]:
    """The VIPs of the group whose pinned VRID changes."""
    before = {entry.address: entry.router_id for entry in old.virtual_ips or ()}
    for index, entry in enumerate(new.virtual_ips or ()):
        had, has = before.get(entry.address, entry.router_id), entry.router_id
        if had != has:
            change = f"{had or 'none'} becomes {has or 'none'}"
            message = f"{change}: {SWITCHOVER}; {entry.address} moves to another instance"
            yield AdmissionWarning(message, f"spec.virtualIPs[{index}].routerID")


def _collisions(group: KeepalivedGroup, snapshot: Snapshot) -> str:
    """Which VRIDs of *group* are in use on its new segment."""
    neighbours = [routeridusage.held_ids(neighbour, snapshot) for neighbour in snapshot.neighbours(group)]
    taken = routeridusage.held_ids(group, snapshot).intersection(set[int]().union(*neighbours))
    if not taken:
        return "no virtual router ID of this group is in use there; no VIP moves"
    return f"{listed(sorted(taken), most=10)}: in use there; the VIPs will move to other instances"


def _layout(group: KeepalivedGroup) -> str:
    """The instances of *group* in words; with one instance per Service the count has no effect."""
    instances = group.spec.instances
    return f"{instances.mode} ({instances.count})" if group.is_shared else instances.mode


def _secret(spec: GroupSpec) -> tuple[str, str]:
    """Name and key of the Secret with the password; empty without one."""
    password = spec.password_auth
    return (password.secret_ref.name, password.secret_key) if password and has_password(spec) else ("", "")


def _vips_of(members: Sequence[Service]) -> str:
    return f"the VIPs of {listed([service.key for service in members], most=2)}" if members else "its VIPs"
