"""
The VRRP version and advertisement interval of a group.

Absent fields keep keepalived-operator's meaning: version 2, one second. Its users could choose the version with
``vrrp_version`` in ``verbatimConfig``; that applies where the group has no ``vrrpVersion``.
"""

from dataclasses import dataclass
from typing import Final

from kavip.api.group import GroupSpec

SECOND: Final = 1000
LONGEST_V2: Final = 255 * SECOND
LONGEST_V3: Final = 40_950
STEP_V3: Final = 10
LONGEST: Final = 255.0
"""Seconds; keepalived ignores an ``advert_int`` above it, and 0, of any version."""


@dataclass(frozen=True, slots=True)
class VRRPTiming:
    """The version of an instance, and the *milliseconds* between its advertisements."""

    version: int
    milliseconds: int

    @property
    def seconds(self) -> str:
        """The interval in keepalived's form, such as ``1`` or ``0.2``."""
        whole, rest = divmod(self.milliseconds, SECOND)
        return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def version_of(spec: GroupSpec) -> int:
    """The version of the group's IPv4 instances."""
    if spec.vrrp_version in (2, 3):
        return spec.vrrp_version
    return 3 if (spec.verbatim_config or {}).get("vrrp_version", "").strip() == "3" else 2


def timing_of(spec: GroupSpec, family: int) -> VRRPTiming:
    """
    The timing of instances of *family*; IPv6 has version 3 only.

    Admission refuses an interval that the version cannot use. Here it becomes the next longer valid one, so that a
    group that bypassed admission still runs, and runs the same on all nodes.
    """
    version = 3 if family == 6 else version_of(spec)
    wanted = max(1, spec.advert_interval_milliseconds or SECOND)
    step, longest = (STEP_V3, LONGEST_V3) if version == 3 else (SECOND, LONGEST_V2)
    return VRRPTiming(version, min(longest, -(-wanted // step) * step))
