"""
What an edit of a running group disrupts: only warnings, each of at most 256 bytes.

A warning has the field, the effect on all nodes, and the Services whose VIPs are affected.
"""

from collections.abc import Callable, Iterator
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
PAUSE: Final = "pause for a fail-over"
_CONTINUE: Final = "continue"

_FIELDS: Final[dict[str, tuple[Callable[[GroupSpec], str], str]]] = {
    "spec.interface": (lambda spec: spec.interface, PAUSE),
    "spec.interfaceFromIP": (lambda spec: spec.interface_from_ip, PAUSE),
    "spec.vrrpInterface": (lambda spec: spec.vrrp_interface, PAUSE),
    "spec.unicastEnabled": (lambda spec: str(bool(spec.unicast_enabled)).lower(), PAUSE),
    "spec.vrrpVersion": (lambda spec: str(timing.version_of(spec)), _CONTINUE),
    "spec.advertIntervalMilliseconds": (lambda spec: str(timing.timing_of(spec, 4).milliseconds), _CONTINUE),
}
"""
Fields in which nodes with the old and the new value do not hear each other's adverts, how to read them, and what the
VIPs do at the switchover.
"""


def running_vips_are_disrupted(group: KeepalivedGroup, context: Context[KeepalivedGroup]) -> Iterator[AdmissionWarning]:
    """A change of interface, unicast, version, interval, password, instances or segment disrupts running VIPs."""
    old, snapshot = context.old, context.snapshot
    if old is None or not routeridusage.held_ids(group, snapshot):
        return
    members = [service for service in snapshot.members(group.key) if service.virtual_ips]
    vips = _vips_of(members)
    for field, (read, effect) in _FIELDS.items():
        if read(old.spec) != read(group.spec):
            change = f'"{read(old.spec)}" becomes "{read(group.spec)}"'
            yield AdmissionWarning(f"{change}: {SWITCHOVER}; {vips} {effect}", field)
    if (before := _secret(old.spec)) != (after := _secret(group.spec)):
        effect = _CONTINUE if before[0] == after[0] else "fail over while the pods are replaced one by one"
        yield AdmissionWarning(f"{SWITCHOVER}; {vips} {effect}", "spec.passwordAuth")
    moving = [service for service in members if not service.is_local]  # Local ones have own instances in both modes
    if _layout(old) != _layout(group) and (moving or group.spec.virtual_ips):
        change = f"{_layout(old)} becomes {_layout(group)}"
        message = f"{change}: {SWITCHOVER}; {_vips_of(moving)} move to other instances"
        yield AdmissionWarning(message, "spec.instances")
    yield from _repinned(old.spec, group.spec)
    if old.segment != group.segment:
        yield AdmissionWarning(_collisions(group, snapshot), "spec.segment")


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


def _vips_of(members: list[Service]) -> str:
    return f"the VIPs of {listed([service.key for service in members], most=2)}" if members else "its VIPs"
