"""The prober of the agents, with real HTTP servers on loopback."""

import asyncio
import json
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web

from kavip.api.address import parse_address
from kavip.api.agent import AgentState, decode_state
from kavip.controller import agentclient, statereader
from kavip.controller import prober as probing
from kavip.controller.prober import AgentProber
from kavip.names import Reason
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.plan import ProbeTarget
from tests.controller.fakeagent import PATIENCE, Agent, serving, state, watching
from tests.support import build
from tests.support.streamserver import stream_server


async def test_an_answer_is_kept_and_reported_once() -> None:
    """The state of a node is known after the first answer. The same answer is not reported again."""
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130", vrrp="MASTER")))
    async with serving(agent) as port, watching(interval=0.01) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            assert await changed_groups.get() == "lb/edge"
            while agent.requests < 5:
                await asyncio.sleep(0.01)
        seen = probe.agents.states_of("lb/edge")["n1"]
        assert (seen.config_hash, seen.runs, seen.masters) == (
            "h1",
            frozenset({parse_address("192.0.2.130")}),
            frozenset({parse_address("192.0.2.130")}),
        )
        assert changed_groups.empty()


@pytest.mark.slow
async def test_a_node_that_lags_is_polled_often_until_it_is_current() -> None:
    """With an hour between regular requests, a new configuration is still reported at once."""
    current = ["h1"]
    agent = Agent(lambda: web.json_response(state(current[0])))
    async with serving(agent) as port, watching() as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h2"))
            while agent.requests < 3:
                await asyncio.sleep(0.01)
            current[0] = "h2"
            await changed_groups.get()
        assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h2"


async def test_silence_keeps_the_last_answer() -> None:
    """The last answer of a failing agent is kept, and the failure is not reported."""
    failing = [False]

    def answer() -> web.StreamResponse:
        return web.Response(status=503) if failing[0] else web.json_response(state("h1", "192.0.2.130"))

    agent = Agent(answer)
    async with serving(agent) as port, watching(interval=0.01) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
            failing[0], before = True, agent.requests
            while agent.requests < before + 3:
                await asyncio.sleep(0.01)
        assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h1"
        assert changed_groups.empty()


async def test_a_daemon_that_ends_is_given_time_to_start_again() -> None:
    """
    A node whose keepalived has just ended is master of nothing. Its VIPs are removed only if it does not start again.
    """
    now = [0.0]
    runs = state("h1", "192.0.2.130", vrrp="MASTER")
    gone = {**runs, "configHash": "", "keepalived": {"running": False}, "instances": []}
    current = [runs]
    agent = Agent(lambda: web.json_response(current[0]))
    async with serving(agent) as port, watching(interval=0.01, clock=lambda: now[0]) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
            current[0] = gone
            await changed_groups.get()
            ended = probe.agents.states_of("lb/edge")["n1"]
            now[0] += probing.RESTART
            await changed_groups.get()
        lasting = probe.agents.states_of("lb/edge")["n1"]
    assert (ended.config_hash, ended.runs) == ("h1", frozenset({parse_address("192.0.2.130")}))
    assert not ended.masters
    assert (lasting.config_hash, lasting.runs) == ("", frozenset())


async def test_long_silence_and_its_end_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without answers for a while counts as silent, until it sends an answer, even the same one."""
    monkeypatch.setattr(probing, "SILENCE", 0.1)
    failing = [False]

    def answer() -> web.StreamResponse:
        return web.Response(status=503) if failing[0] else web.json_response(state("h1", "192.0.2.130"))

    agent = Agent(answer)
    async with serving(agent) as port, watching(interval=0.01) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            for silent in (False, True, False):
                failing[0] = silent
                await changed_groups.get()
                assert probe.agents.contacts_of("lb/edge")["n1"].is_silent is silent
            before = agent.requests
            while agent.requests < before + 3:
                await asyncio.sleep(0.01)
        assert changed_groups.empty()


@pytest.mark.slow
async def test_nodes_that_answer_do_not_wait_for_dead_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to silent nodes have separate slots: while those hang in all of these, another node is still polled."""
    monkeypatch.setattr(probing, "SILENCE", 0.1)
    monkeypatch.setattr(agentclient, "_TIMEOUT", 600.0)
    monkeypatch.setattr(probing, "_IN_FLIGHT", 2)
    hangs, held = asyncio.Event(), [0]

    async def fail_or_hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        if hangs.is_set():
            held[0] += 1
            await reader.read()  # until the client leaves

    alive = Agent(lambda: web.json_response(state("h1")))
    async with AsyncExitStack() as stack, serving(alive) as port, watching(interval=0.01) as (probe, _):
        for number in range(2, 10):
            await stack.enter_async_context(stream_server(fail_or_hang, host=f"127.0.0.{number}", port=port))
        hosts = {f"n{n}": f"127.0.0.{n}" for n in range(1, 10)}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1"))

        def silent() -> set[str]:
            return {node for (_, node), each in probe._probes.items() if each.is_silent}

        async with asyncio.timeout(PATIENCE):
            while silent() != hosts.keys() - {"n1"}:
                await asyncio.sleep(0.01)
            hangs.set()
            while held[0] < 2:
                await asyncio.sleep(0.01)
            before = alive.requests
            while alive.requests < before + 24:
                await asyncio.sleep(0.01)
        assert held[0] == 2


