"""After an upgrade that changes messages: one write for each object, behind all keys that assign or free an address."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from kavip import names
from kavip.api.service import Service
from kavip.caches import Caches
from kavip.kube.client import Client
from kavip.kube.workqueue import LOW_PRIORITY_CONCURRENCY, WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.running import running_instances
from tests.controller.apiserver import Prober, Server, leading
from tests.reconcile.group.settledgroup import with_pods
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster
from tests.support import build

pytestmark = pytest.mark.looptime

COUNT = 40
SECONDS = 0.1  # of a write
EDGE = Key(KeyKind.GROUP, GROUP)
KEYS = [f"shop/s{number:02}" for number in range(COUNT)]


def running(simulation: SimulatedCluster) -> AgentStates:
    """The answers of two agents that run the text of the group; n1 is master of all instances."""
    instances, states = running_instances(simulation.text()), {}
    where = {vip.address: name for name, run in instances.items() for vip in run.virtual_ips}
    for node, state in (("n1", MASTER), ("n2", BACKUP)):
        states[node] = NodeState(
            config_hash=simulation.snapshot.groups[GROUP].status.config_hash,
            runs=frozenset(where),
            masters=frozenset(where) if state == MASTER else frozenset(),
            instance_of=where,
            instances=tuple(InstanceState(name, 1, 4, state, 1, "t") for name in sorted(instances)),
        )
    contacts = {node: Contact(last=1e9, since=dict.fromkeys(instances, 0.0)) for node in states}
    return AgentStates({GROUP: states}, contacts={GROUP: contacts}, probed_from=NOW - timedelta(days=1))


def reworded(service: Service) -> Service:
    """*service* as an earlier version wrote it: the same reasons in other words."""
    stored = service.status.conditions or ()
    conditions = [msgspec.structs.replace(each, message=f"{each.message}, once") for each in stored]
    return msgspec.structs.replace(service, status=msgspec.structs.replace(service.status, conditions=conditions))


def upgraded() -> tuple[SimulatedCluster, Caches]:
    """A settled cluster with the messages of an earlier version, and the caches of the new one."""
    services = [build.service(key, group=GROUP) for key in KEYS]
    simulation = SimulatedCluster(cluster(*services, build.group(), build.pool("edge", "192.0.2.0/24")))
    with_pods(simulation)
    keys = [*(Key(KeyKind.SERVICE, key) for key in KEYS), EDGE, Key(KeyKind.POOL, "edge")]
    simulation.settle(*keys)
    simulation.agents = running(simulation)
    simulation.settle(*keys)
    assert simulation.condition(KEYS[0], names.ConditionType.ADVERTISED) == ("True", "Master")
    caches = Caches(cast(Client, None), owned=False)
    caches.objects = simulation.objects
    some = (simulation.snapshot.nodes, simulation.snapshot.pools, simulation.snapshot.groups)
    for each in (
        *(obj for store in some for obj in store.values()),
        *map(reworded, simulation.snapshot.services.values()),
    ):
        caches._update(None, cast(Any, each))
    return simulation, caches


class Upgrade:
    """The new version, which has just begun to lead: its agents answer after a second."""

    def __init__(self) -> None:
        """Start without writes."""
        self.simulation, self.caches = upgraded()
        self.server, self.prober = Server(self.caches, seconds=SECONDS), Prober()
        self.prober.agents = AgentStates(probed_from=NOW)

    def now(self) -> datetime:
        """The wall clock."""
        return NOW + timedelta(seconds=asyncio.get_running_loop().time())

    def leading(self) -> AbstractAsyncContextManager[WorkQueue[Key]]:
        """Run the new version."""
        return leading(
            self.caches,
            self.server,
            records=self.simulation.records,
            prober=self.prober,
            start=lambda caches: enqueue.start(caches.snapshot),
            now=self.now,
            workers=32,
        )

    async def answer(self, queue: WorkQueue[Key]) -> None:
        """Let the agents answer after a second."""
        await asyncio.sleep(1.0)
        self.prober.agents = replace(self.simulation.agents, probed_from=NOW)
        queue.add(EDGE)

    async def create(self, service: Service) -> float:
        """Create *service*; the seconds until it has an address."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.caches._update(None, service)
        while not self.caches.snapshot.services[service.key].ingress_addresses:
            await asyncio.sleep(SECONDS / 10)
        return loop.time() - began


async def test_each_service_is_written_once_with_all_its_messages() -> None:
    """No write comes before the agents have answered: the condition Advertised would need a second one."""
    upgrade = Upgrade()
    async with upgrade.leading() as queue:
        await asyncio.sleep(0.5)
        assert upgrade.server.sent == []
        await upgrade.answer(queue)
        await asyncio.sleep(60.0)
    assert upgrade.server.writes == dict.fromkeys(KEYS, 1)
    for service in upgrade.caches.snapshot.services.values():
        assert not any("once" in each.message for each in service.status.conditions or ())


async def test_a_service_that_needs_an_address_does_not_wait_for_rewordings() -> None:
    """It gets an address as soon as without rewordings, although dozens of writes are left."""
    upgrade = Upgrade()
    async with upgrade.leading() as queue:
        await upgrade.answer(queue)
        await asyncio.sleep(2.5 * SECONDS)
        before = len(upgrade.server.sent)
        assert 0 < before < COUNT / 2
        seconds = await upgrade.create(build.service("shop/new", group=GROUP))
        assert upgrade.server.sent.index("shop/new") - before <= LOW_PRIORITY_CONCURRENCY
        await asyncio.sleep(60.0)
        assert seconds == pytest.approx(await upgrade.create(build.service("shop/later", group=GROUP)), abs=SECONDS / 5)
    assert all(upgrade.server.writes[key] == 1 for key in KEYS)


async def test_an_address_that_is_freed_meanwhile_goes_to_the_service_that_waits() -> None:
    """Freeing an address is a change of the Snapshot: the waiting Service is reconciled before the rewordings."""
    upgrade = Upgrade()
    held = str(upgrade.caches.snapshot.services[KEYS[0]].ingress_addresses[0])
    async with upgrade.leading() as queue:
        await upgrade.answer(queue)
        waiting = asyncio.create_task(upgrade.create(build.service("shop/new", group=GROUP, wants=held)))
        await asyncio.sleep(2.5 * SECONDS)
        before = len(upgrade.server.sent)
        upgrade.caches._update(upgrade.caches.snapshot.services[KEYS[0]], None)
        assert await waiting == pytest.approx(3.5 * SECONDS, abs=SECONDS / 2)
        assert upgrade.server.sent.index("shop/new", before) - before <= LOW_PRIORITY_CONCURRENCY


async def test_a_rewording_found_by_an_event_goes_behind() -> None:
    """An event of a Service brings its key before the others; its messages alone do not keep that place."""
    upgrade = Upgrade()
    upgrade.prober.agents = replace(upgrade.simulation.agents, probed_from=NOW)
    async with leading(
        upgrade.caches,
        upgrade.server,
        records=upgrade.simulation.records,
        prober=upgrade.prober,
        start=lambda _: enqueue.Start(tuple(Key(KeyKind.SERVICE, key) for key in KEYS), ()),
        now=upgrade.now,
        workers=32,
    ):
        await asyncio.sleep(SECONDS / 2)
        assert len(upgrade.server.sent) == LOW_PRIORITY_CONCURRENCY
        assert await upgrade.create(build.service("shop/new", group=GROUP)) < 2 * SECONDS
        await asyncio.sleep(60.0)
    assert all(upgrade.server.writes[key] == 1 for key in KEYS)
