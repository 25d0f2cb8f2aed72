"""
The way back of replies on a real node: nftables, routing rules and routes, as agents keep and remove them.

The client is behind a gateway in the network of the node's second card. The node's default route leads nowhere.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hack.testbed import process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.agent import nftables, returnrouting
from kavip.agent.config.returnroutes import read_routes, removal, ruleset
from kavip.agent.returnrouting import ReturnRouting
from kavip.api.agent import ProblemCode
from kavip.api.agentconfig import ReturnRoute
from kavip.errors import NftablesFailed
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import PATIENCE, Pod, entered
from tests.support.manifests import ROOT
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns

CARD = "vlan20"
VIP4, VIP6 = "198.51.100.130", "2001:db8:20::130"
CLIENT4, CLIENT6 = "203.0.113.9", "2001:db8:99::9"
GATEWAY4, GATEWAY6 = "198.51.100.1", "2001:db8:20::1"
ADDRESSES = ("198.51.100.128-198.51.100.255", "2001:db8:20::100-2001:db8:20::1ff")
ROUTE = {
    "pool": "dmz",
    "interface": CARD,
    "table": 1020,
    "gateways": [GATEWAY4, GATEWAY6],
    "addresses": ADDRESSES,
}
TEXT = mounts.rendered({"shop/web": f"{VIP4},{VIP6}"}, nodes=1).replace("dev eth0", f"dev {CARD}")
META: dict[str, Any] = {"poolInterfaces": [CARD], "routes": [ROUTE]}


@pytest.fixture(scope="module")
def node(lan: Segment) -> Iterator[Host]:
    """The node n1 with a second card and strict filters; a server answers on all of its addresses."""
    lan.add_bridge("br20")
    host = lan.node("n1")
    lan.plug(host, CARD, bridge="br20", addresses=["198.51.100.11/24", "2001:db8:20::11/64"])
    lan.plug(lan.client, CARD, bridge="br20", addresses=[f"{GATEWAY4}/24", f"{GATEWAY6}/64"])
    for address in (f"{CLIENT4}/32", f"{CLIENT6}/128"):
        lan.client.exec("ip", "address", "add", address, "dev", "lo")
    lan.client.exec("sysctl", "-w", f"net.ipv4.conf.{CARD}.arp_announce=2")  # as a gateway asks, by its own address
    for gateway in ("192.0.2.1", "2001:db8:2::1"):
        host.exec("ip", "route", "add", "default", "via", gateway, "dev", "eth0")
    host.exec("mount", "--bind", "/dev/null", "/etc/resolv.conf")  # or keepalived waits for DNS when it starts
    settings = ("all.rp_filter=1", f"{CARD}.rp_filter=1", f"{CARD}.src_valid_mark=1")
    host.exec("sysctl", "-w", *(f"net.ipv4.conf.{each}" for each in settings))
    server = host.spawn(
        *BEFORE_OTHERS, sys.executable, "-m", "tests.transitions.vipserver", "n1", log=host.home / "server.log"
    )
    yield host
    process.kill([server])


@pytest.fixture(autouse=True)
def nothing_is_left(node: Host) -> Iterator[None]:
    """Before and after each test, nothing of kavip is on the node."""
    clear(node)
    yield
    clear(node)


def clear(node: Host) -> None:
    """Remove everything."""
    node.exec("nft", "flush", "ruleset")
    for family in ("-4", "-6"):
        for rule in rules(node, family):
            node.exec("ip", family, "rule", "del", "pref", str(rule["priority"]), "proto", "107", check=False)
        for table in ("1020", "1030"):
            node.exec("ip", family, "route", "flush", "table", table, check=False)
    node.exec("ip", "address", "flush", "dev", CARD, "to", "198.51.100.128/25")
    node.exec("ip", "-6", "address", "flush", "dev", CARD, "to", "2001:db8:20::100/120")


def rules(node: Host, family: str) -> list[dict[str, Any]]:
    """The routing rules of kavip."""
    found: list[dict[str, Any]] = json.loads(node.exec("ip", "-json", family, "rule", "show").stdout or "[]")
    return [each for each in found if str(each.get("protocol")) == "107"]


def tables(node: Host) -> set[str]:
    """The tables of nftables of kavip."""
    lines = node.exec("nft", "list", "tables").stdout.splitlines()
    return {line.removeprefix("table ") for line in lines if "kavip/" in line}


def routes(node: Host, table: int = 1020) -> set[str]:
    """The default routes in a routing table, which may not exist: gateway and interface."""
    found = set()
    for family in ("-4", "-6"):
        shown = node.exec("ip", "-json", family, "route", "show", "table", str(table), check=False)
        listed = json.loads(shown.stdout or "[]") if shown.returncode == 0 else []  # otherwise it ends after "["
        found |= {f"{each['gateway']} {each['dev']}" for each in listed if "gateway" in each}
    return found


def is_whole(node: Host, group: str = "lb/edge") -> bool:
    """Whether everything for the route is there."""
    return (
        {f"ip kavip/{group}", f"ip6 kavip/{group}"} <= tables(node)
        and all([each["priority"] for each in rules(node, family)] == [500, 501] for family in ("-4", "-6"))
        and routes(node) == {f"{GATEWAY4} {CARD}", f"{GATEWAY6} {CARD}"}
    )


def is_clean(node: Host, table: int = 1020) -> bool:
    """Whether nothing of kavip is left."""
    return not (tables(node) or rules(node, "-4") or rules(node, "-6") or routes(node, table))


def answers(lan: Segment, vip: str, source: str) -> bool:
    """Whether the node answers the client on *vip*."""
    where = f"[{vip}]" if ":" in vip else vip
    command = ("curl", "--silent", "--max-time", "2", "--interface", source, f"http://{where}")
    return lan.client.exec(*command, check=False).stdout == "n1"


def started(pod: Pod, text: str = TEXT, **meta: Any) -> Pod:
    """A pod that runs *text*."""
    pod.config.write(text, **{**META, **meta})
    pod.start()
    pod.runs(mounts.hash_of(text))
    return pod


def await_that(what: str, ready: Callable[[], bool]) -> None:
    """Wait for *ready*."""
    process.wait_for(what, ready, timeout=PATIENCE)


def test_replies_leave_by_the_gateway(lan: Segment, node: Host, pod: MakePod) -> None:
    """Requests from behind the gateway are answered through a strict filter; the pod's end leaves nothing."""
    one = started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    one.wait_until("it is reported", lambda: one.state()["routedPools"] == ["dmz"])
    for vip, source in ((VIP4, CLIENT4), (VIP6, CLIENT6)):
        await_that(f"{vip} answers", partial(answers, lan, vip, source))
    assert not [each for each in one.state()["notes"] if each["code"].startswith(("Return", "Requests"))]
    lan.client.exec("ping", "-c", "1", "-W", "5", "-I", CLIENT4, VIP4)
    assert one.agent is not None
    one.agent.signal(signal.SIGTERM)
    one.get(names.HANDOVER_PATH)
    process.stop([one.keepalived] if one.keepalived else [], grace=30)
    await_that("nothing is left", lambda: is_clean(node))