@pytest.mark.slow
async def test_a_fail_over_is_reported_as_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that follow one another closely are reported together."""
    monkeypatch.setattr(probing, "FOLD", 2.0)  # so that a stall between the two does not matter
    masters = ["127.0.0.1"]

    def answering(host: str, delay: float) -> Agent:
        documents = {vrrp: state("h1", "192.0.2.130", vrrp=vrrp) for vrrp in ("MASTER", "BACKUP")}
        return Agent(lambda: web.json_response(documents["MASTER" if host in masters else "BACKUP"]), delay=delay)

    first, second = answering("127.0.0.1", 0.0), answering("127.0.0.2", 0.1)
    async with serving(first) as port, serving(second, "127.0.0.2", port), watching() as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while len(probe.agents.states_of("lb/edge")) < 2:
                await changed_groups.get()
            while not changed_groups.empty():
                changed_groups.get_nowait()
            masters[:] = ["127.0.0.2"]
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1 "))
            await changed_groups.get()
        seen = {node: bool(each.masters) for node, each in probe.agents.states_of("lb/edge").items()}
        assert seen == {"n1": False, "n2": True}
        assert changed_groups.empty()


@pytest.mark.slow
async def test_two_masters_are_polled_often_until_it_is_certain() -> None:
    """With an hour between regular requests, an overlap of their claims is still found soon."""
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130", vrrp="MASTER")))
    async with serving(agent) as port, serving(agent, "127.0.0.2", port), watching() as (probe, _):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while True:
                mastership = Mastership.of(build.group(), ("n1", "n2"), probe.agents, key="lb/edge")
                if mastership.master_of("shop/web").reason == Reason.SPLIT_BRAIN:
                    break
                await asyncio.sleep(0.05)
        assert mastership.master_of(parse_address("192.0.2.130")).nodes == ("n1", "n2")
        assert agent.requests < 40


async def test_an_unchanged_answer_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes send the same answer all day."""
    read: list[bytes] = []

    def reading(body: bytes) -> AgentState:
        read.append(body)
        return decode_state(body)

    monkeypatch.setattr(statereader, "decode_state", reading)
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130")))
    async with serving(agent) as port, watching(interval=0.01) as (probe, _):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while agent.requests < 5:
                await asyncio.sleep(0.01)
        assert len(read) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"group": 7}',
        b'{"group": "lb/other"}',
        b"\xff\xfe",
        b'{"group": "' + b"x" * (3 * 2**20),
        b'{"group": "lb/edge", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        json.dumps({**state("h1"), "instances": [{"name": "x"}] * 1025}).encode(),
        json.dumps({**state("h1"), "instances": [{"name": "x", "state": "x" * 33}]}).encode(),
        json.dumps({**state("h1"), "instances": [{"name": "x" * 401}]}).encode(),
        json.dumps({**state("h1"), "instances": [{"name": "x", "routerID": 256}]}).encode(),
        json.dumps(state("h1", *["10.0.0.1"] * 140_000)).encode(),
    ],
    ids=(
        *("empty", "list", "cut", "wrong type", "another group", "no text", "too long", "deep", "too many instances"),
        *("state too long", "name too long", "no VRID", "too many VIPs"),
    ),
)
async def test_an_invalid_answer_counts_as_silence(body: bytes) -> None:
    """Garbage, an endless answer, expensive JSON and an agent of another group change nothing."""
    agent = Agent(lambda: web.Response(body=body))
    async with serving(agent) as port, watching(interval=0.01) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while agent.requests < 3:
                await asyncio.sleep(0.01)
        assert not probe.agents.states_of("lb/edge")
        assert changed_groups.empty()


async def test_an_unexpected_error_at_one_node_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception ends the request to one node, not the term."""

    def stumbling(body: bytes) -> AgentState:
        if b"trip" in body:
            raise RuntimeError("unexpected")
        return decode_state(body)

    monkeypatch.setattr(statereader, "decode_state", stumbling)
    liar, honest = Agent(lambda: web.Response(body=b"trip")), Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(liar) as port,
        serving(honest, "127.0.0.2", port),
        watching(interval=0.01) as (probe, changed_groups),
    ):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            assert await changed_groups.get() == "lb/edge"
            while min(liar.requests, honest.requests) < 3:
                await asyncio.sleep(0.01)
        assert list(probe.agents.states_of("lb/edge")) == ["n2"]


async def test_a_node_that_leaves_is_forgotten() -> None:
    """Answers of nodes that are no longer in the group are removed."""
    agent = Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(agent) as port,
        serving(agent, "127.0.0.2", port),
        watching() as (probe, changed_groups),
    ):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
            while len(probe.agents.states_of("lb/edge")) < 2:
                await changed_groups.get()
        assert sorted(probe.agents.states_of("lb/edge")) == ["n1", "n2"]
        probe.set_target("lb/edge", ProbeTarget({"n2": "127.0.0.2"}, port, "h1"))
        assert sorted(probe.agents.states_of("lb/edge")) == ["n2"]
        probe.set_target("lb/edge", None)
        assert not probe.agents.states


async def test_a_target_set_before_the_start_is_polled() -> None:
    """The worker may set a target before the prober runs."""
    agent = Agent(lambda: web.json_response(state("h1")))
    changed_groups: asyncio.Queue[str] = asyncio.Queue()
    async with serving(agent) as port, aiohttp.ClientSession() as session:
        probe = AgentProber(session, changed=changed_groups.put_nowait)
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        task = asyncio.create_task(probe.run())
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_answer_of_another_node_counts_as_silence() -> None:
    """A machine was installed again as n2, and the Node n1 that it was before still has its address."""
    agent = Agent(lambda: web.json_response({**state("h1"), "node": "n2"}))
    async with serving(agent) as port, watching(interval=0.01) as (probe, changed_groups):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await changed_groups.get()
            while agent.requests < 10:
                await asyncio.sleep(0.01)
        assert list(probe.agents.states_of("lb/edge")) == ["n2"]
