"""What a new leader must know before it decides anything, on a real API server and in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip.api.address import parse_address
from kavip.caches import Caches
from kavip.controller.leadership import Leadership
from kavip.controller.worker import WORKERS
from kavip.errors import LeaseLost
from kavip.kube.client import Client
from kavip.kube.codec import WatchEvent
from kavip.kube.resources import SERVICES, Resource, T
from kavip.settings import Settings
from tests.app.conftest import PATIENCE, Installation, a_group, a_pool, a_service
from tests.kube.conftest import running

pytestmark = pytest.mark.apiserver

VIP = "192.0.2.128"


class Lagging(Client):
    """A client whose watch on Services stands still while *late* is set."""

    late = False

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], version: str, **more: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """The real watch, held back where a test says so."""

        async def held(events: AsyncIterator[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
            async for event in events:
                while self.late and resource.plural == SERVICES.plural:
                    await asyncio.sleep(0.01)
                yield event

        async with super().watch(resource, version, **more) as events:
            yield held(events)


@asynccontextmanager
async def candidate(plane: ControlPlane) -> AsyncIterator[tuple[Lagging, Caches]]:
    """A replica with filled caches that does not lead yet."""
    async with Lagging.from_settings(str(plane.kubeconfig)) as client:
        caches = Caches(client, owned=True)
        caches.open()
        async with running(*(caches.fill(informer) for informer in caches.informers)):
            await asyncio.wait_for(caches.synced(), PATIENCE)
            yield client, caches


def furnish(installation: Installation) -> None:
    """A pool with one address, and two Services that want it; the first is the older one."""
    installation.applied(a_group("edge", default=True), a_pool("edge", f"{VIP}/32"))
    for name in ("one", "two"):
        installation.applied(a_service(name))


def assign(installation: Installation, name: str) -> None:
    """The last leader's last write."""
    told = {"type": "kavip.io/AddressAssigned", "status": "True", "reason": "Assigned", "message": ""}
    told["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"loadBalancer": {"ingress": [{"ip": VIP, "ipMode": "VIP"}]}, "conditions": [told]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    installation.plane.kubectl("patch", "service", name, "-n", "shop", *patch)


async def answered(installation: Installation, name: str) -> dict[str, str]:
    """The condition of a Service, as soon as it has one."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(installation.condition, name)):
            await asyncio.sleep(0.05)
    return found


async def reasons(installation: Installation, services: Collection[str]) -> set[str]:
    """What *services* are told about their address, as soon as all of them are."""
    async with asyncio.timeout(PATIENCE):
        while True:
            seen = await asyncio.to_thread(installation.get, "services", "-n", "shop")
            found = {each["metadata"]["name"]: each["status"] for each in seen["items"]}
            told = [each for name in services for each in found[name].get("conditions", ())]
            said = [each["reason"] for each in told if each["type"] == "kavip.io/AddressAssigned"]
            if len(said) == len(services):
                return set(said)
            await asyncio.sleep(0.05)


async def test_a_new_leader_knows_what_the_last_one_wrote(installation: Installation) -> None:
    """
    Its watch has not told of the last write, which gave the only address away; nobody else gets it.

    The two writes are to two Services, so no conflict would stop the second. What the new leader writes to the holder
    does conflict; it learns from that only that it knows too little, and serves the next.
    """
    furnish(installation)
    crowd = [f"w{number:02}" for number in range(WORKERS + 8)]  # more than can be looked at before the conflict shows
    installation.applied(*(a_service(name) for name in crowd))
    async with candidate(installation.plane) as (client, caches):
        client.late = True
        assign(installation, "one")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert await reasons(installation, crowd) == {"PoolExhausted"}
        assert installation.addresses("one") == [VIP]
    installation.plane.kubectl("delete", "--raw", "/api/v1/namespaces/shop/services")  # all at once, which is quick


async def test_a_leader_that_leads_again_expects_nothing(installation: Installation) -> None:
    """A write of an earlier term that was cut off, and is older than the holder of today, takes nothing from him."""
    furnish(installation)
    async with candidate(installation.plane) as (client, caches):
        version = caches.snapshot.services["shop/one"].metadata.resource_version
        caches.snapshot.ledger.expect("shop/one", [parse_address(VIP, "")], resource_version=version)
        assign(installation, "two")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert (await answered(installation, "one"))["reason"] == "PoolExhausted"
        assert installation.addresses("one") == []
        assert installation.addresses("two") == [VIP]


async def test_a_write_that_slips_through_is_repaired_in_one_pass(installation: Installation) -> None:
    """
    A former leader's write lands, late: the address of the older Service stands in the younger one's status as well.

    One write to the younger gives it another; the older one is left alone.
    """
    installation.applied(a_group("edge", default=True), a_pool("edge", f"{VIP}/31"), a_service("one"))
    await asyncio.sleep(1.1)  # creationTimestamp has whole seconds, and of two of one age the name decides
    installation.applied(a_service("another"))
    async with candidate(installation.plane) as (client, caches):
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            await asyncio.to_thread(installation.wait_told, "one", "another")
            assert (installation.addresses("one"), installation.addresses("another")) == ([VIP], ["192.0.2.129"])
            installation.plane.audit.mark()
            assign(installation, "another")
            async with asyncio.timeout(PATIENCE):
                while await asyncio.to_thread(installation.addresses, "another") != ["192.0.2.129"]:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
        own = [
            each.name
            for each in installation.plane.audit.events(resource="services", subresource="status")
            if each.agent.startswith("kavip/") and each.code == 200
        ]
        assert own == ["another"]
        assert installation.addresses("one") == [VIP]


async def test_a_term_without_its_lease_writes_nothing(installation: Installation) -> None:
    """Neither status nor Event: the audit log shows no write of kavip's."""

    def gone() -> None:
        raise LeaseLost("gone")

    furnish(installation)
    async with candidate(installation.plane) as (client, caches):
        installation.plane.audit.mark()
        async with running(Leadership(client, Settings(), caches).run(gone)):
            await asyncio.sleep(1.0)
        own = [each for each in installation.plane.audit if each.agent.startswith("kavip/") and each.body is not None]
        assert own == []