def test_what_others_remove_is_put_back(lan: Segment, node: Host, pod: MakePod) -> None:
    """A flushed ruleset, a deleted routing rule, a deleted route, and a link that was down."""
    started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    for command in (
        "nft flush ruleset",
        "nft flush chain ip kavip/lb/edge prerouting",
        "ip rule del pref 501",
        "ip -6 rule del pref 500",
        "ip route flush table 1020",
        f"ip link set {CARD} down",
    ):
        node.exec(*command.split())
        if "down" in command:
            await_that("the route is gone", lambda: not is_whole(node))
            node.exec("ip", "link", "set", CARD, "up")
            node.exec("ip", "-6", "address", "add", "2001:db8:20::11/64", "dev", CARD, "nodad", check=False)
        await_that(f"it is back after: {command}", lambda: is_whole(node))
        await_that("the client has its answer", lambda: answers(lan, VIP4, CLIENT4))


def test_a_killed_agent_leaves_it_to_the_next(lan: Segment, node: Host, pod: MakePod) -> None:
    """Without an agent replies are routed on; the next one takes over, and removes what is not wanted any more."""
    one = started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    one.kill_agent()
    assert is_whole(node)
    await_that("the client has its answer", lambda: answers(lan, VIP4, CLIENT4))
    one.config.write(TEXT, **{**META, "routes": [{**ROUTE, "table": 1030}]})
    one.start_agent()
    await_that("the other table is used", lambda: routes(node, 1030) == {f"{GATEWAY4} {CARD}", f"{GATEWAY6} {CARD}"})
    await_that("the old one is not", lambda: not routes(node))
    await_that("the client has its answer", lambda: answers(lan, VIP4, CLIENT4))
    one.kill_agent()
    one.config.write(TEXT, **{**META, "routes": []})
    one.start_agent()
    await_that("nothing is left", lambda: is_clean(node, 1030))


