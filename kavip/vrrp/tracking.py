"""
Track files: how the agent of a node lowers the node's priority in keepalived.

A file holds one number; 0 means healthy. A :class:`Track` with weight 0 puts its instances into FAULT while the number
is not 0. With any other weight, the number times the weight is added to the priority.

* Each health check has its own file. ``Fault`` is weight 0. ``LowerPriority`` is minus the check's weight, by default
  :data:`~kavip.vrrp.priorities.STEP_DOWN`, which ranks the node behind all healthy nodes. keepalived never goes below
  1, so a VIP stays on a node when the check fails on all of them.
* An instance with ``externalTrafficPolicy: Local`` has one file for everything that lowers its priority, with weight
  -1. The agent reads the priority there and writes the difference to the priority that it should have
  (:func:`effective`). So a node without a ready endpoint ranks behind every node that has one, whatever the checks say,
  and the checks rank the nodes within both sets.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from kavip.api.group import Check, GroupSpec
from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, UNLISTED

TRACK_DIR: Final = "/run/kavip/track"
"""The folder of the files in a pod; an agent outside a pod writes its own folder into the text."""
CHECK_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
TRACK_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,78}[a-z0-9])?")
FAULT: Final = 0
"""The weight that means FAULT."""
DIFFERENCE: Final = -1
"""The weight of a file whose number is subtracted from the priority."""

READY_BOTTOM: Final = BOTTOM - STEP_DOWN
"""The lowest priority of a node with a ready endpoint; nodes without one are below it."""
LOWEST: Final = 1

LOCAL: Final = "local-"
"""How the names of files of instances with the policy ``Local`` begin."""
_HASH_LENGTH: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class Track:
    """One track file of an instance, and the weight by which its number is multiplied."""

    name: str
    weight: int


def check_track(name: str) -> str:
    """The track file of the health check *name*."""
    return f"check-{name}"


def local_track(unit: str) -> str:
    """The track file of *unit*: a Service with ``externalTrafficPolicy: Local``, or one of its VIPs."""
    return f"{LOCAL}{hashlib.sha256(unit.encode()).hexdigest()[:_HASH_LENGTH]}"


def checks_of(spec: GroupSpec) -> tuple[Check, ...]:
    """The checks of a group, by name; names become paths, so names that the CRD refuses are skipped."""
    named = {each.name: each for each in spec.checks or () if CHECK_NAME.fullmatch(each.name)}
    return tuple(named[name] for name in sorted(named))


def tracks_of(spec: GroupSpec, *, local: str = "") -> tuple[Track, ...]:
    """The tracks of an instance, by name; *local* is the track file of an instance with the policy ``Local``."""
    found = [Track(check_track(each.name), weight_of(each)) for each in checks_of(spec)]
    if local:
        found = [each for each in found if each.weight == FAULT]
        found.append(Track(local, DIFFERENCE))
    return tuple(sorted(found))


def weight_of(check: Check) -> int:
    """The weight of *check*: negative if it lowers the priority, else :data:`FAULT`."""
    if check.on_failure != "LowerPriority":
        return FAULT
    return -(STEP_DOWN if check.weight is None else check.weight)


def effective(priority: int, *, lowered: int, ready: bool) -> int:
    """
    The priority of an instance with the policy ``Local`` on a node for which the text says *priority*.

    *lowered* is the sum of the weights of failed checks. Nodes with a ready endpoint use the upper 200 numbers. Nodes
    without one keep their order in the 50 numbers below, where a few neighbours share a number.
    """
    if priority <= UNLISTED:
        return priority
    lower = max(READY_BOTTOM, priority - lowered)
    if ready:
        return lower
    room = READY_BOTTOM - LOWEST
    return LOWEST + (lower - READY_BOTTOM) * room // (TOP + 1 - READY_BOTTOM)


def is_local(name: str) -> bool:
    """Whether *name* is from :func:`local_track`; no check's file begins like this."""
    return name.startswith(LOCAL)
