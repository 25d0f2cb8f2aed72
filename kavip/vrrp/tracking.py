"""
Track files: how the agent of a node tells keepalived that the node is worse than its priority says.

A file holds one number, 0 where all is well. A :class:`Track` of weight 0 puts its instances into FAULT while there is
another number; with any other weight the number times the weight is added to the priority.

* A health check has a file of its own. ``Fault`` is weight 0. ``LowerPriority`` is minus the check's weight, by default
  :data:`~kavip.vrrp.priorities.STEP_DOWN`: behind all nodes that are well. keepalived never goes below 1, so a VIP
  stays somewhere when the check fails everywhere.
* An instance with ``externalTrafficPolicy: Local`` has one file for everything that lowers its priority, of weight -1:
  the agent knows the priority there and writes the difference to the one that it should have (:func:`effective`). So a
  node without a ready endpoint ranks behind every node that has one, whatever the checks say, and they rank the nodes
  within both.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from kavip.api.group import Check, GroupSpec
from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, UNLISTED

TRACK_DIR: Final = "/run/kavip/track"
"""Where the files are in a pod; an agent that runs elsewhere writes its own folder into the text."""
CHECK_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
TRACK_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,78}[a-z0-9])?")
FAULT: Final = 0
"""The weight that means FAULT."""
DIFFERENCE: Final = -1
"""The weight of a file that holds what is to be taken from the priority."""

READY_BOTTOM: Final = BOTTOM - STEP_DOWN
"""No node with a ready endpoint is below this one; no node without one reaches it."""
LOWEST: Final = 1

_LOCAL: Final = "local-"
_HASH_LENGTH: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class Track:
    """One track file that an instance follows, and what its number is multiplied with."""

    name: str
    weight: int


def check_track(name: str) -> str:
    """The track file of the health check *name*."""
    return f"check-{name}"


def local_track(unit: str) -> str:
    """The track file of the instances of *unit*, a Service with ``externalTrafficPolicy: Local``, or one VIP of it."""
    return f"{_LOCAL}{hashlib.sha256(unit.encode()).hexdigest()[:_HASH_LENGTH]}"


def checks_of(spec: GroupSpec) -> tuple[Check, ...]:
    """The checks of a group, by name; the definition of groups lets no other names in, which would become paths."""
    named = {each.name: each for each in spec.checks or () if CHECK_NAME.fullmatch(each.name)}
    return tuple(named[name] for name in sorted(named))


def tracks_of(spec: GroupSpec, *, local: str = "") -> tuple[Track, ...]:
    """What an instance of a group follows, by name; *local* is the track of one whose policy is ``Local``."""
    found = [Track(check_track(each.name), weight_of(each)) for each in checks_of(spec)]
    if local:
        found = [each for each in found if each.weight == FAULT]
        found.append(Track(local, DIFFERENCE))
    return tuple(sorted(found))


def weight_of(check: Check) -> int:
    """The weight that *check* has where it lowers a priority, below 0; or :data:`FAULT`."""
    if check.on_failure != "LowerPriority":
        return FAULT
    return -(STEP_DOWN if check.weight is None else check.weight)


def effective(priority: int, *, lowered: int, ready: bool) -> int:
    """
    The priority that an instance with the policy ``Local`` should have on a node where the text says *priority*.

    *lowered*: the weights of the checks that fail, as a positive sum. Nodes with a ready endpoint are in the upper
    200 numbers, those without one keep their order in the 50 below, in which a few neighbours share a number.
    """
    if priority <= UNLISTED:
        return priority
    lower = max(READY_BOTTOM, priority - lowered)
    if ready:
        return lower
    room = READY_BOTTOM - LOWEST
    return LOWEST + (lower - READY_BOTTOM) * room // (TOP + 1 - READY_BOTTOM)


def is_local(name: str) -> bool:
    """Whether :func:`local_track` gave the name: no check's can begin so."""
    return name.startswith(_LOCAL)
