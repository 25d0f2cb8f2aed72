"""
Decodes an answer of the exporter in keepalived-operator's pods: which instances a node is master of.

The exporter writes the state into a label of every counter, so one counter is enough.
"""

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address
from kavip.api.agent import short_line
from kavip.reconcile.observed.agentstates import MASTER, InstanceState, NodeState
from kavip.vrrp.operatorconfig import OperatorInstance

PORT: Final = 9650
"""Its port, the same in every group."""

_SAMPLE: Final = re.compile(r"^keepalived_vrrp_become_master\{([^}\n]*)\} \S+$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"\n]*)"')
_MOST: Final = 1024  # a daemon runs 510 instances at most

SILENT: Final = NodeState(running=False)
"""The state of a node whose exporter does not answer."""


def node_state(body: str, instances: Iterable[OperatorInstance] = ()) -> NodeState:
    """The state of a node by its metrics; silent if the exporter sees no keepalived. *instances* have the VIPs."""
    if "keepalived_up 1" not in body.splitlines():
        return SILENT
    found: list[dict[str, str]] = [dict(_LABEL.findall(match[1])) for match in _SAMPLE.finditer(body)][:_MOST]
    known = {each.name: each for each in instances}
    reported, runs, masters = [], dict[Address, str](), set[Address]()
    for labels in found:
        name, state = short_line(labels.get("name", "")), short_line(labels.get("state", ""))[:16]
        if not labels.get("vrid", "").isdecimal():
            continue
        vips = known[name].addresses if name in known else ()
        family = known[name].family if name in known else 4
        reported.append(InstanceState(name, int(labels["vrid"]), family, state, len(vips)))
        runs |= dict.fromkeys(vips, name)
        masters |= set(vips) if state == MASTER else set()
    return NodeState(
        runs=frozenset(runs),
        masters=frozenset(masters),
        instance_of=MappingProxyType(runs),
        instances=tuple(sorted(reported, key=lambda each: each.name)),
    )