def test_the_commands_of_the_how_to_remove_what_is_left(node: Host, pod: MakePod) -> None:
    """Where no agent ever comes back after kill -9."""
    one = started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    one.kill_agent()
    page = (ROOT / "docs" / "howto" / "interfaces.md").read_text().partition("## When it is removed")[2]
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert "table 120 " in commands
    node.exec("sh", "-c", commands.replace("table 120 ", "table 1020 "))
    assert is_clean(node)


def test_a_restart_of_the_agent_alone_changes_nothing(lan: Segment, node: Host, pod: MakePod) -> None:
    """It gets SIGTERM, and keepalived runs on: replies are routed meanwhile."""
    one = started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    agent = one.agent
    assert agent is not None
    agent.signal(signal.SIGTERM)
    await_that("the agent has ended", lambda: not agent.alive)
    assert is_whole(node)
    await_that("the client has its answer", lambda: answers(lan, VIP4, CLIENT4))


def test_without_the_hook_the_end_of_keepalived_counts(node: Host, pod: MakePod) -> None:
    """Both containers get SIGTERM, as with another agent's image: nothing is left."""
    one = started(pod())
    await_that("the way back is there", lambda: is_whole(node))
    assert one.agent is not None
    assert one.keepalived is not None
    one.agent.signal(signal.SIGTERM)
    process.stop([one.keepalived], grace=30)
    await_that("nothing is left", lambda: is_clean(node))


def test_two_groups_share_a_table(lan: Segment, node: Host, pod: MakePod) -> None:
    """The end of one group leaves the other's way back as it is; the end of both leaves nothing."""
    edge, core = pod(), pod(group="core")
    core.port = names.AGENT_PORT + 1
    started(edge)
    other = mounts.rendered({"core/api": "198.51.100.140"}, nodes=1).replace("dev eth0", f"dev {CARD}")
    started(core, other.replace("virtual_router_id 2", "virtual_router_id 6"), group="lb/core")
    await_that("both are there", lambda: is_whole(node) and is_whole(node, "lb/core"))
    core.config.write(other.replace("virtual_router_id 2", "virtual_router_id 6"), group="lb/core")
    await_that("one is gone", lambda: tables(node) == {"ip kavip/lb/edge", "ip6 kavip/lb/edge"})
    assert is_whole(node)
    await_that("the client has its answer", lambda: answers(lan, VIP4, CLIENT4))
    edge.config.write(TEXT)
    await_that("nothing is left", lambda: is_clean(node))


def test_a_table_of_another_program_is_left_alone(node: Host, pod: MakePod) -> None:
    """The note names it, nothing is routed, and the other program's route stays."""
    node.exec("ip", "route", "add", "default", "via", "192.0.2.77", "dev", "eth0", "table", "1020")
    one = started(pod(), routes=[{**ROUTE, "gateways": [GATEWAY4]}])
    one.wait_until("it is noted", lambda: "RoutingTableInUse" in {each["code"] for each in one.state()["notes"]})
    assert one.state()["routedPools"] == []
    assert routes(node) == {"192.0.2.77 eth0"}
    node.exec("ip", "route", "flush", "table", "1020")


def test_a_strict_filter_is_noted(lan: Segment, node: Host, pod: MakePod) -> None:
    """Without src_valid_mark requests are dropped, and the note says what to set."""
    node.exec("sysctl", "-w", f"net.ipv4.conf.{CARD}.src_valid_mark=0")
    try:
        one = started(pod())
        one.wait_until("it is noted", lambda: f"{CARD}.src_valid_mark=1" in one.state()["note"])
        assert not answers(lan, VIP4, CLIENT4)
    finally:
        node.exec("sysctl", "-w", f"net.ipv4.conf.{CARD}.src_valid_mark=1")


