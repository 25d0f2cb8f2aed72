"""
The output of ``kavip status``: tables for people, JSON and YAML for programs.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from kavip.api.text import one_line
from kavip.cli.views.status import GroupRow, NodeRow, PoolRow, StatusReport, VirtualIPRow
from kavip.cli.views.structured import structured
from kavip.cli.views.table import marked, table
from kavip.names import Reason

_NONE: Final = "-"
_VIP: Final = ("ADDRESS", "SERVICE", "GROUP", "POOL", "NODE", "STATE")
_GROUP: Final = ("GROUP", "MODE", "NODES", "READY", "CURRENT", "INSTANCES", "STATE", "MESSAGE")
_POOL: Final = ("POOL", "PRIORITY", "IPV4 ASSIGNED", "IPV6 ASSIGNED", "INTERFACE", "REPLIES BY", "STATE")


def output(report: StatusReport, form: str, *, style: Callable[[str], str] = str, columns: int = 0) -> str:
    """
    *report* in the *form* table, wide, name, json or yaml.

    Tables have *style* for rows about problems, and are for a terminal with *columns*; 0: for none.
    """
    match form:
        case "table":
            return text(report, style=style, columns=columns)
        case "wide":
            return wide(report, style=style, columns=columns)
        case "name":
            return "\n".join(sorted({one_line(each.service) for each in report.virtual_ips if each.service}))
    return structured(data(report), form)


def text(report: StatusReport, *, style: Callable[[str], str] = str, columns: int = 0) -> str:
    """Four tables, with *style* for rows about problems."""
    vips = table((*_VIP, "MESSAGE"), ((*_vip(each), each.message) for each in report.virtual_ips), columns=columns)
    pools = table(_POOL, map(_pool, report.pools), columns=columns)
    return _tables(report, vips=vips, pools=pools, style=style, columns=columns)


def wide(report: StatusReport, *, style: Callable[[str], str] = str, columns: int = 0) -> str:
    """The same tables with more columns."""
    rows = ((*_vip(each), *_wire(each), each.message) for each in report.virtual_ips)
    vips = table((*_VIP, "VRID", "INTERFACE", "MESSAGE"), rows, columns=columns)
    ranges = ((*_pool(each), ", ".join(each.addresses)) for each in report.pools)
    pools = table((*_POOL, "ADDRESSES"), ranges, columns=columns)
    return _tables(report, vips=vips, pools=pools, style=style, columns=columns)


def _tables(
    report: StatusReport, *, vips: list[str], pools: list[str], style: Callable[[str], str], columns: int
) -> str:
    groups = table(_GROUP, map(_group, report.groups), columns=columns)
    nodes = table(("NODE", "READY", "VIPS", "SHARE", "GROUPS"), map(_node, report.nodes), columns=columns)
    parts = [
        marked(vips, (not each.is_held for each in report.virtual_ips), style),
        marked(groups, (each.state != Reason.READY for each in report.groups), style),
        marked(pools, (each.state != Reason.READY for each in report.pools), style),
        marked(nodes, (each.ready is False for each in report.nodes), style),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def data(report: StatusReport) -> dict[str, Any]:
    """One object, its lists in the order of the tables."""
    found = asdict(report)
    for node in found["nodes"]:
        node["virtualIPs"] = node.pop("virtual_ips")
        node["groupVirtualIPs"] = node.pop("group_virtual_ips")
    for vip in found["virtual_ips"]:
        vip["routerID"] = vip.pop("router_id")
    found["virtualIPs"] = found.pop("virtual_ips")
    return found


def _vip(row: VirtualIPRow) -> tuple[str, ...]:
    cells = (row.address, row.service, row.group, row.pool, row.node, row.state)
    return tuple(cell or _NONE for cell in cells)


def _wire(row: VirtualIPRow) -> tuple[str, ...]:
    return (str(row.router_id or _NONE), row.interface or _NONE)


def _group(row: GroupRow) -> tuple[str, ...]:
    counts = (row.desired, row.ready, row.current, row.instances)
    return (row.group, row.mode, *map(str, counts), row.state, row.message)


def _pool(row: PoolRow) -> tuple[str, ...]:
    used = (f"{each['assigned']} of {each['total']}" if each else _NONE for each in (row.ipv4, row.ipv6))
    replies = f"{', '.join(row.gateways)} (table {row.table})" if row.gateways else _NONE
    return (row.pool, str(row.priority), *used, row.interface or _NONE, replies, row.state)


def _node(row: NodeRow) -> tuple[str, ...]:
    ready = _NONE if row.ready is None else "yes" if row.ready else "no"
    ready += (", cordoned" if row.cordoned else "") + (", drained" if row.drained else "")
    return (row.node, ready, str(row.virtual_ips), _share(row), ", ".join(row.groups))


def _share(row: NodeRow) -> str:
    """What part of the VIPs of its groups a node holds."""
    return f"{row.virtual_ips / row.group_virtual_ips:.0%}" if row.group_virtual_ips else _NONE
