"""The prober of the agents, with real HTTP servers on loopback."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kavip.api.address import parse_address
from kavip.api.agent import AgentState, decode_state
from kavip.controller import prober as probing
from kavip.controller.probebudget import BURST, RATE, RATE_IN_ALL, ProbeBudget
from kavip.controller.prober import AgentProber
from kavip.names import Reason
from kavip.reconcile.observed import agent as reading
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import ExcludedInstance, NodeState
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.plan import ProbeTarget
from tests.support import build

PATIENCE = 60.0  # seconds, generous for a busy machine


def state(config_hash: str, *vips: str, vrrp: str = "BACKUP", refused: str = "") -> dict[str, Any]:
    """An agent's response to ``/state``."""
    return {
        "node": "n1",
        "group": "lb/edge",
        "configHash": config_hash,
        "wantedHash": config_hash,
        "refused": refused,
        "keepalived": {"version": "2.2.7", "running": True},
        "instances": [
            {
                "name": "shop/web",
                "routerID": 7,
                "family": 4,
                "state": vrrp,
                "virtualIPs": list(vips),
                "priority": 200,
                "lastTransition": "2026-01-01T00:00:00Z",
            }
        ],
    }


class Agent:
    """An agent on a loopback address, which sends *answer* after *delay* seconds."""

    def __init__(self, answer: Callable[[], web.StreamResponse], *, delay: float = 0.0) -> None:
        """Start without requests."""
        self.answer, self.asked, self.delay = answer, 0, delay

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer ``/state``."""
        self.asked += 1
        await asyncio.sleep(self.delay)
        return self.answer()


@asynccontextmanager
async def serving(agent: Agent, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Serve *agent*; yields the port."""
    app = web.Application()
    app.router.add_get("/state", agent.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def watching(
    interval: float = 3600.0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[AgentProber, "asyncio.Queue[str]"]]:
    """A running prober, and the groups that it reports."""
    told: asyncio.Queue[str] = asyncio.Queue()
    async with aiohttp.ClientSession() as session:
        probe = AgentProber(session, changed=told.put_nowait, interval=interval, clock=clock)
        task = asyncio.create_task(probe.run())
        try:
            yield probe, told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_answer_is_kept_and_reported_once() -> None:
    """The state of a node is known after the first answer. The same answer is not reported again."""
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130", vrrp="MASTER")))
    async with serving(agent) as port, watching(interval=0.01) as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            assert await told.get() == "lb/edge"
            while agent.asked < 5:
                await asyncio.sleep(0.01)
        seen = probe.agents.states_of("lb/edge")["n1"]
        assert (seen.config_hash, seen.runs, seen.masters) == (
            "h1",
            frozenset({parse_address("192.0.2.130")}),
            frozenset({parse_address("192.0.2.130")}),
        )
        assert told.empty()


@pytest.mark.slow
async def test_a_node_that_lags_is_polled_often_until_it_is_current() -> None:
    """With an hour between regular requests, a new configuration is still reported at once."""
    current = ["h1"]
    agent = Agent(lambda: web.json_response(state(current[0])))
    async with serving(agent) as port, watching() as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await told.get()
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h2"))
            while agent.asked < 3:
                await asyncio.sleep(0.01)
            current[0] = "h2"
            await told.get()
        assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h2"


async def test_silence_keeps_the_last_answer() -> None:
    """The last answer of a failing agent is kept, and the failure is not reported."""
    failing = [False]

    def answer() -> web.StreamResponse:
        return web.Response(status=503) if failing[0] else web.json_response(state("h1", "192.0.2.130"))

    agent = Agent(answer)
    async with serving(agent) as port, watching(interval=0.01) as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await told.get()
            failing[0], before = True, agent.asked
            while agent.asked < before + 3:
                await asyncio.sleep(0.01)
        assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h1"
        assert told.empty()


async def test_a_daemon_that_ends_is_given_time_to_start_again() -> None:
    """
    A node whose keepalived has just ended is master of nothing. Its VIPs are removed only if it does not start again.
    """
    now = [0.0]
    runs = state("h1", "192.0.2.130", vrrp="MASTER")
    gone = {**runs, "configHash": "", "keepalived": {"running": False}, "instances": []}
    current = [runs]
    agent = Agent(lambda: web.json_response(current[0]))
    async with serving(agent) as port, watching(interval=0.01, clock=lambda: now[0]) as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await told.get()
            current[0] = gone
            await told.get()
            ended = probe.agents.states_of("lb/edge")["n1"]
            now[0] += probing.RESTART
            await told.get()
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
    async with serving(agent) as port, watching(interval=0.01) as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            for silent in (False, True, False):
                failing[0] = silent
                await told.get()
                assert probe.agents.contacts_of("lb/edge")["n1"].is_silent is silent
            before = agent.asked
            while agent.asked < before + 3:
                await asyncio.sleep(0.01)
        assert told.empty()


@pytest.mark.slow
async def test_nodes_that_answer_do_not_wait_for_dead_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that reach their timeout have separate slots."""
    monkeypatch.setattr(probing, "SILENCE", 0.1)
    monkeypatch.setattr(probing, "_TIMEOUT", 0.2)
    monkeypatch.setattr(probing, "_IN_FLIGHT", 2)
    asked = [0]

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked[0] += 1
        await reader.read()
        writer.close()

    alive = Agent(lambda: web.json_response(state("h1")))
    async with serving(alive) as port, watching(interval=0.01) as (probe, _):
        dead = [await asyncio.start_server(hold, f"127.0.0.{n}", port) for n in range(2, 10)]
        hosts = {f"n{n}": f"127.0.0.{n}" for n in range(1, 10)}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while asked[0] < 20:  # by now they are silent
                await asyncio.sleep(0.01)
            before, first = alive.asked, asked[0]
            while asked[0] < first + 24:
                await asyncio.sleep(0.01)
        assert alive.asked - before > asked[0] - first
        for server in dead:
            server.close()


@pytest.mark.slow
async def test_a_fail_over_is_reported_as_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that follow one another closely are reported together."""
    monkeypatch.setattr(probing, "FOLD", 2.0)  # so that a stall between the two does not matter
    masters = ["127.0.0.1"]

    def answering(host: str, delay: float) -> Agent:
        said = {vrrp: state("h1", "192.0.2.130", vrrp=vrrp) for vrrp in ("MASTER", "BACKUP")}
        return Agent(lambda: web.json_response(said["MASTER" if host in masters else "BACKUP"]), delay=delay)

    first, second = answering("127.0.0.1", 0.0), answering("127.0.0.2", 0.1)
    async with serving(first) as port, serving(second, "127.0.0.2", port), watching() as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while len(probe.agents.states_of("lb/edge")) < 2:
                await told.get()
            while not told.empty():
                told.get_nowait()
            masters[:] = ["127.0.0.2"]
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1 "))
            await told.get()
        seen = {node: bool(each.masters) for node, each in probe.agents.states_of("lb/edge").items()}
        assert seen == {"n1": False, "n2": True}
        assert told.empty()


@pytest.mark.slow
async def test_two_masters_are_polled_often_until_it_is_certain() -> None:
    """With an hour between regular requests, an overlap of their claims is still found soon."""
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130", vrrp="MASTER")))
    async with serving(agent) as port, serving(agent, "127.0.0.2", port), watching() as (probe, _):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while True:
                mastership = Mastership.of(build.group(), ("n1", "n2"), probe.agents, "lb/edge")
                if mastership.master_of("shop/web").reason == Reason.SPLIT_BRAIN:
                    break
                await asyncio.sleep(0.05)
        assert mastership.master_of(parse_address("192.0.2.130")).nodes == ("n1", "n2")
        assert agent.asked < 40


async def test_an_unchanged_answer_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes send the same answer all day."""
    read: list[bytes] = []

    def reading(body: bytes) -> AgentState:
        read.append(body)
        return decode_state(body)

    monkeypatch.setattr(probing, "decode_state", reading)
    agent = Agent(lambda: web.json_response(state("h1", "192.0.2.130")))
    async with serving(agent) as port, watching(interval=0.01) as (probe, _):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while agent.asked < 5:
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
        json.dumps(state("h1", *["192.0.2.130"] * 70_000)).encode(),
    ],
    ids=(
        *("empty", "list", "cut", "wrong type", "another group", "no text", "too long", "deep", "too many instances"),
        *("state too long", "name too long", "no VRID", "too many VIPs"),
    ),
)
async def test_an_invalid_answer_counts_as_silence(body: bytes) -> None:
    """Garbage, an endless answer, expensive JSON and an agent of another group change nothing."""
    agent = Agent(lambda: web.Response(body=body))
    async with serving(agent) as port, watching(interval=0.01) as (probe, told):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            while agent.asked < 3:
                await asyncio.sleep(0.01)
        assert not probe.agents.states_of("lb/edge")
        assert told.empty()


async def test_an_unexpected_error_at_one_node_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception ends the request to one node, not the term."""

    def stumbling(body: bytes) -> AgentState:
        if b"trip" in body:
            raise RuntimeError("unexpected")
        return decode_state(body)

    monkeypatch.setattr(probing, "decode_state", stumbling)
    liar, honest = Agent(lambda: web.Response(body=b"trip")), Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(liar) as port,
        serving(honest, "127.0.0.2", port),
        watching(interval=0.01) as (probe, told),
    ):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            assert await told.get() == "lb/edge"
            while min(liar.asked, honest.asked) < 3:
                await asyncio.sleep(0.01)
        assert list(probe.agents.states_of("lb/edge")) == ["n2"]


