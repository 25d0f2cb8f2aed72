"""What a new leader must know before it decides, with a real API server, in this process."""

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
    """A client whose watch on Services delivers nothing while *late* is set."""

    late = False

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], version: str, **more: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """The real watch, held back on request."""

        async def held(events: AsyncIterator[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
            async for event in events:
                while self.late and resource.plural == SERVICES.plural:
                    await asyncio.sleep(0.01)
                yield event

        async with super().watch(resource, version, **more) as events:
            yield held(events)


@asynccontextmanager
async def candidate(plane: ControlPlane) -> AsyncIterator[tuple[Lagging, Caches]]:
    """A replica with synced caches that does not lead yet."""
    async with Lagging.from_settings(str(plane.kubeconfig)) as client:
        caches = Caches(client, owned=True)
        caches.open()
        async with running(*(caches.fill(informer) for informer in caches.informers)):
            await asyncio.wait_for(caches.synced(), PATIENCE)
            yield client, caches


def furnish(installation: Installation) -> None:
    """A pool with one address, and two Services that want it; the first one is older."""
    installation.applied(a_group("edge", default=True), a_pool("edge", f"{VIP}/32"))
    for name in ("one", "two"):
        installation.applied(a_service(name))


def assign(installation: Installation, name: str) -> None:
    """The last write of the previous leader."""
    told = {"type": "kavip.io/AddressAssigned", "status": "True", "reason": "Assigned", "message": ""}
    told["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"loadBalancer": {"ingress": [{"ip": VIP, "ipMode": "VIP"}]}, "conditions": [told]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    installation.plane.kubectl("patch", "service", name, "-n", "shop", *patch)


async def answered(installation: Installation, name: str) -> dict[str, str]:
    """The condition of a Service; waits for it."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(installation.condition, name)):
            await asyncio.sleep(0.05)
    return found


async def reasons(installation: Installation, services: Collection[str]) -> set[str]:
    """The reasons of AddressAssigned of *services*; waits until all have one."""
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
    Its watch has not delivered the last write, which assigned the only address; no other Service gets it.

    The two writes are to two Services, so no conflict would stop the second. The new leader's write to the holder does
    conflict; from that it learns only that its cache is old, and it serves the next Service.
    """
    furnish(installation)
    crowd = [f"w{number:02}" for number in range(WORKERS + 8)]  # more than can be reconciled before the conflict
    installation.applied(*(a_service(name) for name in crowd))
    async with candidate(installation.plane) as (client, caches):
        client.late = True
        assign(installation, "one")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert await reasons(installation, crowd) == {"PoolExhausted"}
        assert installation.addresses("one") == [VIP]
    installation.plane.kubectl("delete", "--raw", "/api/v1/namespaces/shop/services")  # all at once, to be quick


async def test_a_leader_forgets_the_writes_of_earlier_terms(installation: Installation) -> None:
    """An interrupted write of an earlier term takes nothing from the current holder."""
    furnish(installation)
    async with candidate(installation.plane) as (client, caches):
        version = caches.snapshot.services["shop/one"].metadata.resource_version
        caches.snapshot.ledger.expect("shop/one", [parse_address(VIP, "")], resource_version=version)
        assign(installation, "two")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert (await answered(installation, "one"))["reason"] == "PoolExhausted"
        assert installation.addresses("one") == []
        assert installation.addresses("two") == [VIP]


async def test_a_late_write_of_a_former_leader_is_repaired(installation: Installation) -> None:
    """
    It puts the address of the older Service into the status of the younger one too.

    One write gives the younger Service another address; the older one is unchanged.
    """
    installation.applied(a_group("edge", default=True), a_pool("edge", f"{VIP}/31"), a_service("one"))
    await asyncio.sleep(1.1)  # creationTimestamp has whole seconds; with equal times the name decides
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
    """Neither status nor Events: the audit log has no write of kavip."""

    def gone() -> None:
        raise LeaseLost("gone")

    furnish(installation)
    async with candidate(installation.plane) as (client, caches):
        installation.plane.audit.mark()
        async with running(Leadership(client, Settings(), caches).run(gone)):
            await asyncio.sleep(1.0)
        own = [each for each in installation.plane.audit if each.agent.startswith("kavip/") and each.body is not None]
        assert own == []
