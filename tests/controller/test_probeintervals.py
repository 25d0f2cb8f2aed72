"""Small clusters are asked every second; in large ones the leader sends few requests, and finds a fail-over in time."""

import asyncio
from functools import partial
from itertools import count

import pytest
from aiohttp import web

from kavip.controller import probeintervals
from kavip.controller.probeintervals import LONGEST, MOST_RATE, QUICK, RATE
from kavip.reconcile.observed import mastership
from kavip.reconcile.plan import ProbeTarget
from tests.controller.fakeagent import PATIENCE, Agent, serving, state, watching


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 1.0), (100, 1.0), (120, 1.2), (150, 1.5), (600, 1.5), (1_000, 2.5)])
def test_the_interval_grows_with_the_nodes(nodes: int, seconds: float) -> None:
    """From a hundred nodes on."""
    assert probeintervals.ordinary(1.0, nodes=nodes) == seconds
    assert nodes / seconds <= MOST_RATE


def test_a_longer_setting_counts() -> None:
    """However few requests that are."""
    assert probeintervals.ordinary(10.0, nodes=200) == 10.0


def test_few_awaited_nodes_are_asked_often() -> None:
    """As soon as a new configuration can be in a mount, also in a large cluster; less often as time goes by."""
    for nodes in (20, 1_000):
        assert probeintervals.awaited(1.0, nodes=nodes, waiting=20, times=1) == QUICK
    later = [probeintervals.awaited(1.0, nodes=20, waiting=20, times=times) for times in range(40)]
    assert later == sorted(later)
    assert later[-1] == 1.0


@pytest.mark.parametrize("waiting", [21, 50, 100, 200, 1_000])
def test_many_awaited_nodes_share_the_requests(waiting: int) -> None:
    """They are never asked less often than the others."""
    found = probeintervals.awaited(1.0, nodes=waiting, waiting=waiting, times=1)
    assert found == min(waiting / RATE, probeintervals.ordinary(1.0, nodes=waiting))


def test_a_fail_over_is_seen_before_it_is_a_fault() -> None:
    """Two answers of different nodes are at most so far apart."""
    assert LONGEST < mastership.SHORTEST


async def test_only_awaited_nodes_share_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that runs the wanted configuration is none of them, until another one is wanted."""
    told = asyncio.Event()
    shares: list[tuple[int, int]] = []

    def awaited(least: float, *, nodes: int, waiting: int, times: int) -> float:
        shares.append((nodes, waiting))
        told.set()
        return least

    monkeypatch.setattr(probeintervals, "awaited", awaited)
    new, old = (Agent(partial(web.json_response, state(found))) for found in ("h2", "h1"))
    hosts = {"n1": "127.0.0.1", "n2": "127.0.0.2"}

    async with serving(new) as port, serving(old, "127.0.0.2", port), watching(interval=0.01) as (probe, _):
        for wanted, waiting in (("h2", 1), ("h1", 1), ("h3", 2)):
            shares.clear()
            probe.set_target("lb/edge", ProbeTarget(hosts, port, wanted))
            async with asyncio.timeout(PATIENCE):
                while not shares or shares[-1] != (2, waiting):
                    told.clear()
                    await told.wait()


@pytest.mark.parametrize(("nodes", "seconds"), [(3, QUICK), (60, 0.6), (1_000, 2.5)])
def test_all_nodes_of_a_group_are_asked_at_once_no_oftener_than(nodes: int, seconds: float) -> None:
    """At most a hundred requests a second, or as many as without any change."""
    assert probeintervals.between_bursts(1.0, nodes=nodes) == seconds


async def test_nodes_that_lie_do_not_have_the_others_asked_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two becomes master or backup with each answer, which is a reason to ask the others, and so the other."""
    for name in ("ordinary", "awaited", "between_bursts"):
        monkeypatch.setattr(probeintervals, name, lambda *_, **__: 3600.0)
    flips = count()

    def lie() -> web.Response:
        return web.json_response(state("h1", "192.0.2.130", vrrp=("MASTER", "BACKUP")[next(flips) // 2 % 2]))

    liars = [Agent(lie), Agent(lie)]
    honest = Agent(partial(web.json_response, state("h1", "192.0.2.130", vrrp="BACKUP")))
    hosts = {f"n{number}": f"127.0.0.{number}" for number in (1, 2, 3)}
    async with (
        serving(liars[0]) as port,
        serving(liars[1], "127.0.0.2", port),
        serving(honest, "127.0.0.3", port),
        watching() as (probe, _),
    ):
        for config_hash in ("h1", "h2"):
            before = honest.requests
            probe.set_target("lb/edge", ProbeTarget(hosts, port, config_hash))
            async with asyncio.timeout(PATIENCE):
                while honest.requests == before:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        assert honest.requests <= 4
