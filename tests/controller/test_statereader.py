"""Of a large group the lists of VIPs are read from a few nodes, and each state is as if its node had sent them."""

import asyncio
import dataclasses
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest

from kavip import names
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest
from kavip.agent.report.state import encode
from kavip.api.address import Address, parse_address
from kavip.api.agent import LONG_LIST, VIPS_BY_HASH, AgentState, InstanceReport, KeepalivedReport
from kavip.controller import statereader
from kavip.controller.viplists import lists_in
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.plan import ProbeTarget
from tests.controller.fakeagent import PATIENCE, watching

GROUP = "lb/edge"
NETWORK = f"127.{1 + os.getpid() // 256 % 250}.{os.getpid() % 256}"
"""Of this process alone: agents have one port on all nodes."""
HOSTS = {f"n{number}": f"{NETWORK}.{number}" for number in range(1, 17)}
VIPS = tuple(f"10.0.{number // 200}.{number % 200 + 1}" for number in range(5 * LONG_LIST))
MORE = "10.0.9.9"


def report(*vips: str, config_hash: str = "h1", master: str = "") -> AgentState:
    """The state of an agent with four instances."""
    instances = (
        InstanceReport(
            name=f"group/{number}",
            router_id=number + 1,
            state="MASTER" if f"group/{number}" == master else "BACKUP",
            virtual_ips=vips[number::4],
        )
        for number in range(4)
    )
    running = KeepalivedReport(running=True)
    return AgentState(group=GROUP, config_hash=config_hash, keepalived=running, instances=tuple(instances))


class Agents:
    """Agents of all nodes, with the server of real ones; *whole* counts the answers with lists, by node."""

    def __init__(self, state: AgentState) -> None:
        """All have the same *state*."""
        self.states = dict.fromkeys(HOSTS, state)
        self.whole, self.answers = Counter[str](), Counter[str]()
        self.honours_preferences = True

    async def page(self, node: str, request: PageRequest) -> PageContent:
        """``/state`` of *node*."""
        by_hash = VIPS_BY_HASH in request.preferences and self.honours_preferences
        body = encode(self.states[node], by_hash=by_hash)
        self.answers[node] += 1
        self.whole[node] += VIPS[0].encode() in body
        return PageContent(body, JSON)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve all of them on one port."""
        async with AsyncExitStack() as stack:
            port = 0
            for node, host in HOSTS.items():

                def page(request: PageRequest, node: str = node) -> "asyncio.Future[PageContent]":
                    return asyncio.ensure_future(self.page(node, request))

                port = await stack.enter_async_context(AgentServer({names.STATE_PATH: page}).listening(host, port))
            yield port


def target(port: int, *vips: str, config_hash: str = "h1") -> ProbeTarget:
    """All nodes, and the VIPs to read."""
    return ProbeTarget(HOSTS, port, config_hash, vips=(wanted(*vips),))


def wanted(*vips: str) -> dict[str, Address]:
    """*vips* by text."""
    return {text: parse_address(text) for text in vips}


async def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def run(states: Mapping[str, NodeState], *vips: str) -> bool:
    """Whether all nodes run exactly *vips*."""
    return len(states) == len(HOSTS) and all(each.runs == set(wanted(*vips).values()) for each in states.values())


async def test_lists_are_read_from_a_few_nodes() -> None:
    """At the start, and after a change; the states are those of whole answers."""
    agents = Agents(report(*VIPS, master="group/2"))
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, target(port, *VIPS))
        await until(lambda: run(probe.agents.states_of(GROUP), *VIPS))
        assert 1 <= agents.whole.total() <= statereader._AT_ONCE
        (masters,) = {each.masters for each in probe.agents.states_of(GROUP).values()}
        assert masters == set(wanted(*VIPS[2::4]).values())
        assert {each.instances[0].virtual_ips for each in probe.agents.states_of(GROUP).values()} == {80}

        agents.whole.clear()
        probe.set_target(GROUP, target(port, *VIPS, MORE, config_hash="h2"))
        agents.states = dict.fromkeys(HOSTS, report(*VIPS, MORE, config_hash="h2"))
        await until(lambda: run(probe.agents.states_of(GROUP), *VIPS, MORE))
        assert 1 <= agents.whole.total() <= statereader._AT_ONCE

        agents.whole.clear()
        probe.set_target(GROUP, target(port, *VIPS[1:], MORE, config_hash="h2"))
        await until(lambda: run(probe.agents.states_of(GROUP), *VIPS[1:], MORE))
        assert agents.whole.total() == 0  # what is wanted has changed, and not what runs


async def test_agents_that_send_lists_are_read() -> None:
    """Those of 0.1.0 know no preference."""
    agents = Agents(report(*VIPS))
    agents.honours_preferences = False
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, target(port, *VIPS))
        await until(lambda: run(probe.agents.states_of(GROUP), *VIPS))


async def test_few_vips_are_sent_as_they_are() -> None:
    """One request is enough then."""
    agents = Agents(report(*VIPS[:8]))
    async with agents.serving() as port, watching() as (probe, _):
        probe.set_target(GROUP, target(port, *VIPS))
        await until(lambda: run(probe.agents.states_of(GROUP), *VIPS[:8]))
        assert set(agents.answers.values()) == {1}


async def test_a_group_that_comes_back_is_read_anew() -> None:
    """A probe that is under way when it goes reads the VIPs that were wanted before."""
    agents, asked = Agents(report(*VIPS)), next(iter(HOSTS))
    held, go = asyncio.Event(), asyncio.Event()

    async def page(node: str, request: PageRequest) -> PageContent:
        if not go.is_set() and VIPS_BY_HASH not in request.preferences:
            held.set()
            await go.wait()
        return await Agents.page(agents, node, request)

    agents.page = page  # type: ignore[method-assign]
    hosts = {asked: HOSTS[asked]}
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, dataclasses.replace(target(port, *VIPS[:200]), hosts=hosts))
        await asyncio.wait_for(held.wait(), PATIENCE)
        probe.set_target(GROUP, None)
        probe.set_target(GROUP, dataclasses.replace(target(port, *VIPS), hosts=hosts))
        go.set()
        await until(lambda: len(getattr(probe.agents.states_of(GROUP).get(asked), "runs", ())) == len(VIPS))


async def test_nodes_whose_lists_never_arrive_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment the others do not wait for them, and next time they have slots of their own."""
    monkeypatch.setattr(statereader, "_AT_MOST", len(HOSTS))
    agents, hanging = Agents(report(*VIPS)), set(list(HOSTS)[: 2 * statereader._AT_ONCE])
    never = asyncio.Event()

    async def page(node: str, request: PageRequest) -> PageContent:
        if node in hanging and VIPS_BY_HASH not in request.preferences:
            await never.wait()
        return await Agents.page(agents, node, request)

    agents.page = page  # type: ignore[method-assign]
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, target(port, *VIPS))
        vips = set(wanted(*VIPS).values())

        def has(node: str) -> bool:
            state = probe.agents.states_of(GROUP).get(node)
            return state is not None and state.runs == vips

        await until(lambda: all(map(has, HOSTS)))  # also they, whose hashes are known then
        assert not any(agents.whole[node] for node in hanging)


