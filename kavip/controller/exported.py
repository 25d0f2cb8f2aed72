"""
What the exporter in keepalived-operator's pods tells: which instances a node is master of.

It says it in a label of its counters, so one of them is enough.
"""

import re
from typing import Final

from kavip.controller.observed import NodeState, Sight

PORT: Final = 9650
"""Where it listens, in every group."""

_SAMPLE: Final = re.compile(r"^keepalived_vrrp_become_master\{([^}\n]*)\} \S+$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"\n]*)"')
_MOST: Final = 1024  # a daemon runs 510 instances at most

SILENT: Final = NodeState(running=False)
"""The state of a node whose exporter was asked and did not answer."""


def state_of(body: str) -> NodeState:
    """The state of a node by its exporter's metrics; silent where it saw no keepalived."""
    if "keepalived_up 1" not in body.splitlines():
        return SILENT
    found = [dict(_LABEL.findall(match[1])) for match in _SAMPLE.finditer(body)][:_MOST]
    sights = (
        Sight(each.get("name", ""), int(vrid), 4, each.get("state", "")[:16], 0)
        for each in found
        if (vrid := each.get("vrid", "")).isdecimal()
    )
    return NodeState(instances=tuple(sorted(sights, key=lambda sight: sight.name)))
