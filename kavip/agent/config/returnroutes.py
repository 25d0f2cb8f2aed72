"""
The way back of replies on this node, made from ``routes`` of ``agent.json``: nftables rules, routing rules and routes.

A connection to an address of a pool that enters by the pool's interface gets the mark of the pool's table
(:mod:`kavip.api.returnroute`). Each of its packets has this mark while it is routed: requests too, so that the reverse
path filter looks up their source by the same rules. Rules for marked packets look at the main table without its default
route first, then at the pool's table. That table has the gateway as its default route.

``agent.json`` is checked again here: a user who may edit the ConfigMap must not be able to run a shell, or to change
another table of nftables or a routing table of the kernel.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address
from kavip.api.agent import NodeProblem, ProblemCode, short_line
from kavip.api.agentconfig import ReturnRoute
from kavip.api.naming import is_interface
from kavip.api.returnroute import MASK, MOST_MARKS, MOST_RANGES, is_table, mark_of
from kavip.api.spans import Span, read_spans

TABLE_PREFIX: Final = "kavip/"
"""How the names of kavip's tables of nftables begin; the key of the group follows."""
SET_PREFIX: Final = "vips-"
"""How the names of their sets begin; the number of the routing table follows."""

_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}/[a-z0-9][a-z0-9.-]{0,62}")
_FAMILIES: Final = {4: "ip", 6: "ip6"}
_KEEP: Final = ~MASK & 0xFFFFFFFF


class GatewayRoute(NamedTuple):
    """The default route by *gateway* on *interface* in the routing table number *table*. Sorts by family."""

    family: int
    table: int
    gateway: Address
    interface: str


@dataclass(frozen=True, slots=True)
class ReturnRoutes:
    """
    What one group wants on this node.

    *pools*: the names of its pools, with their routing tables. *routes*: sorted. *spans*: by
    family and table, the addresses of the connections.
    """

    group: str = ""
    pools: tuple[tuple[str, int], ...] = ()
    routes: tuple[GatewayRoute, ...] = ()
    spans: dict[tuple[int, int], tuple[Span, ...]] = field(default_factory=dict)

    @property
    def table_name(self) -> str:
        """The name of the group's tables of nftables."""
        return table_name(self.group)


def table_name(group: str) -> str:
    """The name of the tables of nftables of *group*."""
    return f"{TABLE_PREFIX}{group}"


def group_of(name: str) -> str:
    """The group whose tables of nftables have this *name*; "" if it is no name of kavip."""
    group = name.removeprefix(TABLE_PREFIX)
    return group if group != name and _GROUP.fullmatch(group) else ""


def read_routes(
    group: str, routes: Sequence[ReturnRoute], interface_of: Callable[[str], str], *, own: Address | None = None
) -> tuple[ReturnRoutes, tuple[NodeProblem, ...]]:
    """
    What *group* wants by its *routes*, and why some of them are refused.

    *interface_of* maps the name of an interface in the group's text to the one on this node; "": there is none, so the
    node takes no part. Replies of *own*, the address of the node, are never routed.
    """
    if not routes:
        return ReturnRoutes(group), ()
    if not _GROUP.fullmatch(group):
        return ReturnRoutes(), (_problem(routes[0], "the name of the group is none"),)
    wanted, problems = _Reader(group, own), list[NodeProblem]()
    for route in routes[:MOST_MARKS]:
        if why := wanted.add(route, interface_of(route.interface)):
            problems.append(_problem(route, why))
    if len(routes) > MOST_MARKS:
        problems.append(_problem(routes[MOST_MARKS], f"there are more than {MOST_MARKS} routes"))
    return wanted.found(), tuple(problems)


def _problem(route: ReturnRoute, why: str) -> NodeProblem:
    pool = short_line(route.pool)[:63]
    message = short_line(f"replies of VIPPool {pool} are not routed: {why}")  # a number may have thousands of digits
    return NodeProblem(ProblemCode.RETURN_ROUTE_INVALID, message)


