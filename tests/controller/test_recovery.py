"""What was freed while no controller ran cools down, on virtual time, over a fake API with a history."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.pool import PoolStatus
from kavip.api.service import Service
from kavip.controller.recovery import Recovery, recover_cooldowns
from kavip.errors import Gone, Unavailable
from kavip.ipam.allocate import Allocation, settle
from kavip.kube.client import Client
from kavip.kube.codec import Bookmark, Changed, Deleted, WatchEvent
from kavip.kube.informer import Informer
from kavip.kube.lease import LeaseLock
from kavip.kube.resources import SERVICES
from kavip.snapshot import Snapshot
from tests.kube.test_lease import KEY, FakeLeases
from tests.support import build

pytestmark = pytest.mark.looptime

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POOL = build.pool("edge", "192.0.2.128/30", cooldown_seconds=3600)
Event = Changed[Service] | Deleted


class History:
    """An API server with Services: every version for *kept* seconds, and watches that start from any of them."""

    def __init__(self, *, kept: float = 300.0) -> None:
        self.version, self.kept = 100, kept
        self.events: list[tuple[int, float, Event]] = []
        self.cached_from = 0  # watches start from here on: the watch cache begins with the API server
        self.failures: list[Exception] = []
        self.lists: list[str] = []

    def put(self, service: Service) -> None:
        """Create or replace a Service."""
        self.version += 1
        metadata = msgspec.structs.replace(service.metadata, resource_version=str(self.version))
        self._record(Changed(msgspec.structs.replace(service, metadata=metadata)))

    def delete(self, key: str) -> None:
        """Delete a Service."""
        self.version += 1
        self._record(Deleted(key, str(self.version)))

    def _record(self, event: Event) -> None:
        self.events.append((self.version, asyncio.get_running_loop().time(), event))

    async def list(self, _: object, *, exactly: str = "", **__: Any) -> tuple[Sequence[Service], str]:
        """The Services at a version; without one, now."""
        self.lists.append(exactly)
        if self.failures:
            raise self.failures.pop(0)
        version, now = int(exactly or self.version), asyncio.get_running_loop().time()
        if any(at > version and now - when > self.kept for at, when, _ in self.events):
            raise Gone(410, "Expired", "The provided continue parameter is too old")
        found: dict[str, Service] = {}
        for at, _, event in self.events:
            if at <= version:
                if isinstance(event, Changed):
                    found[event.object.key] = event.object
                else:
                    found.pop(event.key, None)
        return list(found.values()), str(version)

    @asynccontextmanager
    async def watch(
        self, _: object, version: str, *, lifetime: float, **__: Any
    ) -> AsyncIterator[AsyncIterator[WatchEvent[Service]]]:
        """The events after *version*, and a bookmark two seconds before the end."""

        async def events() -> AsyncIterator[WatchEvent[Service]]:
            if int(version) < self.cached_from:
                raise Gone(410, "Expired", "too old resource version")
            sent = int(version)
            for remaining in (lifetime - 2.0, 2.0):
                await asyncio.sleep(max(remaining, 0.0))
                for at, _, event in [each for each in self.events if each[0] > sent]:
                    sent = at
                    yield event
                yield Bookmark(str(self.version))

        yield events()


class Replica:
    """An informer that fills a Snapshot, and a ledger that may lead."""

    def __init__(self, history: History, *, pool: Any = POOL) -> None:
        self.client, self.snapshot = cast(Client, history), Snapshot.from_objects([pool])
        self.leads = False
        self.services: Informer[Service] = Informer(self.client, SERVICES)
        self.services.subscribe(self._update)
        self._task = asyncio.create_task(self.services.run())

    def _update(self, old: Service | None, new: Service | None) -> None:
        if new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.drop(names.SERVICE, old.key)
        if self.leads:
            self.snapshot.ledger.cooldown.start(now())

    async def lead(self, recorded: str) -> Recovery:
        """Begin a term."""
        await self.services.wait_listed(self.services.request_list())
        found = await recover_cooldowns(
            self.client, self.services, self.snapshot.ledger, recorded=recorded, now_at=self.services.version
        )
        self.snapshot.ledger.cooldown.lead(now())
        self.leads = True
        return found

    def recorded(self) -> str:
        """What a leader records in the Lease; "" while a cool-down is not persisted."""
        return self.services.version if self.snapshot.ledger.cooldown.is_persisted() else ""

    def cooling(self) -> dict[str, tuple[str, datetime]]:
        """The addresses that cool down: for which Service, and until when."""
        found = self.snapshot.ledger.cooldown.of("edge")
        return {str(each.address): (each.service, each.until) for each in found}

    def next_for(self, key: str) -> str:
        """The address that Service *key* would get."""
        found = settle(build.service(key), self.snapshot.parsed_pools, self.snapshot.ledger)
        assert isinstance(found, Allocation)
        return str(found.addresses[0])

    async def die(self) -> None:
        """Stop at once."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def now() -> datetime:
    """The wall clock, which runs with the loop."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def web(name: str, address: str = "") -> Service:
    """A Service, with its address in status."""
    return build.service(f"shop/{name}", group="lb/edge", holds=[address] if address else [])


async def free_after_a_term(history: History) -> str:
    """Delete ``shop/a``, which holds 192.0.2.128, after the term of a leader; return the version that it recorded."""
    history.put(web("a", "192.0.2.128"))
    first = Replica(history)
    await first.lead("")
    recorded = first.recorded()
    await first.die()
    history.delete("shop/a")
    return recorded


async def test_addresses_freed_in_sixty_seconds_without_a_leader_cool_down() -> None:
    """Its cool-down begins at the take-over; an address with a new holder does not cool down."""
    history = History()
    for name, address in (("a", "192.0.2.128"), ("b", "192.0.2.129"), ("c", "192.0.2.130")):
        history.put(web(name, address))
    first = Replica(history)
    await first.lead("")
    recorded = first.recorded()
    await first.die()
    history.delete("shop/a")
    history.put(web("b"))
    history.delete("shop/c")
    history.put(web("d", "192.0.2.130"))
    await asyncio.sleep(60)
    second = Replica(history)
    assert await second.lead(recorded) is Recovery.COMPLETE
    until = now() + timedelta(seconds=3600)
    assert {address: former for address, (former, _) in second.cooling().items()} == {
        "192.0.2.128": "shop/a",
        "192.0.2.129": "shop/b",
    }
    assert all(timedelta() <= end - until < timedelta(seconds=1) for _, end in second.cooling().values())
    assert second.next_for("shop/new") == "192.0.2.131"
    assert second.next_for("shop/a") == "192.0.2.128"
    await second.die()


async def test_an_address_that_was_assigned_and_freed_since_the_recorded_version_cools_down() -> None:
    """Neither the old list nor the new one has the Service: only the changes in between contain it."""
    history = History()
    history.put(web("a"))
    first = Replica(history)
    await first.lead("")
    recorded = first.recorded()
    history.put(web("late", "192.0.2.128"))
    history.delete("shop/late")
    await first.die()
    second = Replica(history)
    assert await second.lead(recorded) is Recovery.COMPLETE
    assert [(at, former) for at, (former, _) in second.cooling().items()] == [("192.0.2.128", "shop/late")]
    await second.die()


async def test_external_ips_that_kavip_did_not_serve_are_not_recovered() -> None:
    """As in a term: a Service that names no group frees nothing, and hides nothing that was freed."""
    history = History()
    plain: dict[str, Any] = {"type": "ClusterIP", "external_ips": ["192.0.2.128", "192.0.2.129"]}
    history.put(web("a", "192.0.2.128"))
    history.put(build.service("shop/served", group="lb/edge", **{**plain, "external_ips": ["192.0.2.130"]}))
    first = Replica(history)
    await first.lead("")
    recorded = first.recorded()
    await first.die()
    history.put(build.service("evil/plain", **plain))
    history.put(build.service("evil/gone", **{**plain, "external_ips": ["192.0.2.131"]}))
    history.delete("shop/a")
    history.delete("shop/served")
    history.delete("evil/gone")
    second = Replica(history)
    assert await second.lead(recorded) is Recovery.COMPLETE
    assert {address: former for address, (former, _) in second.cooling().items()} == {
        "192.0.2.128": "shop/a",
        "192.0.2.130": "shop/served",
    }
    await second.die()


async def test_a_stand_by_that_has_watched_asks_nothing() -> None:
    """It has seen what was freed; a term begins without another list."""
    history = History()
    history.put(web("a", "192.0.2.128"))
    first, second = Replica(history), Replica(history)
    await first.lead("")
    await second.services.synced.wait()
    history.put(web("b"))
    await asyncio.sleep(5)
    recorded = first.recorded()
    await first.die()
    history.delete("shop/a")
    await asyncio.sleep(60)
    listed = len(history.lists)
    assert await second.lead(recorded) is Recovery.SEEN
    assert history.lists[listed:] == [""]
    assert list(second.cooling()) == ["192.0.2.128"]
    await second.die()


async def test_after_a_compaction_the_recovery_reports_the_loss() -> None:
    """The API server answers 410: nothing is released, and the caller gets the error."""
    history = History()
    recorded = await free_after_a_term(history)
    await asyncio.sleep(301)
    second = Replica(history)
    assert await second.lead(recorded) is Recovery.EXPIRED
    assert second.cooling() == {}
    await second.die()


async def test_after_a_restart_of_the_api_server_the_list_still_counts() -> None:
    """Watches do not go back so far, but etcd has the version: the holders at that version can be listed."""
    history = History()
    recorded = await free_after_a_term(history)
    history.cached_from = history.version
    history.failures = [Unavailable(0, "Refused", "connection refused")]
    second = Replica(history)
    assert await second.lead(recorded) is Recovery.PARTIAL
    assert list(second.cooling()) == ["192.0.2.128"]
    await second.die()


async def test_without_cool_downs_no_request_is_sent() -> None:
    """No pool has a cool-down, so there is no replay."""
    history = History()
    history.put(web("a", "192.0.2.128"))
    replica = Replica(history, pool=build.pool())
    assert await replica.lead("1") is Recovery.SEEN
    assert set(history.lists) == {""}
    await replica.die()


async def test_no_version_is_recorded_while_a_cool_down_is_not_persisted() -> None:
    """The status of the pool must have it, as the watch shows it."""
    history = History()
    history.put(web("a", "192.0.2.128"))
    leader = Replica(history)
    await leader.lead("")
    assert leader.recorded() == "101"
    history.delete("shop/a")
    await asyncio.sleep(400)  # the fake watch sends late
    assert list(leader.cooling()) == ["192.0.2.128"]
    assert leader.recorded() == ""
    written = [each.wire for each in leader.snapshot.ledger.cooldown.of("edge")]
    leader.snapshot.put(msgspec.structs.replace(POOL, status=PoolStatus(cooling=written)))
    assert leader.recorded() == "102"
    assert parse_address("192.0.2.128") in leader.snapshot.ledger.cooldown
    await leader.die()


async def test_a_renewal_writes_the_version_and_an_acquisition_reads_it() -> None:
    """A new holder leaves the record of the previous one until it has a version of its own."""
    store, notes = FakeLeases(), dict[str, str]()
    first = LeaseLock(cast(Client, store), KEY, identity="first", annotations=lambda: notes)
    assert await first.try_acquire()
    assert (store.annotations, first.recorded(names.COOLDOWNS_ANNOTATION)) == ({}, "")
    notes[names.COOLDOWNS_ANNOTATION] = "17"
    assert await first.try_renew()
    notes.clear()
    assert await first.try_renew()
    await first.release()
    second = LeaseLock(cast(Client, store), KEY, identity="second")
    assert await second.try_acquire() and await second.try_renew()
    assert second.recorded(names.COOLDOWNS_ANNOTATION) == "17"
    assert store.annotations == {names.COOLDOWNS_ANNOTATION: "17"}
