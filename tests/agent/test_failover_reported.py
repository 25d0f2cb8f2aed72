"""A fail-over of real daemons, as the controller's prober sees it and Services report it."""

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import aiohttp
import pytest

from hack.testbed import process
from kavip import names
from kavip.controller.prober import AgentProber
from kavip.reconcile.plan import Key, KeyKind, ProbeTarget
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import PATIENCE, Pod, enter, entered
from tests.agent.podstates import leader_and_backup, started
from tests.reconcile.group.settledgroup import WEB, serving
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster
from tests.support import build
from tests.vrrp.samples import STEADY

pytestmark = pytest.mark.netns

VIP = "192.0.2.130"


class ReportedConditions:
    """
    The messages of a Service's condition, in order, while the prober polls the agents on *pods*.

    *moves*: those of Events about its VIP.
    """

    def __init__(self, pods: list[Pod]) -> None:
        """Start without answers."""
        self.messages: list[str] = []
        self.moves: list[str] = []
        self._pods, self._began = pods, time.monotonic()
        self._simulation = SimulatedCluster(cluster(serving(WEB, VIP), build.group(**STEADY)))
        self._simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))

    def messages_during(self, *steps: Callable[[], object]) -> list[str]:
        """The messages while *steps* run in sequence, from the first known master on."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._run, steps).result()

    def _run(self, steps: tuple[Callable[[], object], ...]) -> list[str]:
        enter(self._pods[0].host.netns)
        asyncio.run(self._follow(steps))
        return self.messages

    async def _follow(self, steps: tuple[Callable[[], object], ...]) -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
            due = asyncio.Event()
            probe = AgentProber(session, changed=lambda _: due.set(), clock=self._clock)
            hosts = {each.host.name: each.host.ipv4 for each in self._pods}
            probe.set_target(GROUP, ProbeTarget(hosts, names.AGENT_PORT, self._pods[0].state()["configHash"]))
            watching = asyncio.create_task(probe.run())
            while not self._plan(probe, due):
                await asyncio.sleep(0.05)
            for step in steps:
                before = self.messages[-1]
                await asyncio.to_thread(step)
                while self._plan(probe, due) == before:
                    await asyncio.sleep(0.05)
                for _ in range(40):  # further changes would be seen now
                    self._plan(probe, due)
                    await asyncio.sleep(0.1)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _plan(self, probe: AgentProber, due: asyncio.Event) -> str:
        """Apply the plans; the last condition message."""
        self._simulation.now, self._simulation.agents = NOW + timedelta(seconds=self._clock()), probe.agents
        plan = self._simulation.group()
        self.moves += [each.message for each in plan.events if each.reason == names.Reason.MASTER_CHANGED]
        for key in (*plan.also, *plan.also_low_priority):
            self._simulation.service(key.name)
        due.clear()
        for each in self._simulation.snapshot.services[WEB].status.conditions or ():
            if each.type == names.ConditionType.ADVERTISED and self.messages[-1:] != [each.message]:
                self.messages.append(each.message)
        return self.messages[-1] if self.messages else ""

    def _clock(self) -> float:
        return time.monotonic() - self._began


def test_a_fail_over_and_a_fail_back_are_one_change_each(pod: MakePod) -> None:
    """There is no gap and no split brain, for any order of the answers; each is an Event with both nodes."""
    text = mounts.rendered({WEB: VIP}, **STEADY)
    pods = [started(pod(node), text) for node in ("n1", "n2")]
    owner, other = leader_and_backup(pods, WEB)
    reported = ReportedConditions([other, owner])
    messages = reported.messages_during(owner.kill_keepalived, owner.start_keepalived)
    holds = [f"node {each.host.name} holds {VIP}" for each in (owner, other, owner)]
    assert messages == holds
    there, back = ((owner, other), (other, owner))
    assert reported.moves == [
        f"{VIP} moved from node {old.host.name} to node {new.host.name}" for old, new in (there, back)
    ]


def test_a_keepalived_that_hangs_is_reported(pod: MakePod) -> None:
    """Its agent answers in time, so the node does not count as silent."""
    node = started(pod("n1"), mounts.rendered({WEB: VIP}, nodes=1, **STEADY))
    assert node.keepalived is not None
    daemons = [found for pid in process.children([node.keepalived.pid]) if (found := process.find(pid))]

    async def look() -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
            probe = AgentProber(session, changed=lambda _: None)
            probe.set_target(GROUP, ProbeTarget({"n1": node.host.ipv4}, names.AGENT_PORT, ""))
            watching = asyncio.create_task(probe.run())
            for is_running in (True, False):
                while not (found := probe.agents.states_of(GROUP).get("n1")) or found.running is not is_running:
                    await asyncio.sleep(0.05)
                for each in daemons:
                    each.signal(signal.SIGSTOP)
            assert not probe.agents.contacts_of(GROUP)["n1"].is_silent
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    try:
        entered(node.host.netns, lambda: asyncio.run(look()))
    finally:
        for each in daemons:
            each.signal(signal.SIGCONT)
