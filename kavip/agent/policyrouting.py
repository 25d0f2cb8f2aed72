"""
The routing rules and routes of the kernel that lead replies back (:mod:`kavip.agent.config.returnroutes`).

kavip's rules and routes have a number of its own as their protocol, so no others are ever changed. The agents of all
groups on the node share them: each rule and route is the same, whichever group wants it.
"""

import errno
import os
import socket
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kavip.agent.config.returnroutes import GatewayRoute
from kavip.agent.netlinkqueries import entries_of
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.returnroute import MASK, mark_of

PROTOCOL: Final = 107  # no program's in rt_protos of iproute2
LOOK_AT_MAIN, LOOK_AT_TABLE = 500, 501
"""Priorities of the rules: after the kernel's for local addresses, which some CNIs move to 100, and before others."""

_MAIN: Final = 254
_ANY_LENGTH: Final = 2**32 - 1
_FAMILIES: Final = {4: 2, 6: 10}  # AF_INET, AF_INET6
_GONE: Final = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EAFNOSUPPORT})

Tables = Collection[tuple[int, int]]
"""Routing tables: family and number."""


class Rule(NamedTuple):
    """A routing rule for packets with *mark*; *longest*: routes with a prefix of at most that length do not count."""

    family: int
    priority: int
    mark: int
    table: int
    longest: int = _ANY_LENGTH


def rules_for(tables: Tables) -> frozenset[Rule]:
    """The rules that *tables* need."""
    marks = [(family, mark_of(table), table) for family, table in tables]
    main = (Rule(family, LOOK_AT_MAIN, mark, _MAIN, 0) for family, mark, _ in marks)
    return frozenset((*main, *(Rule(family, LOOK_AT_TABLE, mark, table) for family, mark, table in marks)))


async def add_missing(routes: Iterable[GatewayRoute]) -> dict[GatewayRoute, NodeProblem]:
    """Add the rules and routes that are missing; return those that cannot be added, and why."""
    failed: dict[GatewayRoute, NodeProblem] = {}
    async with AsyncIPRoute() as netlink:
        rules = [each async for each in _rules(netlink)]
        there = {each for each, is_own in rules if is_own}
        for route in sorted(routes):
            if why := _used_by_others(route, (each for each, is_own in rules if not is_own)):
                failed[route] = NodeProblem(ProblemCode.ROUTING_TABLE_IN_USE, why)
                continue
            try:
                await _replace_route(netlink, route)
                for rule in sorted(rules_for([(route.family, route.table)]) - there):
                    await _rule(netlink, "add", rule)
            except (NetlinkError, OSError) as error:
                code = error.code if isinstance(error, NetlinkError) else error.errno or 0
                why = f"replies are not routed by {route.gateway} on {route.interface}: {os.strerror(code)}"
                failed[route] = NodeProblem(ProblemCode.RETURN_ROUTE_FAILED, why)
    return failed


async def is_intact(routes: Collection[GatewayRoute]) -> bool:
    """Whether all rules and routes are there."""
    if not routes:
        return True
    if not all(PROTOCOL in {each.protocol for each in entries_of(route.family, route.table)} for route in routes):
        return False
    async with AsyncIPRoute() as netlink:
        there = {each async for each, is_own in _rules(netlink) if is_own}
    return rules_for([(route.family, route.table) for route in routes]) <= there


async def tables_in_use() -> frozenset[tuple[int, int]]:
    """The tables to which kavip's rules lead."""
    async with AsyncIPRoute() as netlink:
        found = [each async for each, is_own in _rules(netlink) if is_own]
    return frozenset((each.family, each.table) for each in found if each.priority == LOOK_AT_TABLE)


async def remove_all_but(wanted: Tables) -> None:
    """Remove kavip's rules, and the routes of their tables, except those for the tables *wanted*."""
    kept = rules_for(wanted)
    async with AsyncIPRoute() as netlink:
        for rule in sorted([each async for each, is_own in _rules(netlink) if is_own and each not in kept]):
            await _rule(netlink, "del", rule)
            if rule.priority == LOOK_AT_TABLE:
                await _remove_route(netlink, rule.family, rule.table)


async def _rules(netlink: AsyncIPRoute) -> AsyncIterator[tuple[Rule, bool]]:
    """Each rule of the kernel, and whether it is one of kavip."""
    for family, number in _FAMILIES.items():
        try:
            found = [message async for message in await netlink.get_rules(family=number)]
        except NetlinkError as error:
            if error.code not in _GONE:  # a kernel without IPv6
                raise
            continue
        for message in found:
            is_own = message.get("FRA_PROTOCOL") == PROTOCOL and message.get("FRA_FWMASK") == MASK
            longest = message.get("FRA_SUPPRESS_PREFIXLEN")
            rule = Rule(
                family,
                message.get("FRA_PRIORITY") or 0,
                message.get("FRA_FWMARK") or 0,
                message.get("FRA_TABLE") or message["table"],
                _ANY_LENGTH if longest is None else longest,
            )
            yield rule, is_own


async def _rule(netlink: AsyncIPRoute, command: str, rule: Rule) -> None:
    more = {} if rule.longest == _ANY_LENGTH else {"FRA_SUPPRESS_PREFIXLEN": rule.longest}
    try:
        await netlink.rule(
            command,
            family=_FAMILIES[rule.family],
            priority=rule.priority,
            fwmark=rule.mark,
            fwmask=MASK,
            table=rule.table,
            FRA_PROTOCOL=PROTOCOL,
            **more,
        )
    except NetlinkError as error:
        if error.code not in ({errno.EEXIST} if command == "add" else _GONE):
            raise


async def _replace_route(netlink: AsyncIPRoute, route: GatewayRoute) -> None:
    await netlink.route(
        "replace",
        family=_FAMILIES[route.family],
        dst="default",
        gateway=str(route.gateway),
        oif=socket.if_nametoindex(route.interface),
        table=route.table,
        proto=PROTOCOL,
        flags=["onlink"],  # the node may have no address in the subnet of the gateway
    )


async def _remove_route(netlink: AsyncIPRoute, family: int, table: int) -> None:
    if PROTOCOL not in {each.protocol for each in entries_of(family, table)}:
        return
    try:
        await netlink.route("del", family=_FAMILIES[family], dst="default", table=table, proto=PROTOCOL)
    except NetlinkError as error:
        if error.code not in _GONE:
            raise


def _used_by_others(route: GatewayRoute, rules: Iterator[Rule]) -> str:
    """Why the table of *route* cannot be used: another program has *rules* for it, or routes in it."""
    if any(each.table == route.table and each.family == route.family for each in rules):
        return f"routing table {route.table} is in use by rules of another program: name another table in the VIPPool"
    if any(each.protocol != PROTOCOL for each in entries_of(route.family, route.table)):
        return f"routing table {route.table} has routes of another program: name another table in the VIPPool"
    return ""
