"""
What is wrong, the most urgent first: Services, then nodes, groups and pools; in each, errors before warnings.

A consequence is not listed beside its cause where both are known: of a node that is not ready, silent agents are left
out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final

from kavip import names
from kavip.cli.views.picture.rows import GroupRow, Level, MemberRow, PoolRow, ProblemRow, VirtualIPRow, shown

MOST: Final = 500
"""Problems that are shown."""
NOT_READY: Final = "NotReady"
AGENT_SILENT: Final = "AgentSilent"
AGENT_REPORTS: Final = "AgentReports"

_PLAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
"""Names that the API server accepts, and that mean nothing to a shell: those of files may be anything."""
_URGENT: Final = {Level.ERROR: "0", Level.WARNING: "1"}


class _Turn(IntEnum):
    """The order of the kinds."""

    SERVICE = 0
    NODE = 1
    GROUP = 2
    POOL = 3


def problems_of(
    vips: Iterable[VirtualIPRow],
    members: Iterable[MemberRow],
    *,
    groups: Iterable[GroupRow],
    pools: Iterable[PoolRow],
    since: Mapping[str, str],
) -> tuple[ProblemRow, ...]:
    """The problems, sorted; *since*: by Service, when its state began."""
    found = (*_services(vips, since), *_nodes(members), *_others(groups), *_others(pools))
    return tuple(sorted({each.id: each for each in found}.values(), key=lambda each: each.id))


def _services(vips: Iterable[VirtualIPRow], since: Mapping[str, str]) -> Iterator[ProblemRow]:
    """One problem for a Service and a reason, however many VIPs it has."""
    for vip in vips:
        if vip.level == Level.OK:
            continue
        kind = names.SERVICE if vip.service else names.KEEPALIVED_GROUP
        name = vip.service or vip.group
        yield ProblemRow(
            id=_id(vip.level, _Turn.SERVICE, name, vip.state),
            level=vip.level,
            kind=kind,
            name=name,
            reason=vip.state,
            message=vip.message or f"{vip.address}: no node is known to be its master",
            since=since.get(vip.service, ""),
            service=vip.service,
            command=_command("kubectl kavip explain", vip.service) if vip.service else _described(kind, name),
        )


def _nodes(members: Iterable[MemberRow]) -> Iterator[ProblemRow]:
    for each in members:
        if each.level == Level.OK:
            continue
        if each.ready is False:
            reason, name, command = NOT_READY, each.node, _described(names.NODE, each.node)
            message = "the node is not ready: kubelet, the machine or its network is down"
        elif each.agent == "Silent":
            reason, name, command = AGENT_SILENT, f"{each.node} ({each.group})", _pods(each)
            message = f"the agent does not answer: {'; '.join(each.problems)}"
        else:
            reason, name, command = AGENT_REPORTS, f"{each.node} ({each.group})", _pods(each)
            message = "; ".join(each.problems)
        yield ProblemRow(
            id=_id(each.level, _Turn.NODE, name, reason),
            level=each.level,
            kind=names.NODE,
            name=name,
            reason=reason,
            message=shown(message),
            command=command,
        )


def _others(rows: Iterable[GroupRow | PoolRow]) -> Iterator[ProblemRow]:
    """The groups or pools that are not well."""
    for each in rows:
        if each.level == Level.OK:
            continue
        if isinstance(each, GroupRow):
            turn, kind, name = _Turn.GROUP, names.KEEPALIVED_GROUP, each.group
        else:
            turn, kind, name = _Turn.POOL, names.VIP_POOL, each.pool
        yield ProblemRow(
            id=_id(each.level, turn, name, each.state),
            level=each.level,
            kind=kind,
            name=name,
            reason=each.state,
            message=each.message,
            command=_described(kind, name),
        )


def _id(level: Level, turn: _Turn, *parts: str) -> str:
    return " ".join((_URGENT[level], str(int(turn)), *parts))


def _described(kind: str, key: str) -> str:
    return _command(f"kubectl describe {kind.lower()}", key)


def _pods(member: MemberRow) -> str:
    """The command that shows the pod of *member*."""
    namespace, _, name = member.group.partition("/")
    if not all(map(_PLAIN.fullmatch, (namespace, name, member.node))):
        return ""
    selectors = f"--selector {names.GROUP_LABEL}={name} --field-selector spec.nodeName={member.node}"
    return f"kubectl describe pods -n {namespace} {selectors}"


def _command(verb: str, key: str) -> str:
    """*verb* for the object *key*; "" if a name may mean something to a shell."""
    namespace, _, name = key.rpartition("/")
    if not all(map(_PLAIN.fullmatch, filter(None, (namespace, name)))) or not name:
        return ""
    return f"{verb} -n {namespace} {name}" if namespace else f"{verb} {name}"