async def test_a_node_that_leaves_is_forgotten() -> None:
    """Answers of nodes that are no longer in the group are removed."""
    agent = Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(agent) as port,
        serving(agent, "127.0.0.2", port),
        watching() as (probe, told),
    ):
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1", "n2": "127.0.0.2"}, port, "h1"))
        async with asyncio.timeout(PATIENCE):
            await told.get()
            while len(probe.agents.states_of("lb/edge")) < 2:
                await told.get()
        assert sorted(probe.agents.states_of("lb/edge")) == ["n1", "n2"]
        probe.set_target("lb/edge", ProbeTarget({"n2": "127.0.0.2"}, port, "h1"))
        assert sorted(probe.agents.states_of("lb/edge")) == ["n2"]
        probe.set_target("lb/edge", None)
        assert not probe.agents.states


async def test_a_target_set_before_the_start_is_polled() -> None:
    """The worker may set a target before the prober runs."""
    agent = Agent(lambda: web.json_response(state("h1")))
    told: asyncio.Queue[str] = asyncio.Queue()
    async with serving(agent) as port, aiohttp.ClientSession() as session:
        probe = AgentProber(session, changed=told.put_nowait)
        probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1"))
        task = asyncio.create_task(probe.run())
        async with asyncio.timeout(PATIENCE):
            await told.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_refusal_becomes_one_short_line() -> None:
    """Agents' messages go into conditions, so line breaks are removed and the length is limited."""
    body = json.dumps(state("h1", refused="line 1\n  line 2 " + "x" * 500)).encode()
    seen = node_state(decode_state(body))
    assert seen.refused.startswith("line 1 line 2 xxx")
    assert len(seen.refused) == 200