class _Reader:
    """Collects the routes of *group* that are valid."""

    def __init__(self, group: str, own: Address | None) -> None:
        self._group, self._own = group, own
        self._pools: list[tuple[str, int]] = []
        self._routes: dict[tuple[int, int], GatewayRoute] = {}
        self._spans: dict[tuple[int, int], list[Span]] = {}

    def add(self, route: ReturnRoute, interface: str) -> str:
        """Add *route* by *interface*, if there is one; return why it is refused."""
        if not is_table(route.table):
            return f"{route.table} is no routing table for it"
        if not interface:
            return ""
        if not is_interface(interface):
            return "the name of the interface is none"
        gateways = [gateway for text in route.gateways[:2] if (gateway := read_address(text))]
        spans = [span for text in route.addresses[:MOST_RANGES] for span in read_spans([text]).spans]
        if len(gateways) != len(route.gateways) or len(spans) != len(route.addresses):
            return "its gateways or addresses cannot be read"
        found = [GatewayRoute(gateway.family, route.table, gateway, interface) for gateway in gateways]
        if any(self._contradicts(each) for each in found):
            return f"another pool uses routing table {route.table}, or its mark, for another gateway"
        self._pools.append((short_line(route.pool), route.table))
        for each in found:
            self._routes[each.family, each.table] = each
            mine = self._spans.setdefault((each.family, each.table), [])
            mine += [part for span in spans if span.first.family == each.family for part in _without(self._own, span)]
        return ""

    def _contradicts(self, route: GatewayRoute) -> bool:
        return any(
            each.family == route.family and mark_of(each.table) == mark_of(route.table) and each != route
            for each in self._routes.values()
        )

    def found(self) -> ReturnRoutes:
        """What was added."""
        spans = {key: _merged(self._spans[key]) for key in sorted(self._spans)}
        return ReturnRoutes(self._group, tuple(self._pools), tuple(sorted(self._routes.values())), spans)


def _without(address: Address | None, span: Span) -> Iterator[Span]:
    """The parts of *span* beside *address*."""
    if address is None or not span.first <= address <= span.last:
        yield span
        return
    if span.first < address:
        yield Span(span.first, address._replace(value=address.value - 1))
    if address < span.last:
        yield Span(address._replace(value=address.value + 1), span.last)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """*spans*, sorted; those that overlap, which nftables refuses, as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].last:
            found[-1] = Span(found[-1].first, max(span.last, found[-1].last))
        else:
            found.append(span)
    return tuple(found)


# --- nftables ---------------------------------------------------------------------------------------------------------
def ruleset(wanted: ReturnRoutes) -> str:
    """The input of ``nft`` that replaces the tables of the group in one transaction."""
    return "".join((removal(wanted.group), *(_table(wanted, family) for family in _FAMILIES)))


def removal(group: str) -> str:
    """The input of ``nft`` that removes the tables of *group*, if they exist."""
    tables = [f"{family} {table_name(group)}" for family in _FAMILIES.values()]
    return "".join(f"add table {each}\ndelete table {each}\n" for each in tables)


def _table(wanted: ReturnRoutes, family: int) -> str:
    routes = [route for route in wanted.routes if route.family == family]
    if not routes:
        return ""
    sets = "".join(_set(route, wanted.spans[family, route.table]) for route in routes)
    enter = "".join(_enter(route) for route in routes)
    routed = "".join(f"    ct mark and {MASK:#x} == {_mark(each)} {_marked('meta', each)}\n" for each in routes)
    leave = "".join(
        f"    ct mark and {MASK:#x} == {_mark(each)} meta mark set meta mark and {_KEEP:#x}\n" for each in routes
    )
    return (
        f"table {_FAMILIES[family]} {wanted.table_name} {{\n{sets}"
        f"  chain prerouting {{\n    type filter hook prerouting priority -150; policy accept;\n{enter}{routed}  }}\n"
        f"  chain output {{\n    type route hook output priority -150; policy accept;\n{routed}  }}\n"
        f"  chain postrouting {{\n    type filter hook postrouting priority -150; policy accept;\n{leave}  }}\n"
        "}\n"
    )


def _set(route: GatewayRoute, spans: Iterable[Span]) -> str:
    elements = ", ".join(map(str, spans))
    # not "type ipv4_addr": where nft 1.1 has made such a set, each listing by nft 1.0.6 crashes, also kube-proxy's
    inside = f"    typeof {_FAMILIES[route.family]} daddr; flags interval;\n"
    inside += f"    elements = {{ {elements} }}\n" if elements else ""
    return f"  set {SET_PREFIX}{route.table} {{\n{inside}  }}\n"


def _enter(route: GatewayRoute) -> str:
    """The rule for connections that enter, before kube-proxy replaces their destination (priority -100)."""
    where = f'iifname "{route.interface}" {_FAMILIES[route.family]} daddr @{SET_PREFIX}{route.table}'
    return f"    {where} ct direction original {_marked('ct', route)}\n"


def _marked(what: str, route: GatewayRoute) -> str:
    return f"{what} mark set {what} mark and {_KEEP:#x} or {_mark(route)}"


def _mark(route: GatewayRoute) -> str:
    return f"{mark_of(route.table):#x}"
