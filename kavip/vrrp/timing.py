"""
VRRP's version and advertisement interval, as a group means them.

Absent fields keep keepalived-operator's meaning: version 2, one second. The predecessor's users could choose the
version with ``vrrp_version`` in ``verbatimConfig``; that counts where the group has no ``vrrpVersion``.
"""

from dataclasses import dataclass
from typing import Final

from kavip.api.group import GroupSpec

SECOND: Final = 1000
LONGEST_V2: Final = 255 * SECOND
LONGEST_V3: Final = 40_950
STEP_V3: Final = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """What all nodes of an instance must agree on; *milliseconds* between advertisements."""

    version: int
    milliseconds: int

    @property
    def seconds(self) -> str:
        """The interval as keepalived reads it, such as ``1`` or ``0.2``."""
        whole, rest = divmod(self.milliseconds, SECOND)
        return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def version_of(spec: GroupSpec) -> int:
    """The version of the group's IPv4 instances."""
    if spec.vrrp_version in (2, 3):
        return spec.vrrp_version
    return 3 if (spec.verbatim_config or {}).get("vrrp_version", "").strip() == "3" else 2


def timing_of(spec: GroupSpec, family: int) -> Timing:
    """
    The timing of instances of *family*; IPv6 knows only version 3.

    An interval that the version cannot carry, which admission refuses, becomes the next longer one that it can: a
    group that slipped past admission still runs, and runs alike on all nodes.
    """
    version = 3 if family == 6 else version_of(spec)
    wanted = max(1, spec.advert_interval_milliseconds or SECOND)
    step, longest = (STEP_V3, LONGEST_V3) if version == 3 else (SECOND, LONGEST_V2)
    return Timing(version, min(longest, -(-wanted // step) * step))