def test_excluded_instances_are_read() -> None:
    """They have names and a short reason. An older agent reports none."""
    told = {"name": "shop/web", "reason": "line 3\nof it", "by": "keepalived", "kept": True}
    body = state("h1") | {"leftOut": [told | {"virtualIPs": ["192.0.2.130", "nonsense"]}]}
    (seen,) = node_state(decode_state(json.dumps(body).encode())).excluded
    assert seen == ExcludedInstance(
        name="shop/web",
        reason="line 3 of it",
        by_keepalived=True,
        kept=True,
        virtual_ips=frozenset({parse_address("192.0.2.130")}),
    )
    assert node_state(decode_state(json.dumps(state("h1")).encode())).excluded == ()


def test_malformed_addresses_are_skipped() -> None:
    """A malformed VIP affects no other."""
    body = json.dumps(state("h1", "192.0.2.130", "nonsense")).encode()
    assert node_state(decode_state(body)).runs == frozenset({parse_address("192.0.2.130")})
    assert NodeState() != node_state(decode_state(body))


# --- answers that are to cost much ------------------------------------------------------------------------------------
WANTED = {"192.0.2.130": parse_address("192.0.2.130")}


def lie(number: int) -> web.Response:
    """An answer of 1.5 MiB that is never the same: 60,000 VIPs that the group does not have, and one that it has."""
    vips = [f"10.{number % 256}.{n >> 8}.{n & 255}" + " " * 10 for n in range(60_000)]
    return web.Response(body=json.dumps(state("h1", *vips, "192.0.2.130", vrrp="MASTER")).encode())


