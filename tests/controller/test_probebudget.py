"""What the answers of a lying node cost: only wanted VIPs are read, large answers off the loop, within a budget."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from kavip.api.address import parse_address
from kavip.api.agent import AgentState, decode_state
from kavip.controller import statereader
from kavip.controller.probebudget import BURST, RATE, RATE_IN_ALL, ProbeBudget
from kavip.reconcile.observed import agent as reading
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.plan import ProbeTarget
from tests.controller.fakeagent import PATIENCE, Agent, serving, state, watching

WANTED = {"192.0.2.130": parse_address("192.0.2.130")}


def huge_state(number: int) -> web.Response:
    """An answer of 1.5 MiB that is never the same: 60,000 VIPs that the group does not have, and one that it has."""
    vips = [f"10.{number % 256}.{n >> 8}.{n & 255}" + " " * 10 for n in range(60_000)]
    return web.Response(body=json.dumps(state("h1", *vips, "192.0.2.130", vrrp="MASTER")).encode())


def test_only_wanted_vips_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60,001 VIPs one is wanted: the others are neither parsed nor kept."""
    parsed: list[str] = []
    monkeypatch.setattr(reading, "read_address", parsed.append)
    body = huge_state(7).body
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

    monkeypatch.setattr(statereader, "decode_state", reading)
    flooding, usual = Agent(lambda: huge_state(flooding.requests)), Agent(lambda: web.json_response(state("h1")))
    async with (
        serving(flooding) as port,
        serving(flooding, "127.0.0.3", port),
        serving(usual, "127.0.0.2", port),
        watching(interval=0.01) as (probe, _),
    ):
        hosts = {f"n{number}": f"127.0.0.{number}" for number in (1, 2, 3)}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1", vips=(WANTED,)))
        async with asyncio.timeout(PATIENCE):
            while len(probe.agents.states_of("lb/edge")) < 3:
                await asyncio.sleep(0.01)
    assert {name for is_large, name in threads if is_large} == {"decode agent state_0"}
    assert {name for is_large, name in threads if not is_large} == {threading.main_thread().name}


async def test_a_node_with_expensive_answers_is_probed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst of new answers it is not probed until its budget is refilled; other nodes still are."""
    at, large = 0.0, 0

    def counted(body: bytes) -> AgentState:
        nonlocal large
        large += len(body) > 2**20
        return decode_state(body)

    monkeypatch.setattr(statereader, "decode_state", counted)
    flooding, usual = (
        Agent(lambda: huge_state(flooding.requests)),
        Agent(lambda: web.json_response(state(f"h{usual.requests}"))),
    )
    burst = BURST // len(huge_state(1).body) + 1  # type: ignore[arg-type]  # bytes here
    async with (
        serving(flooding) as port,
        serving(usual, "127.0.0.2", port),
        watching(interval=0.01, clock=lambda: at) as (probe, _),
    ):
        hosts = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
        probe.set_target("lb/edge", ProbeTarget(hosts, port, "h1", vips=(WANTED,)))
        async with asyncio.timeout(PATIENCE):
            while large < burst:
                await asyncio.sleep(0.01)
            requests, more = flooding.requests, usual.requests + 50
            while usual.requests < more:
                await asyncio.sleep(0.01)
    assert (large, flooding.requests) == (burst, requests)


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
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, port, "h1", vips=(wanted,)))
            async with asyncio.timeout(PATIENCE):
                while True:
                    seen = probe.agents.states_of("lb/edge").get("n1")
                    if seen and seen.runs == frozenset(wanted.values()):
                        break
                    await asyncio.sleep(0.01)