def test_sets_are_read_as_they_were_written(node: Host) -> None:
    """Single addresses, ranges, and those that nftables shows as a prefix."""
    spans = ("198.51.100.1-198.51.100.1", "198.51.100.8-198.51.100.15", "198.51.100.33-198.51.100.77", "::-::ff")
    wanted, _ = read_routes("lb/edge", [ReturnRoute("dmz", CARD, 1020, (GATEWAY4, GATEWAY6), spans)], lambda name: name)

    def scenario() -> None:
        nftables.apply(ruleset(wanted))
        assert nftables.sets_of("lb/edge") == wanted.spans
        assert nftables.other_groups("lb/core") == {"lb/edge"}
        nftables.apply(removal("lb/edge"))
        assert nftables.sets_of("lb/edge") == {}
        with pytest.raises(NftablesFailed, match="syntax error"):
            nftables.apply("no such command")

    entered(node.netns, scenario)


def routing_of(group: str) -> ReturnRouting:
    """What the agent of *group* does, in this process."""
    made = ReturnRouting()
    route = ReturnRoute("dmz", CARD, 1020, (GATEWAY4, GATEWAY6), ADDRESSES)
    made.configure(*read_routes(group, [route], lambda name: name))
    return made


def test_one_agent_of_a_group_at_a_time(node: Host) -> None:
    """While another process has its sign an agent changes nothing, and says so."""

    def scenario() -> None:
        first, second = routing_of("lb/edge"), routing_of("lb/edge")
        asyncio.run(first.step())
        assert is_whole(node)
        asyncio.run(second.step())
        assert (second.pools, [each.code for each in second.problems]) == ((), [ProblemCode.RETURN_ROUTE_FAILED])
        asyncio.run(second.remove())
        assert is_whole(node)
        asyncio.run(first.remove())
        assert is_clean(node)
        second = routing_of("lb/edge")
        asyncio.run(second.step())
        assert (second.pools, second.problems) == (("dmz",), ())
        asyncio.run(second.remove())

    entered(node.netns, scenario)


def test_a_link_that_is_back_is_used_at_once(node: Host) -> None:
    """While the interface is down the route fails; with the next change of the network it is there again."""

    def scenario() -> None:
        routing = routing_of("lb/edge")
        asyncio.run(routing.step())
        node.exec("ip", "link", "set", CARD, "down")
        routing.wake()
        asyncio.run(routing.step())
        assert (routing.pools, {each.code for each in routing.problems}) == ((), {ProblemCode.RETURN_ROUTE_FAILED})
        node.exec("ip", "link", "set", CARD, "up")
        routing.wake()
        asyncio.run(routing.step())
        assert (routing.pools, routing.problems) == (("dmz",), ())
        assert is_whole(node)
        asyncio.run(routing.remove())
        assert is_clean(node)

    try:
        entered(node.netns, scenario)
    finally:
        node.exec("ip", "link", "set", CARD, "up")
        node.exec("ip", "-6", "address", "add", "2001:db8:20::11/64", "dev", CARD, "nodad", check=False)


def test_what_no_agent_wants_is_removed_by_another(node: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the agent of a group is gone for good, that of another group removes its way back, but no VIP's."""
    monkeypatch.setattr(returnrouting, "ORPHANED", 0.0)
    monkeypatch.setattr(returnrouting, "_SURVEY", 0.0)

    async def steps(*each: Callable[[], Awaitable[None]]) -> None:
        for step in each:
            await step()

    def scenario() -> None:
        edge, core = routing_of("lb/edge"), ReturnRouting()
        core.configure(*read_routes("lb/core", [], lambda name: name))
        asyncio.run(steps(edge.step, core.step, core.step))
        assert is_whole(node)
        assert edge._sign is not None
        edge._sign.release()  # as the kernel does when the process is killed
        node.exec("ip", "address", "add", f"{VIP4}/32", "dev", CARD)
        asyncio.run(steps(core.step, core.step))
        assert is_whole(node)  # its keepalived may still serve the VIP
        node.exec("ip", "address", "del", f"{VIP4}/32", "dev", CARD)
        asyncio.run(steps(core.step, core.step))
        assert is_clean(node)
        asyncio.run(core.remove())

    entered(node.netns, scenario)
