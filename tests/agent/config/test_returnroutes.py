"""``routes`` of ``agent.json``: what a node does with them, and what it refuses of a hostile ConfigMap."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.config.returnroutes import GatewayRoute, group_of, read_routes, removal, ruleset
from kavip.api.address import parse_address
from kavip.api.agent import LONGEST, NodeProblem, ProblemCode
from kavip.api.agentconfig import ReturnRoute
from kavip.api.returnroute import FLAG, KERNEL_TABLES, MASK, MOST_MARKS, MOST_RANGES, is_table, mark_of

GATEWAY4, GATEWAY6 = "198.51.100.1", "2001:db8:20::1"
SPAN4, SPAN6 = "198.51.100.128-198.51.100.255", "2001:db8:20::100-2001:db8:20::1ff"
DMZ = ReturnRoute("dmz", "vlan20", 1020, (GATEWAY4, GATEWAY6), (SPAN4, SPAN6))
LAB = ReturnRoute("lab", "vlan30", 1030, ("203.0.113.1",), ("203.0.113.130-203.0.113.130",))
INPUT = r"""
(add\ table\ ip6?\ kavip/lb/edge\n delete\ table\ ip6?\ kavip/lb/edge\n)+
(table\ ip6?\ kavip/lb/edge\ \{\n
  (\ \ set\ vips-\d+\ \{\n\ {4}typeof\ ip6?\ daddr;\ flags\ interval;\n(\ {4}elements\ =\ \{\ [0-9a-f:.,\ -]+\ \}\n)?\ \ \}\n)+
  \ \ chain\ prerouting\ \{\n\ {4}type\ filter\ hook\ prerouting\ priority\ -150;\ policy\ accept;\n
  (\ {4}iifname\ "[A-Za-z0-9._-]+"\ ip6?\ daddr\ @vips-\d+\ ct\ direction\ original\ ct\ mark\ set\ ct\ mark\ and\ 0x[0-9a-f]+\ or\ 0x[0-9a-f]+\n)+
  (\ {4}ct\ mark\ and\ 0x[0-9a-f]+\ ==\ 0x[0-9a-f]+\ meta\ mark\ set\ meta\ mark\ and\ 0x[0-9a-f]+\ or\ 0x[0-9a-f]+\n)+\ \ \}\n
  \ \ chain\ output\ \{\n\ {4}type\ route\ hook\ output\ priority\ -150;\ policy\ accept;\n
  (\ {4}ct\ mark\ and\ 0x[0-9a-f]+\ ==\ 0x[0-9a-f]+\ meta\ mark\ set\ meta\ mark\ and\ 0x[0-9a-f]+\ or\ 0x[0-9a-f]+\n)+\ \ \}\n
  \ \ chain\ postrouting\ \{\n\ {4}type\ filter\ hook\ postrouting\ priority\ -150;\ policy\ accept;\n
  (\ {4}ct\ mark\ and\ 0x[0-9a-f]+\ ==\ 0x[0-9a-f]+\ meta\ mark\ set\ meta\ mark\ and\ 0x[0-9a-f]+\n)+\ \ \}\n
\}\n)*
"""  # noqa: E501  # each rule is one line
HOSTILE = ("", "a b", 'x" accept', "x;flush ruleset", "lo", "x\n}", "@x", "/etc", "é", "9" * 16)
ADDRESSES = ("", "1.2.3", "0.0.0.0-255.255.255.255; x", "::-", "-", "9.9.9.9-1.1.1.1", "1.1.1.1-::1", "1.1.1.1 }")


def same(name: str) -> str:
    """The interface on a node that has all of them."""
    return name


def refusal_of(route: ReturnRoute, *before: ReturnRoute, group: str = "lb/edge") -> str:
    """Why the last of the routes is refused; "" if none is."""
    _, problems = read_routes(group, [*before, route], same)
    assert {each.code for each in problems} <= {ProblemCode.RETURN_ROUTE_INVALID}
    return "; ".join(each.message for each in problems)


def test_routes_become_routes_of_the_kernel_and_sets() -> None:
    """By family and table; pools are named for the report."""
    wanted, problems = read_routes("lb/edge", [LAB, DMZ], same)
    assert problems == ()
    assert wanted.pools == (("lab", 1030), ("dmz", 1020))
    assert wanted.routes == (
        GatewayRoute(4, 1020, parse_address(GATEWAY4), "vlan20"),
        GatewayRoute(4, 1030, parse_address("203.0.113.1"), "vlan30"),
        GatewayRoute(6, 1020, parse_address(GATEWAY6), "vlan20"),
    )
    assert sorted(wanted.spans) == [(4, 1020), (4, 1030), (6, 1020)]
    text = ruleset(wanted)
    assert re.fullmatch(INPUT, text, re.VERBOSE)
    assert "elements = { 203.0.113.130 }" in text
    assert f"elements = {{ {SPAN4} }}" in text


def test_a_node_without_the_interface_takes_no_part() -> None:
    """That is no problem of the route."""
    wanted, problems = read_routes("lb/edge", [DMZ, LAB], lambda name: "" if name == "vlan20" else name)
    assert problems == ()
    assert wanted.pools == (("lab", 1030),)


@pytest.mark.parametrize(
    ("span", "parts"),
    [
        ("192.0.2.0-192.0.2.255", "192.0.2.0-192.0.2.10, 192.0.2.12-192.0.2.255"),
        ("192.0.2.11-192.0.2.12", "192.0.2.12"),
        ("192.0.2.9-192.0.2.11", "192.0.2.9-192.0.2.10"),
        ("192.0.2.12-192.0.2.13", "192.0.2.12-192.0.2.13"),
    ],
)
def test_replies_of_the_node_itself_are_never_routed(span: str, parts: str) -> None:
    """A pool whose ranges hold the node's address excludes it; a hostile one does not."""
    route = ReturnRoute("lan", "eth0", 7, ("192.0.2.1",), (span,))
    wanted, problems = read_routes("lb/edge", [route], same, own=parse_address("192.0.2.11"))
    assert problems == ()
    assert f"elements = {{ {parts} }}" in ruleset(wanted)


