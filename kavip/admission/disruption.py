"""
What an edit of a running group moves: told, not refused.

Everything here is a warning of at most 256 bytes: the field, what becomes of it, and whose VIPs feel it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kavip.admission import vrids
from kavip.admission.chain import Caution, Context
from kavip.admission.verdict import listed
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.vrrp import timing
from kavip.vrrp.groups import has_password

_TOGETHER: Final = "all nodes change at one instant, which the group's Programmed tells"

_READ: Final[dict[str, tuple[Callable[[GroupSpec], str], str]]] = {
    "spec.interface": (lambda spec: spec.interface, "pause for a fail-over"),
    "spec.interfaceFromIP": (lambda spec: spec.interface_from_ip, "pause for a fail-over"),
    "spec.vrrpInterface": (lambda spec: spec.vrrp_interface, "pause for a fail-over"),
    "spec.unicastEnabled": (lambda spec: str(bool(spec.unicast_enabled)).lower(), "pause for a fail-over"),
    "spec.vrrpVersion": (lambda spec: str(timing.version_of(spec)), "go on"),
    "spec.advertIntervalMilliseconds": (lambda spec: str(timing.timing_of(spec, 4).milliseconds), "go on"),
}
"""Where nodes that have followed and nodes that have not do not hear each other; and what VIPs do at the instant."""


def live_changes_are_told(group: KeepalivedGroup, context: Context[KeepalivedGroup]) -> Iterator[Caution]:
    """A change of interface, unicast, version, interval, password, instances or segment says what it moves."""
    old, snapshot = context.old, context.snapshot
    if old is None or not vrids.held(group, snapshot):
        return
    members = [service for service in snapshot.members(group.key) if service.virtual_ips]
    whose = _whose(members)
    for field, (read, what) in _READ.items():
        if read(old.spec) != read(group.spec):
            yield Caution(f'{field}: "{read(old.spec)}" becomes "{read(group.spec)}": {_TOGETHER}; {whose} {what}')
    if (before := _secret(old.spec)) != (after := _secret(group.spec)):
        what = "go on" if before[0] == after[0] else "fail over as the pods are replaced, one by one"
        yield Caution(f"spec.passwordAuth: {_TOGETHER}; {whose} {what}")
    moving = [service for service in members if not service.is_local]  # these have instances of their own either way
    if _layout(old) != _layout(group) and (moving or group.spec.virtual_ips):
        change = f"{_layout(old)} becomes {_layout(group)}"
        yield Caution(f"spec.instances: {change}: {_TOGETHER}; {_whose(moving)} move to other instances")
    if old.segment != group.segment:
        yield Caution(f"spec.segment: {_collisions(group, snapshot)}")


def _collisions(group: KeepalivedGroup, snapshot: Snapshot) -> str:
    """Which of the group's VRIDs are taken on the segment that it comes to."""
    there = [vrids.held(neighbour, snapshot) for neighbour in snapshot.neighbours(group)]
    taken = vrids.held(group, snapshot).intersection(set[int]().union(*there))
    if not taken:
        return "nobody there has a virtual router ID of this group; no VIP moves"
    return f"in use there, too: {listed(sorted(taken), most=10)}; their VIPs will move to other instances"


def _layout(group: KeepalivedGroup) -> str:
    """How VIPs are laid out, in words; the count says nothing about instances per Service."""
    instances = group.spec.instances
    return f"{instances.mode} ({instances.count})" if group.is_shared else instances.mode


def _secret(spec: GroupSpec) -> tuple[str, str]:
    """Name and key of the password's Secret; empty where there is none."""
    password = spec.password_auth
    return (password.secret_ref.name, password.secret_key) if password and has_password(spec) else ("", "")


def _whose(members: list[Service]) -> str:
    return f"the VIPs of {listed([service.key for service in members], most=2)}" if members else "its VIPs"
