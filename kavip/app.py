"""
``kavip run``: the composition root.

Informers fill the Snapshot; the webhook answers from it on every replica; on the replica that leads, a change becomes
keys, keys become plans, plans become writes. SIGTERM: not ready at once, the controller stops and gives its lease up,
the webhook drains, then everything ends.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog

from kavip import names, ports, telemetry
from kavip.api.event import Note, ObjectReference
from kavip.caches import Caches
from kavip.controller import wakes
from kavip.controller.apply import Writer
from kavip.controller.outcome import Key, Kind, Notice
from kavip.controller.outcome import Options as ControllerOptions
from kavip.controller.probe import Probe
from kavip.controller.worker import Worker
from kavip.errors import LeaseLost
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.leader import Leader
from kavip.kube.lease import ApiLease
from kavip.kube.resources import Resource
from kavip.kube.workqueue import WorkQueue
from kavip.settings import Settings
from kavip.snapshot import Object
from kavip.webhook import registration
from kavip.webhook.checks import Options as WebhookOptions
from kavip.webhook.rotation import Injected, Publisher, Registered, Rotation
from kavip.webhook.server import Server

log = structlog.get_logger()

_LONGEST_BACKOFF = 30.0  # seconds: after an outage of the API server nobody waits much longer than the outage


async def run(settings: Settings, *, roles: frozenset[str]) -> int:
    """Run *roles* (``webhook``, ``controller``) until SIGTERM or SIGINT; the exit status."""
    async with Client.from_settings(settings.kubeconfig or None, observe=_count_request) as client:
        app = App(client, settings, roles=roles)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await app.run(stopped)
    return 0


def _count_request(method: str, code: int) -> None:
    telemetry.API_REQUESTS.labels(method.lower(), str(code)).inc()


class App:
    """One replica: what serves from the caches."""

    def __init__(self, client: Client, settings: Settings, *, roles: frozenset[str]) -> None:
        """Nothing starts before :meth:`run`."""
        self._client, self._settings, self._roles = client, settings, roles
        self._caches = Caches(client, owned="controller" in roles)
        self._queue: WorkQueue[Key] | None = None  # while this replica leads
        self._webhook_unready: list[Callable[[], str]] = []
        self._events: Events | None = None
        self._dropped = 0  # Events, as far as they have been counted
        self._stopping = False

    async def run(self, stopped: asyncio.Event) -> None:
        """Serve until *stopped*."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            probes = ports.probes(self.unready)
            await stack.enter_async_context(ports.serving(probes, settings.probe_host, settings.probe_port))
            metrics = ports.metrics(self._measure)
            await stack.enter_async_context(ports.serving(metrics, settings.metrics_host, settings.metrics_port))
            tasks = await stack.enter_async_context(_tasks(stopped))
            for informer in self._caches.informers:
                tasks.append(asyncio.create_task(informer.run(), name=f"inform {informer.resource.kind}"))
            if "webhook" in self._roles:
                await stack.enter_async_context(self._webhook(tasks))
            if "controller" in self._roles:
                await stack.enter_async_context(self._controller(tasks))
            log.info("started", roles=sorted(self._roles), replica=settings.replica)
            await stopped.wait()
            self._stopping = True
            log.info("stopping")

    def unready(self) -> Iterator[str]:
        """What is missing until this replica is ready, one line each."""
        if self._stopping:
            yield "shutting down"
        yield from self._caches.unready()
        yield from filter(None, (unready() for unready in self._webhook_unready))

    def _measure(self) -> None:
        telemetry.QUEUE_DEPTH.set(len(self._queue) if self._queue is not None else 0)
        self._caches.measure()
        if self._events is not None:
            telemetry.EVENTS_DROPPED.inc(self._events.dropped - self._dropped)
            self._dropped = self._events.dropped

    # --- webhook --------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _webhook(self, tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
        settings = self._settings
        options = WebhookOptions(
            allow_missing_group=settings.allow_missing_group,
            external_ips_scope=settings.external_ips_scope,
            ipam=settings.ipam,
        )
        unfilled = lambda: ", ".join(self._caches.unready())  # noqa: E731 - a question for the server
        server = Server(self._caches.snapshot, unready=unfilled, options=options)
        await server.start(settings.webhook_host, settings.webhook_port)
        publisher, hosts = self._registration()
        rotation = Rotation(
            self._client, namespace=settings.namespace, hosts=hosts, present=server.present, publisher=publisher
        )
        self._webhook_unready += [server.unready, rotation.unready]
        tasks.append(asyncio.create_task(rotation.run(), name="rotation"))
        try:
            yield
        finally:
            await server.stop(settings.drain_seconds)

    def _registration(self) -> tuple[Publisher, Sequence[str]]:
        """How the API server learns where we are, and the names that the leaf is for."""
        settings = self._settings
        if settings.webhook_url:
            reached = registration.ByURL(settings.webhook_url)
            registered = Registered(self._client, settings.webhook_configuration, reached, settings.namespace)
            return registered, [urlsplit(settings.webhook_url).hostname or ""]
        service = f"{settings.webhook_service}.{settings.namespace}.svc"
        return Injected(self._client, settings.webhook_configuration), [service, f"{service}.cluster.local"]

    # --- controller -----------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _controller(self, tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
        settings = self._settings
        key = f"{settings.namespace}/{names.LEASE_NAME}"
        lease = ApiLease(self._client, key, identity=settings.replica, duration=settings.lease_seconds)
        leading = asyncio.create_task(self._lead(Leader(lease)), name="leader")
        tasks.append(leading)
        try:
            yield
        finally:
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading

    async def _lead(self, leader: Leader) -> None:
        await self._caches.synced()
        while True:
            try:
                await leader.lead(self._work)
            except LeaseLost as error:
                log.warning("no longer the leader", why=str(error))

    async def _work(self) -> None:
        """What the leader does, until it is told to stop."""
        settings = self._settings
        queue: WorkQueue[Key] = WorkQueue(cap=_LONGEST_BACKOFF)
        self._dropped = 0
        events = self._events = Events(
            self._client, reporter=f"{names.KAVIP_GROUP}/controller", instance=settings.replica
        )
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
            wake_group = lambda group: queue.add(Key(Kind.GROUP, group))  # noqa: E731
            probe = Probe(session, changed=wake_group, interval=settings.probe_interval)
            worker = Worker(
                snapshot=self._caches.snapshot,
                objects=self._caches.objects,
                queue=queue,
                writer=Writer(self._client, self._caches.objects, now=lambda: datetime.now(UTC)),
                eye=probe,
                notify=lambda key, notice: self._notify(events, key, notice),
                options=ControllerOptions(image=settings.image, ipam=settings.ipam, agent_port=settings.agent_port),
            )
            for key in wakes.everything(self._caches.snapshot):
                queue.add(key)
            self._queue, self._caches.wake = queue, queue.add
            telemetry.LEADER.set(1)
            log.info("leading", services=len(self._caches.snapshot.services), groups=len(self._caches.snapshot.groups))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(events.run(), name="events")
                    tasks.create_task(probe.run(), name="probe")
                    tasks.create_task(worker.run(), name="workers")
            finally:
                self._queue = None
                self._caches.rest()
                telemetry.LEADER.set(0)

    def _notify(self, events: Events, key: Key, notice: Notice) -> None:
        resource, objects = self._about(key.kind)
        if (found := objects.get(key.name)) is None:
            return
        about = ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=found.metadata.namespace,
            name=found.metadata.name,
            uid=found.metadata.uid,
        )
        events.emit(Note(about, notice.reason, notice.message, severity="Warning" if notice.warning else "Normal"))

    def _about(self, kind: Kind) -> tuple[Resource[Any], Mapping[str, Object]]:
        snapshot = self._caches.snapshot
        match kind:
            case Kind.SERVICE:
                return resources.SERVICES, snapshot.services
            case Kind.GROUP:
                return resources.GROUPS, snapshot.groups
            case Kind.POOL:
                return resources.POOLS, snapshot.pools


@asynccontextmanager
async def _tasks(stopped: asyncio.Event) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that run as long as the block; the first that fails stops everything, and its error is raised."""
    tasks: list[asyncio.Task[None]] = []

    async def watch() -> None:
        while True:
            done = [task for task in tasks if task.done() and not task.cancelled() and task.exception()]
            if done:
                stopped.set()
            await asyncio.sleep(0.1)

    watcher = asyncio.create_task(watch(), name="watcher")
    try:
        yield tasks
    finally:
        for task in (watcher, *tasks):
            task.cancel()
        results = await asyncio.gather(watcher, *tasks, return_exceptions=True)
        failures = [each for each in results if isinstance(each, Exception)]
        if failures:
            raise failures[0]