@pytest.mark.parametrize("lie", ["unknown hashes", "other VIPs", "errors"])
async def test_a_lying_node_holds_up_no_other(lie: str) -> None:
    """It is read whole each time; of what it sends nothing is kept, and the others are read by hash."""
    agents = Agents(report(*VIPS))
    liar, turn = next(iter(HOSTS)), iter(range(1, 1_000_000))

    async def page(node: str, request: PageRequest) -> PageContent:
        if node != liar:
            return await Agents.page(agents, node, request)
        number = next(turn)
        if VIPS_BY_HASH in request.preferences:
            found = report(config_hash=f"h{number}")
            made_up = [
                msgspec.structs.replace(each, virtual_ips_hash=f"{number:028x}{at:04x}")
                for at, each in enumerate(found.instances)
            ]
            return PageContent(encode(msgspec.structs.replace(found, instances=tuple(made_up))), JSON)
        if lie == "errors":
            return PageContent(b"[]", JSON)
        others = tuple(f"192.0.2.{each}" for each in range(200))
        return PageContent(encode(report(*VIPS) if lie == "unknown hashes" else report(*others)), JSON)

    agents.page = page  # type: ignore[method-assign]
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, target(port, *VIPS))
        await until(lambda: next(turn) > 20)
        vips = set(wanted(*VIPS).values())
        await until(lambda: sum(each.runs == vips for each in probe.agents.states_of(GROUP).values()) >= len(HOSTS) - 1)
        assert agents.whole.total() <= statereader._AT_ONCE
        known = probe._reader._groups[GROUP].lists._texts
        assert frozenset[str]().union(*known.values()) == set(VIPS)
        if lie == "other VIPs":
            assert probe.agents.states_of(GROUP)[liar].runs == frozenset()


async def test_a_state_that_changes_between_two_requests_is_read_again() -> None:
    """The entity tag is that of the first one, so it would count as known if the state were as before again."""
    agents, asked = Agents(report(*VIPS)), next(iter(HOSTS))

    async def page(node: str, request: PageRequest) -> PageContent:
        agents.states[node] = report(*VIPS, master="" if VIPS_BY_HASH in request.preferences else "group/0")
        return await Agents.page(agents, node, request)

    agents.page = page  # type: ignore[method-assign]
    async with agents.serving() as port, watching(0.05) as (probe, _):
        probe.set_target(GROUP, dataclasses.replace(target(port, *VIPS), hosts={asked: HOSTS[asked]}))
        await until(lambda: asked in probe.agents.states_of(GROUP) and not probe.agents.states_of(GROUP)[asked].masters)
        assert agents.whole[asked] == 1


async def test_nodes_that_come_and_go_leave_nothing() -> None:
    """Their hashes are forgotten although no list is new."""
    body = encode(report(*VIPS), by_hash=True)
    held = statereader._GroupVIPs()
    held.want((wanted(*VIPS),))
    held.learn("n0", lists_in(report(*VIPS)), HOSTS)
    async with aiohttp.ClientSession() as session:
        reader = statereader.StateReader(session)
        reader._groups[GROUP] = held
        for number in range(100):
            node = f"n{number}"
            known = ProbeTarget({node: "127.0.0.1"}, 1, "h1", vips=(wanted(*VIPS),))
            answer = await reader.read(
                body, GROUP, node, target=known, url="", asked=datetime.now(UTC), spend=lambda _: None
            )
            assert answer.state.runs == set(wanted(*VIPS).values())
    assert len(held.used) <= 2