def test_only_wanted_vips_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60,001 VIPs one is wanted: the others are neither parsed nor kept."""
    parsed: list[str] = []
    monkeypatch.setattr(reading, "read_address", parsed.append)
    body = lie(7).body
    assert isinstance(body, bytes)
    assert len(body) > 1.4 * 2**20
    seen = node_state(decode_state(body), wanted=WANTED)
    assert (seen.runs, seen.masters) == (frozenset(WANTED.values()), frozenset(WANTED.values()))
    assert [each.virtual_ips for each in seen.instances] == [1]
    assert parsed == []


async def test_a_large_answer_is_decoded_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one thread for all nodes; a small answer is not worth the hop."""
    threads: list[tuple[bool, str]] = []

    def reading(body: bytes) -> AgentState:
        threads.append((len(body) > 2**20, threading.current_thread().name))
        return decode_state(body)

    monkeypatch.setattr(probing, "decode_state", reading)
    liar, honest = Agent(lambda: lie(liar.asked)), Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(liar) as port,
        serving(liar, "127.0.0.3", port),
        serving(honest, "127.0.0.2", port),
        watching(interval=0.01) as (probe, _),
    ):
        hosts = {f"n{number}": f"127.0.0.{number}" for number in (1, 2, 3)}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1", vips=WANTED))
        async with asyncio.timeout(PATIENCE):
            while len(probe.agents.states_of("lb/edge")) < 3:
                await asyncio.sleep(0.01)
    assert {name for is_large, name in threads if is_large} == {"decode agent state_0"}
    assert {name for is_large, name in threads if not is_large} == {threading.main_thread().name}


async def test_a_node_whose_answers_are_dear_is_asked_less_often() -> None:
    """After a burst of new answers it is asked no more until time has paid for them; others go on."""
    at = 0.0
    liar, honest = Agent(lambda: lie(liar.asked)), Agent(lambda: web.json_response(state(f"h{honest.asked}")))
    async with (
        serving(liar) as port,
        serving(honest, "127.0.0.2", port),
        watching(interval=0.01, clock=lambda: at) as (probe, _),
    ):
        hosts = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1", vips=WANTED))
        async with asyncio.timeout(PATIENCE):
            while honest.asked < 50:
                await asyncio.sleep(0.01)
    size = len(lie(1).body)  # type: ignore[arg-type]
    assert liar.asked <= BURST // size + 1


def test_the_budget_of_a_node_is_its_share() -> None:
    """Bytes, not seconds, are counted: a rate for each node, and one for all of them."""
    budget = ProbeBudget(at=0.0)
    budget.spend(BURST, at=0.0, nodes=1)
    assert budget.delay(at=0.0, nodes=1) == 0.0
    budget.spend(RATE, at=0.0, nodes=1)
    assert budget.delay(at=0.0, nodes=1) == 1.0
    assert budget.delay(at=0.0, nodes=RATE_IN_ALL // RATE * 4) == 4.0
    assert budget.delay(at=1.0, nodes=1) == 0.0
    assert budget.delay(at=1e9, nodes=1) == 0.0
    assert budget.left == BURST


async def test_a_vip_that_becomes_wanted_is_read_from_an_equal_answer() -> None:
    """The nodes may run it already: then their answers do not change."""
    agent, more = Agent(lambda: web.json_response(state("h1", "192.0.2.130", "192.0.2.131"))), "192.0.2.131"
    async with serving(agent) as port, watching(interval=0.01) as (probe, _):
        for wanted in (WANTED, {**WANTED, more: parse_address(more)}):
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1", vips=wanted))
            async with asyncio.timeout(PATIENCE):
                while True:
                    seen = probe.agents.states_of("lb/edge").get("n1")
                    if seen and seen.runs == frozenset(wanted.values()):
                        break
                    await asyncio.sleep(0.01)