def test_pools_may_share_a_way() -> None:
    """Pools with the same gateway, table and interface are one route; ranges that overlap are joined."""
    other = ReturnRoute("other", "vlan20", 1020, (GATEWAY4,), ("198.51.100.120-198.51.100.130",))
    wanted, problems = read_routes("lb/edge", [DMZ, other], same)
    assert problems == ()
    assert list(map(str, wanted.spans[4, 1020])) == ["198.51.100.120-198.51.100.255"]


@pytest.mark.parametrize(
    ("route", "why"),
    [
        *((ReturnRoute("x", "vlan20", table), f"{table} is no routing table for it") for table in (-1, *KERNEL_TABLES)),
        (ReturnRoute("x", "vlan20", 10**4000), "100000"),
        (ReturnRoute("x", "vlan20", 2**32), "4294967296 is no routing table for it"),
        *((ReturnRoute("x", name, 7), "the name of the interface is none") for name in HOSTILE if name),
        *((ReturnRoute("x", "eth1", 7, (text,)), "cannot be read") for text in ADDRESSES),
        *((ReturnRoute("x", "eth1", 7, (GATEWAY4,), (text,)), "cannot be read") for text in ADDRESSES),
        (ReturnRoute("x", "eth1", 7, (GATEWAY4, GATEWAY6, GATEWAY4)), "cannot be read"),
        (ReturnRoute("x", "eth1", 7, (GATEWAY4,), (SPAN4,) * (MOST_RANGES + 1)), "cannot be read"),
        (ReturnRoute("x", "vlan20", 1020, ("198.51.100.2",)), "another pool uses routing table 1020, or its mark"),
        (ReturnRoute("x", "vlan30", 1020, (GATEWAY4,)), "another pool uses routing table 1020, or its mark"),
        (ReturnRoute("x", "eth1", 1020 + MOST_MARKS, ("192.0.2.1",)), "another pool uses routing table 1148"),
    ],
)
def test_an_invalid_route_is_refused(route: ReturnRoute, why: str) -> None:
    """It is named, and the others are routed."""
    assert refusal_of(route, DMZ).startswith("replies of VIPPool x are not routed: ")
    assert why in refusal_of(route, DMZ)
    assert len(refusal_of(route, DMZ)) <= LONGEST
    wanted, _ = read_routes("lb/edge", [DMZ, route], same)
    assert wanted == read_routes("lb/edge", [DMZ], same)[0]


@pytest.mark.parametrize("group", ["", "edge", "lb/edge x", "lb/../x", 'lb/"', "lb/Edge", "a/b/c", "-/-"])
def test_the_name_of_a_table_is_that_of_a_group(group: str) -> None:
    """With another name nothing is installed, and no such table is one of kavip."""
    wanted, problems = read_routes(group, [DMZ], same)
    assert (wanted.group, wanted.routes) == ("", ())
    assert [each.code for each in problems] == [ProblemCode.RETURN_ROUTE_INVALID]
    assert group_of(f"kavip/{group}") == ""


def test_routes_are_bounded() -> None:
    """There are as many as marks."""
    many = [ReturnRoute(f"p{number}", "vlan20", 1000 + number, (GATEWAY4,)) for number in range(2 * MOST_MARKS)]
    wanted, problems = read_routes("lb/edge", many, same)
    assert len(wanted.routes) == MOST_MARKS
    assert problems == (
        NodeProblem(
            ProblemCode.RETURN_ROUTE_INVALID, "replies of VIPPool p128 are not routed: there are more than 128 routes"
        ),
    )


@given(
    st.lists(
        st.builds(
            ReturnRoute,
            pool=st.sampled_from(("dmz", *HOSTILE)),
            interface=st.sampled_from(("vlan20", "bond0.30", *HOSTILE)),
            table=st.sampled_from((1, 1020, 1148, 2**32 - 1, 2**32, 0, -1)),
            gateways=st.lists(st.sampled_from((GATEWAY4, GATEWAY6, *ADDRESSES)), max_size=2).map(tuple),
            addresses=st.lists(st.sampled_from((SPAN4, SPAN6, *ADDRESSES)), max_size=2).map(tuple),
        ),
        max_size=4,
    )
)
def test_no_text_reaches_nft(routes: list[ReturnRoute]) -> None:
    """Whatever the ConfigMap says, the input of ``nft`` has kavip's shape and changes only the group's tables."""
    wanted, _ = read_routes("lb/edge", routes, same)
    assert re.fullmatch(INPUT, ruleset(wanted), re.VERBOSE)


def test_without_routes_the_tables_are_removed() -> None:
    """Whether they exist or not."""
    assert ruleset(read_routes("lb/edge", [], same)[0]) == removal("lb/edge")


@given(st.integers(-5, 2**32 + 5))
def test_marks_are_in_their_bits(table: int) -> None:
    """Each has the flag, and no bit outside the mask."""
    mark = mark_of(table)
    assert mark & FLAG and not mark & ~MASK
    assert is_table(table) == (0 < table < 2**32 and table not in {253, 254, 255})
