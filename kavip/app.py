"""
``kavip run``: the composition root.

Informers fill the Snapshot; the webhook answers from it on every replica; on the replica that leads, a change becomes
keys, keys become plans, plans become writes. SIGTERM: not ready at once, the controller stops and gives its lease up,
the webhook drains, then everything ends.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import aiohttp
import structlog

from kavip import names, ports, telemetry
from kavip.api.event import Note, ObjectReference
from kavip.controller import wakes
from kavip.controller.apply import Writer
from kavip.controller.observed import Objects, Owned
from kavip.controller.outcome import WIRE_KINDS, Key, Kind, Notice
from kavip.controller.outcome import Options as ControllerOptions
from kavip.controller.probe import Probe
from kavip.controller.worker import Worker
from kavip.errors import LeaseLost
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.informer import Informer
from kavip.kube.leader import Leader
from kavip.kube.lease import ApiLease
from kavip.kube.workqueue import WorkQueue
from kavip.settings import Settings
from kavip.snapshot import KINDS, Object, Snapshot
from kavip.webhook import registration
from kavip.webhook.checks import Options as WebhookOptions
from kavip.webhook.rotation import Injected, Publisher, Registered, Rotation
from kavip.webhook.server import Server

log = structlog.get_logger()

_READ = (
    resources.NETWORKS,
    resources.NAMESPACES,
    resources.NODES,
    resources.POOLS,
    resources.GROUPS,
    resources.SERVICES,
)
_OWNED = (resources.DAEMONSETS, resources.CONFIGMAPS, resources.PODS)


async def run(settings: Settings, *, roles: frozenset[str]) -> int:
    """Run *roles* (``webhook``, ``controller``) until SIGTERM or SIGINT; the exit status."""
    async with Client.from_settings(settings.kubeconfig or None, observe=_count_request) as client:
        app = App(client, settings)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await app.run(roles, stopped)
    return 0


def _count_request(method: str, code: int) -> None:
    telemetry.API_REQUESTS.labels(method.lower(), str(code)).inc()


class App:
    """One replica: caches, and what serves from them."""

    def __init__(self, client: Client, settings: Settings) -> None:
        """Nothing starts before :meth:`run`."""
        self.settings, self._client = settings, client
        self.snapshot, self.objects = Snapshot(), Objects()
        self._informers: list[Informer[Object] | Informer[Owned]] = []
        self._queue: WorkQueue[Key] | None = None  # while this replica leads
        self._events: Events | None = None
        self._counted: dict[str, int] = {}  # what has been added to a counter, by kind
        self._stopping = False
        self._servers: list[Callable[[], str]] = []

    async def run(self, roles: frozenset[str], stopped: asyncio.Event) -> None:
        """Serve until *stopped*."""
        async with AsyncExitStack() as stack:
            settings = self.settings
            probes = ports.probes(self.unready)
            await stack.enter_async_context(ports.serving(probes, settings.probe_host, settings.probe_port))
            metrics = ports.metrics(self._refresh_metrics)
            await stack.enter_async_context(ports.serving(metrics, settings.metrics_host, settings.metrics_port))
            tasks = await stack.enter_async_context(_tasks(stopped))
            tasks += [
                asyncio.create_task(each.run(), name=f"inform {each.resource.kind}") for each in self._inform(roles)
            ]
            if "webhook" in roles:
                await stack.enter_async_context(self._webhook(tasks))
            if "controller" in roles:
                await stack.enter_async_context(self._controller(tasks))
            log.info("started", roles=sorted(roles), replica=settings.replica)
            await stopped.wait()
            self._stopping = True
            log.info("stopping")

    def unready(self) -> Iterator[str]:
        """What is missing until this replica is ready, one line each."""
        if self._stopping:
            yield "shutting down"
        for each in self._informers:
            if not each.synced.is_set():
                yield f"cache of {each.resource.kind} is not filled: {each.trouble or 'listing'}"
        yield from filter(None, (unready() for unready in self._servers))

    # --- caches ---------------------------------------------------------------------------------------------------
    def _inform(self, roles: frozenset[str]) -> Sequence[Informer[Object] | Informer[Owned]]:
        for resource in _READ:
            informer: Informer[Object] = Informer(self._client, resource)  # type: ignore[arg-type]  # one of Object
            informer.subscribe(self._take)
            self._informers.append(informer)
        for owned in _OWNED if "controller" in roles else ():
            watcher: Informer[Owned] = Informer(self._client, owned, labels=names.GROUP_LABEL)  # type: ignore[arg-type]
            watcher.subscribe(self._take_owned)
            self._informers.append(watcher)
        return self._informers

    def _take(self, old: Object | None, new: Object | None) -> None:
        """Enter a change into the Snapshot, and wake whom it concerns."""
        if new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.drop(KINDS[type(old)], old.metadata.key)
        if self._queue is not None:
            for key in wakes.of(self.snapshot, old, new):
                self._queue.add(key)

    def _take_owned(self, old: Owned | None, new: Owned | None) -> None:
        if group := self.objects.see(old, new):
            self._wake_group(group)

    def _wake_group(self, group: str) -> None:
        if self._queue is not None:
            self._queue.add(Key(Kind.GROUP, group))

    # --- webhook --------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _webhook(self, tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
        settings = self.settings
        options = WebhookOptions(
            allow_missing_group=settings.allow_missing_group,
            external_ips_scope=settings.external_ips_scope,
            ipam=settings.ipam,
        )
        server = Server(self.snapshot, unready=self._caches_unready, options=options)
        self._servers.append(server.unready)
        await server.start(settings.webhook_host, settings.webhook_port)
        publisher, hosts = self._registration()
        rotation = Rotation(
            self._client, namespace=settings.namespace, hosts=hosts, present=server.present, publisher=publisher
        )
        tasks.append(asyncio.create_task(rotation.run(), name="rotation"))
        try:
            yield
        finally:
            await server.stop(settings.drain_seconds)

    def _caches_unready(self) -> str:
        missing = [each.resource.kind for each in self._informers if not each.synced.is_set()]
        return f"caches not filled: {', '.join(missing)}" if missing else ""

    def _registration(self) -> tuple[Publisher, Sequence[str]]:
        """How the API server learns where we are, and the names that the leaf is for."""
        settings = self.settings
        if settings.webhook_url:
            reached = registration.ByURL(settings.webhook_url)
            registered = Registered(self._client, settings.webhook_configuration, reached, settings.namespace)
            return registered, [urlsplit(settings.webhook_url).hostname or ""]
        service = f"{settings.webhook_service}.{settings.namespace}.svc"
        return Injected(self._client, settings.webhook_configuration), [service, f"{service}.cluster.local"]

    # --- controller -----------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _controller(self, tasks: list[asyncio.Task[None]]) -> AsyncIterator[None]:
        settings = self.settings
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
        for informer in self._informers:
            await informer.synced.wait()
        while True:
            try:
                await leader.lead(self._work)
            except LeaseLost as error:
                log.warning("no longer the leader", why=str(error))

    async def _work(self) -> None:
        """What the leader does, until it is told to stop."""
        settings = self.settings
        queue: WorkQueue[Key] = WorkQueue()
        events = self._events = Events(
            self._client, reporter=f"{names.KAVIP_GROUP}/controller", instance=settings.replica
        )
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
            probe = Probe(session, changed=self._wake_group, interval=settings.probe_interval)
            worker = Worker(
                snapshot=self.snapshot,
                objects=self.objects,
                queue=queue,
                writer=Writer(self._client, self.objects, now=lambda: datetime.now(UTC)),
                eye=probe,
                notify=lambda key, notice: self._notify(events, key, notice),
                options=ControllerOptions(image=settings.image, ipam=settings.ipam, agent_port=settings.agent_port),
            )
            for key in wakes.everything(self.snapshot):
                queue.add(key)
            self._queue = queue
            telemetry.LEADER.set(1)
            log.info("leading", services=len(self.snapshot.services), groups=len(self.snapshot.groups))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(events.run(), name="events")
                    tasks.create_task(probe.run(), name="probe")
                    tasks.create_task(worker.run(), name="workers")
            finally:
                self._queue = None
                telemetry.LEADER.set(0)

    def _notify(self, events: Events, key: Key, notice: Notice) -> None:
        found = self._object(key)
        if found is None:
            return
        resource = {Kind.SERVICE: resources.SERVICES, Kind.GROUP: resources.GROUPS, Kind.POOL: resources.POOLS}[
            key.kind
        ]
        about = ObjectReference(
            api_version=resource.api_version,
            kind=WIRE_KINDS[key.kind],
            namespace=found.metadata.namespace,
            name=found.metadata.name,
            uid=found.metadata.uid,
        )
        events.emit(Note(about, notice.reason, notice.message, severity="Warning" if notice.warning else "Normal"))

    def _object(self, key: Key) -> Object | None:
        match key.kind:
            case Kind.SERVICE:
                return self.snapshot.services.get(key.name)
            case Kind.GROUP:
                return self.snapshot.groups.get(key.name)
        return self.snapshot.pools.get(key.name)

    def _refresh_metrics(self) -> None:
        telemetry.QUEUE_DEPTH.set(len(self._queue) if self._queue is not None else 0)
        telemetry.SERVICES_WAITING.set(len(self.snapshot.ledger.waiters()))
        for each in self._informers:
            kind = each.resource.kind
            telemetry.INFORMER_SYNCED.labels(kind).set(each.synced.is_set())
            telemetry.WATCH_ERRORS.labels(kind).inc(self._new(kind, each.setbacks))
        if self._events is not None:
            telemetry.EVENTS_DROPPED.inc(self._new("Event", self._events.dropped))
        for pool in self.snapshot.parsed_pools.in_force:
            for family, usage in self.snapshot.ledger.usage(pool.name).items():
                for state in ("total", "assigned", "available"):
                    count = getattr(usage, state)
                    telemetry.POOL_ADDRESSES.labels(pool.name, f"ipv{family}", state).set(count)

    def _new(self, kind: str, count: int) -> int:
        """How far *count* has come since it was last asked for; a new leader begins at 0 again."""
        before = self._counted.get(kind, 0)
        self._counted[kind] = count
        return count - before if count >= before else count


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
