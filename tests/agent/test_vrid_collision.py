"""Two clusters use one VRID on one network: from the wire to the condition."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest

from hack.testbed import process
from hack.testbed.segment import Segment
from kavip import names
from kavip.controller.prober import AgentProber
from kavip.reconcile.observed import collisions
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.plan import Key, KeyKind, ProbeTarget
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import PATIENCE, Pod, enter
from tests.agent.podstates import master, started
from tests.reconcile.group.settledgroup import READY, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP
from tests.reconcile.simulatedcluster import pod as kubernetes_pod
from tests.support import build

pytestmark = pytest.mark.netns

MULTICAST = {"unicast_enabled": False, "advert_interval_milliseconds": 200}


def watched(pod: Pod, end: Callable[[], None]) -> tuple[AgentStates, AgentStates]:
    """What the prober observes of *pod* during a collision, and after its *end*."""

    async def look() -> tuple[AgentStates, AgentStates]:
        async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
            probe = AgentProber(session, changed=lambda _: None, interval=0.3)
            probe.set_target(GROUP, ProbeTarget({"n1": pod.host.ipv4}, names.AGENT_PORT, ""))
            watching = asyncio.create_task(probe.run())
            while not any(each.collisions for each in probe.agents.states_of(GROUP).values()):
                await asyncio.sleep(0.1)
            collided = probe.agents
            await asyncio.to_thread(end)
            while probe.agents.states_of(GROUP)["n1"].collisions:
                await asyncio.sleep(0.1)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            return collided, probe.agents

    def run() -> tuple[AgentStates, AgentStates]:
        enter(pod.host.netns)
        return asyncio.run(look())

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def test_a_collision_is_reported_and_so_is_its_end(pod: MakePod, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node counts the other's adverts, and Ready of the group names VRID and node."""
    monkeypatch.setattr(collisions, "LASTING", 1.0)
    monkeypatch.setattr(collisions, "FADE", 2.0)
    ours = started(pod("n1"), mounts.rendered({"shop/web": "192.0.2.130"}, nodes=1, **MULTICAST))
    foreign = started(pod("n2"), mounts.rendered({"other/cart": "192.0.2.131"}, **MULTICAST))
    master(ours, "shop/web")
    master(foreign, "other/cart")
    simulation = with_pods(
        settled(build.group(), serving("shop/web", "192.0.2.130"), nodes=1), kubernetes_pod("p1", "n1")
    )

    def errors() -> dict[str, int]:
        return dict(ours.instances()["shop/web"]["errors"])

    ours.wait_until("it hears of other addresses", lambda: errors().get("addressList", 0) > 0)
    assert "authentication" not in errors()
    simulation.agents, after = watched(ours, foreign.kill_keepalived)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    status, reason, message = condition(simulation, READY)
    assert (status, reason) == ("True", "VRIDCollision")
    assert "VRID 26 on eth0 is used by another router: n1 received adverts with other addresses" in message
    simulation.agents = after
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY)[1] == "Ready"


def test_a_router_that_sends_rarely_is_found(pod: MakePod, lan: Segment) -> None:
    """One advert a second is enough, beside five of the group; its priority does not matter."""
    ours = master(started(pod("n1"), mounts.rendered({"shop/web": "192.0.2.130"}, nodes=1, **MULTICAST)), "shop/web")
    other = lan.node("n2")
    vrid = ours.instances()["shop/web"]["routerID"]
    program = (sys.executable, "-m", "tests.support.vrrprouter", str(vrid), other.ipv4, "192.0.2.131")
    router = other.spawn(*program, log=other.home / "router.log")
    try:
        ours.wait_until("it counts on", lambda: ours.instances()["shop/web"]["errors"].get("addressList", 0) >= 5)
    finally:
        process.kill([router])
    assert ours.role("shop/web") == "MASTER"
