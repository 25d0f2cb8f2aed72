"""
What an edit of a running group moves: told, not refused.

Everything here is a warning of at most 256 bytes: the field, what becomes of it, and whose VIPs feel it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.snapshot import Snapshot
from kavip.vrrp import timing
from kavip.webhook import capacity
from kavip.webhook.checks import Caution, Context
from kavip.webhook.verdict import listed

_TOGETHER: Final = "all nodes change at one instant, which the group's Programmed tells"

_READ: Final[dict[str, tuple[Callable[[GroupSpec], str], str]]] = {
    "spec.interface": (lambda spec: spec.interface, "pause for a fail-over"),
    "spec.interfaceFromIP": (lambda spec: spec.interface_from_ip, "pause for a fail-over"),
    "spec.vrrpInterface": (lambda spec: spec.vrrp_interface, "pause for a fail-over"),
    "spec.unicastEnabled": (lambda spec: str(bool(spec.unicast_enabled)).lower(), "pause for a fail-over"),
    "spec.vrrpVersion": (lambda spec: str(timing.version_of(spec)), "go on"),
}
"""Where nodes that have followed and nodes that have not do not hear each other; and what VIPs do at the instant."""


def live_changes_are_told(group: KeepalivedGroup, context: Context[KeepalivedGroup]) -> Iterator[Caution]:
    """A change of interface, unicast, version, instances or segment says what it moves."""
    old, snapshot = context.old, context.snapshot
    if old is None or not capacity.held(group, snapshot):
        return
    whose = _whose(group, snapshot)
    for field, (read, what) in _READ.items():
        if read(old.spec) != read(group.spec):
            yield Caution(f'{field}: "{read(old.spec)}" becomes "{read(group.spec)}": {_TOGETHER}; {whose} {what}')
    if _layout(old) != _layout(group):
        yield Caution(f"spec.instances: {_layout(old)} becomes {_layout(group)}: {whose} move to other instances")
    if old.segment != group.segment:
        yield Caution(f"spec.segment: {_collisions(group, snapshot)}")


def _collisions(group: KeepalivedGroup, snapshot: Snapshot) -> str:
    """Which of the group's VRIDs are taken on the segment that it comes to."""
    there = [capacity.held(neighbour, snapshot) for neighbour in snapshot.neighbours(group)]
    taken = capacity.held(group, snapshot).intersection(set[int]().union(*there))
    if not taken:
        return "nobody there has a virtual router ID of this group; no VIP moves"
    return f"in use there, too: {listed(sorted(taken), most=10)}; their VIPs will move to other instances"


def _layout(group: KeepalivedGroup) -> str:
    """How VIPs are laid out, in words; the count says nothing about instances per Service."""
    instances = group.spec.instances
    return f"{instances.mode} ({instances.count})" if group.is_shared else instances.mode


def _whose(group: KeepalivedGroup, snapshot: Snapshot) -> str:
    members = [service.key for service in snapshot.members(group.key) if service.virtual_ips]
    return f"the VIPs of {listed(members, most=2)}" if members else "its VIPs"
