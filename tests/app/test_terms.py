"""What a new leader has observed before its first decision, with a real API server, in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip import names
from kavip.api.address import parse_address
from kavip.caches import Caches
from kavip.controller.configmapreader import ConfigMapReader
from kavip.controller.leadership import Leadership
from kavip.controller.worker import WORKERS
from kavip.errors import LeaseLost
from kavip.kube.client import Client
from kavip.kube.codec import WatchEvent
from kavip.kube.resources import CONFIGMAPS, SERVICES, Resource, T
from kavip.settings import Settings
from tests.app.conftest import PATIENCE, Installation, a_group, a_pool, a_service, object_of
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


def create_pool_and_services(installation: Installation) -> None:
    """Create a pool with one address, and two Services; the first one is older."""
    installation.apply(a_group("edge", default=True), a_pool("edge", f"{VIP}/32"))
    for name in ("one", "two"):
        installation.apply(a_service(name))


def assign(installation: Installation, name: str) -> None:
    """Write the status as the last write of the previous leader did."""
    conditions = {"type": "kavip.io/AddressAssigned", "status": "True", "reason": "Assigned", "message": ""}
    conditions["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"loadBalancer": {"ingress": [{"ip": VIP, "ipMode": "VIP"}]}, "conditions": [conditions]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    installation.plane.kubectl("patch", "service", name, "-n", "shop", *patch)


async def wait_for_condition(installation: Installation, name: str) -> dict[str, str]:
    """Wait until a Service has a condition; return the condition."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(installation.condition, name)):
            await asyncio.sleep(0.05)
    return found


async def wait_for_reasons(installation: Installation, services: Collection[str]) -> set[str]:
    """The reasons of AddressAssigned of *services*; waits until all have one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            seen = await asyncio.to_thread(installation.get, "services", "-n", "shop")
            found = {each["metadata"]["name"]: each["status"] for each in seen["items"]}
            conditions = [each for name in services for each in found[name].get("conditions", ())]
            found_reasons = [each["reason"] for each in conditions if each["type"] == "kavip.io/AddressAssigned"]
            if len(found_reasons) == len(services):
                return set(found_reasons)
            await asyncio.sleep(0.05)


async def test_a_new_leader_observes_the_last_writes_of_the_previous_one(installation: Installation) -> None:
    """
    The watch has not delivered the last write, which assigned the only address; no other Service gets this address.

    The writes are to two Services, so no 409 would stop the second write. The new leader's write to the holder gets a
    409; it means only that the cache is old, and the next Service is reconciled.
    """
    create_pool_and_services(installation)
    waiting = [f"w{number:02}" for number in range(WORKERS + 8)]  # more than can be reconciled before the conflict
    installation.apply(*(a_service(name) for name in waiting))
    async with candidate(installation.plane) as (client, caches):
        client.late = True
        assign(installation, "one")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert await wait_for_reasons(installation, waiting) == {"PoolExhausted"}
        assert installation.addresses("one") == [VIP]
    installation.plane.kubectl("delete", "--raw", "/api/v1/namespaces/shop/services")  # all at once, to be quick


async def test_a_leader_forgets_the_writes_of_earlier_terms(installation: Installation) -> None:
    """An interrupted write of an earlier term takes no address from the current holder."""
    create_pool_and_services(installation)
    async with candidate(installation.plane) as (client, caches):
        version = caches.snapshot.services["shop/one"].metadata.resource_version
        caches.snapshot.ledger.expect("shop/one", [parse_address(VIP, "")], resource_version=version)
        assign(installation, "two")
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            assert (await wait_for_condition(installation, "one"))["reason"] == "PoolExhausted"
        assert installation.addresses("one") == []
        assert installation.addresses("two") == [VIP]


async def test_a_late_write_of_a_former_leader_is_repaired(installation: Installation) -> None:
    """
    The late write puts the address of the older Service into the status of the younger one too.

    One write gives the younger Service another address; the older one is unchanged.
    """
    installation.apply(a_group("edge", default=True), a_pool("edge", f"{VIP}/31"), a_service("one"))
    await asyncio.sleep(1.1)  # creationTimestamp has whole seconds; with equal times the name decides
    installation.apply(a_service("another"))
    async with candidate(installation.plane) as (client, caches):
        async with running(Leadership(client, Settings(), caches).run(lambda: None)):
            await asyncio.to_thread(installation.wait_for_conditions, "one", "another")
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

    def raise_lease_lost() -> None:
        raise LeaseLost("lost")

    create_pool_and_services(installation)
    async with candidate(installation.plane) as (client, caches):
        installation.plane.audit.mark()
        async with running(Leadership(client, Settings(), caches).run(raise_lease_lost)):
            await asyncio.sleep(1.0)
        own = [each for each in installation.plane.audit if each.agent.startswith("kavip/") and each.body is not None]
        assert own == []


async def test_configmaps_of_no_group_cost_no_memory(installation: Installation) -> None:
    """Any user may label large ones. What a group has published is read if the group comes later than its ConfigMap."""
    text = {names.CONFIG_KEY: "a" * 100_000}
    for name in ("edge", *(f"large{number}" for number in range(2 * CONFIGMAPS.page_size))):
        labels = {names.GROUP_LABEL: "edge"}
        installation.apply(object_of("ConfigMap", name, namespace="lb", labels=labels, data=text))
    async with candidate(installation.plane) as (client, caches):
        kept = caches.objects.configmaps
        assert len(kept) == 1 + 2 * CONFIGMAPS.page_size
        assert not any(each.has_content for each in kept.values())
        templates, objects = caches.templates, caches.objects
        reader = ConfigMapReader(
            client,
            snapshot=caches.snapshot,
            templates=templates,
            objects=objects,
            store_published=caches.store_published,
        )
        installation.apply(a_group("edge"))
        async with asyncio.timeout(PATIENCE):
            while "lb/edge" not in caches.snapshot.groups:
                await asyncio.sleep(0.05)
        await reader.read("lb/edge")
        assert [key for key, each in kept.items() if each.has_content] == ["lb/edge"]
    async with candidate(installation.plane) as (_, caches):
        assert [key for key, each in caches.objects.configmaps.items() if each.has_content] == ["lb/edge"]
    installation.plane.kubectl("delete", "configmaps", "-n", "lb", "-l", names.GROUP_LABEL)
