"""A new address comes only from a pool that admits the Service at that moment; a pair moves whole or not at all."""

from typing import Any

import pytest

from kavip.api.meta import LabelSelector
from kavip.api.pool import VIPPool
from kavip.ipam.allocate import waits_for
from kavip.ipam.pools import Pools
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.deciding import PREFER, REASSIGN, REQUIRE, ours, outcome
from tests.support.build import pool

CLOSED: dict[str, tuple[dict[str, Any], str]] = {
    "autoAssign": ({"auto_assign": False}, "must be requested (autoAssign: false; set kavip.io/pool)"),
    "groups": ({"groups": ["lb/b"]}, "can serve only KeepalivedGroup lb/b (groups)"),
    "serviceSelector": (
        {"service_selector": LabelSelector(match_labels={"a": "b"})},
        "cannot serve the labels of Service shop/web (serviceSelector)",
    ),
}


@pytest.mark.parametrize("how", CLOSED)
@pytest.mark.parametrize("held", ["192.0.2.130", "2001:db8::1"])
def test_prefer_dual_stack_waits_with_one_family_where_its_pool_no_longer_admits_it(how: str, held: str) -> None:
    """The pool of the stranded address gives no second one; the message names the pool and the cause."""
    more, why = CLOSED[how]
    closed, other = _pools(**more)
    found = outcome(ours("shop/web", [held], **PREFER), pools=(closed, other))
    assert (_texts(found), found.kept, found.reason) == ([held], True, Reason.STRANDED)
    lacking = "IPv6" if "." in held else "IPv4"
    assert found.message.endswith(f"; no {lacking} address yet: pool edge {why}")


@pytest.mark.parametrize("how", CLOSED)
def test_require_dual_stack_keeps_what_it_has_and_says_why(how: str) -> None:
    """The condition stays Stranded and names the pool that does not admit the Service."""
    more, why = CLOSED[how]
    found = outcome(ours("shop/web", ["192.0.2.130"], **REQUIRE), pools=_pools(**more))
    assert (_texts(found), found.kept, found.reason) == (["192.0.2.130"], True, Reason.STRANDED)
    assert f"pool edge {why}" in found.message.rpartition("; set kavip.io/reassign")[2]


def test_a_service_that_names_its_pool_is_admitted_without_auto_assign() -> None:
    """autoAssign: false admits the Services that name the pool, their second family too."""
    found = outcome(ours("shop/web", ["192.0.2.130"], pool="edge", **PREFER), pools=_pools(auto_assign=False))
    assert (_texts(found), found.reason) == (["192.0.2.130", "2001:db8::"], Reason.ASSIGNED)


def test_a_service_waits_for_the_pools_to_change_where_a_freed_address_would_not_help() -> None:
    """A Service whose pool does not admit it is not called for each address that the pool gets back."""
    parsed = Pools.of(_pools(auto_assign=False))
    service = ours("shop/web", ["192.0.2.130"], **PREFER)
    request, _ = read_request(service)
    found = outcome(service, pools=_pools(auto_assign=False))
    assert waits_for(request, found, parsed) == ("*",)


# --- pairs ------------------------------------------------------------------------------------------------------------
TWO = (pool("two", "198.51.100.0/30", "fd00:2::100/126"), pool("three", "fd00:3::/64", auto_assign=False))
PAIR = ["203.0.113.131", "fd00:3::112"]


def test_a_pair_does_not_move_by_one_family() -> None:
    """An IPv4 address outside every pool stays until it may be reassigned, so its IPv6 address stays as well."""
    found = outcome(ours("shop/web", PAIR, pool="two", **REQUIRE), pools=TWO)
    assert (_texts(found), found.kept, found.reason) == (PAIR, True, Reason.STRANDED)
    assert "is in no pool that the other family could come from" in found.message


def test_a_pair_moves_whole_where_it_may() -> None:
    """kavip.io/reassign moves both families into the named pool."""
    found = outcome(ours("shop/web", PAIR, pool="two", annotations=REASSIGN, **REQUIRE), pools=TWO)
    assert (_texts(found), found.reason) == (["198.51.100.0", "fd00:2::100"], Reason.ASSIGNED)


def test_a_pair_that_finds_room_for_one_family_stays_where_it_is() -> None:
    """A pool that has one of the two families left takes neither."""
    narrow = (pool("two", "198.51.100.0/30", "fd00:2::100/128"), TWO[1])
    holder = ours("z/a", ["fd00:2::100"], families=("IPv6",))
    subject = ours("shop/web", PAIR, pool="two", annotations=REASSIGN, **REQUIRE)
    found = outcome(subject, holder, pools=narrow)
    assert (_texts(found), found.kept) == (PAIR, True)


def _pools(**more: Any) -> tuple[VIPPool, VIPPool]:
    """The pool of the held address, changed by *more*, and another one that would serve."""
    return pool("edge", "192.0.2.128/28", "2001:db8::/126", **more), pool("lab", "198.51.100.0/28", "fd00::/64")


def _texts(found: Any) -> list[str]:
    return [str(address) for address in found.addresses]
