"""
``kavip run``: the composition root.

Informers fill the Snapshot; the webhook answers from it on every replica; on the replica that leads, a change becomes
keys, keys become plans, plans become writes. At SIGTERM the replica becomes unready. Then the controller stops and
releases its lease, the webhook drains, and everything ends.
"""

import asyncio
import errno
import gc
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import structlog

from kavip import names, telemetry
from kavip.admission.chain import PolicyOptions
from kavip.caches import Caches
from kavip.controller.leadership import Leadership
from kavip.controller.metrics import PoolMetrics
from kavip.errors import CachesStale, LeaseLost, SettingsError
from kavip.http import ports
from kavip.http.servingcertificate import ServingCertificate
from kavip.kube.client import Client
from kavip.kube.delegatedauth import DelegatedAuth
from kavip.kube.leader import Leader
from kavip.kube.lease import LeaseLock
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.settings import Settings, flag_and_variable
from kavip.webhook.authorizer import Authorizer
from kavip.webhook.certs import cainjector
from kavip.webhook.certs.clientca import read_client_ca
from kavip.webhook.certs.source import certificate_source, hands_over
from kavip.webhook.server import WebhookServer

COLLECTION_INTERVAL: Final = 10.0
"""Seconds between two collections of garbage while the caches fill: an API server may be away for hours."""
_NEW_OBJECTS: Final = 10_000
"""
After so many new objects the garbage among them is collected meanwhile: each TLS connection that fails leaves 110 KiB
in 46 objects, so a client could fill the memory.
"""
_NEVER: Final = 1_000_000
_FILES: Final = 4096

log = structlog.get_logger()

Start = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts work under a name, as a task that ends with the replica."""


async def run(settings: Settings, *, roles: frozenset[str]) -> int:
    """Run *roles* (``webhook``, ``controller``) until SIGTERM or SIGINT; return the exit status."""
    _raise_file_limit()
    async with Client.from_settings(settings.kubeconfig or None, observe=_count_request) as client:
        app = App(client, settings, roles=roles)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await app.run(stopped)
    return 0


def _raise_file_limit() -> None:
    """Permit the files that all connections of the ports need; many container runtimes start with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (_FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard), hard)
        )


def _count_request(method: str, code: int) -> None:
    telemetry.API_REQUESTS.labels(method.lower(), str(code)).inc()


class App:
    """One replica: the caches, and the webhook and the controller that use them."""

    def __init__(self, client: Client, settings: Settings, *, roles: frozenset[str]) -> None:
        """Nothing starts before :meth:`run`."""
        self._client, self._settings, self._roles = client, settings, roles
        self._caches = Caches(
            client,
            owned="controller" in roles,
            group_namespaces=settings.group_namespace_names,
            templates=TemplatePermissions.of(settings.template_namespaces, settings.template_privileges),
        )
        self._leadership = Leadership(client, settings, self._caches)
        self._pool_metrics = PoolMetrics()
        self._webhook_unready: list[Callable[[], str]] = []
        self._stopping = False

    async def run(self, stopped: asyncio.Event) -> None:
        """Serve until *stopped*."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            probes = ports.probes(self.unready)
            with _listening("probe", settings.probe_host, settings.probe_port) as address:
                await stack.enter_async_context(ports.serving(probes, *address, name="probe"))
            start = await stack.enter_async_context(_starting(stopped))
            await stack.enter_async_context(self._metrics(start))
            for informer in self._caches.informers:
                start(self._caches.fill(informer), f"inform {informer.resource.kind}")
            start(freeze_when(self._caches.synced), "freeze caches")
            if "webhook" in self._roles:
                await stack.enter_async_context(self._webhook(start))
            if "controller" in self._roles:
                await stack.enter_async_context(self._controller(start))
            else:
                self._caches.open()
            log.info("started", roles=sorted(self._roles), replica=settings.replica, server=self._client.server)
            await stopped.wait()
            self._stopping = True
            log.info("stopping")

    def unready(self) -> Iterator[str]:
        """What is missing until this replica is ready, one line each."""
        if self._stopping:
            yield "shutting down"
        yield from self._caches.unready()
        yield from filter(None, (unready() for unready in self._webhook_unready))

    @asynccontextmanager
    async def _metrics(self, start: Start) -> AsyncIterator[None]:
        settings, pages = self._settings, ports.metrics(self._update_metrics)
        async with AsyncExitStack() as stack:
            security = None
            if settings.metrics_secure:
                host = f"{names.METRICS_SERVICE}.{settings.namespace}.svc"
                certificate = ServingCertificate("metrics", folder=settings.metrics_cert_path, host=host)
                await certificate.update()
                start(certificate.run(), "metrics certificate")
                reviews = await stack.enter_async_context(self._review_client())
                security = ports.Security(certificate.context, DelegatedAuth(reviews, names.METRICS_PATH))
            with _listening("metrics", settings.metrics_host, settings.metrics_port) as address:
                await stack.enter_async_context(ports.serving(pages, *address, name="metrics", security=security))
            yield

    def _review_client(self) -> Client:
        """A client for reviews, which any client can cause: they share no connection with the lease."""
        return Client.from_settings(self._settings.kubeconfig or None, observe=_count_request)

    def _update_metrics(self) -> None:
        self._caches.update_metrics()
        self._pool_metrics.update(self._caches.snapshot, leads=self._caches.leads)
        self._leadership.update_metrics()

    # --- webhook --------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _webhook(self, start: Start) -> AsyncIterator[None]:
        settings = self._settings
        options = PolicyOptions.of(
            template_namespaces=settings.template_namespaces,
            template_privileges=settings.template_privileges,
            allow_missing_group=settings.allow_missing_group,
            external_ips_scope=settings.external_ips_scope,
            ipam=settings.ipam,
        )
        reviews = self._review_client()
        authorizer = Authorizer(reviews, is_openshift=lambda: self._caches.is_openshift)
        server = WebhookServer(
            self._caches.snapshot,
            unready=lambda: ", ".join(self._caches.unready()),
            options=options,
            may_set_external_ips=authorizer.may_set_external_ips,
            may_create_daemon_sets=authorizer.may_create_daemon_sets,
            client_ca=read_client_ca(settings.webhook_client_ca),
        )
        with _listening("webhook", settings.webhook_host, settings.webhook_port) as address:
            await server.start(*address)
        publishes = "controller" in self._roles or not hands_over(settings)
        source = certificate_source(self._client, settings, server.serve_certificate, publishes=publishes)
        self._webhook_unready += [server.unready, source.manager.unready]
        start(source.watch.run(), "certificate watch")
        start(source.events.run(), "webhook events")
        start(source.manager.run(), "certificates")
        async with reviews:
            try:
                yield
            finally:
                await server.stop(settings.drain_seconds)

    # --- controller -----------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _controller(self, start: Start) -> AsyncIterator[None]:
        settings = self._settings
        key = f"{settings.namespace}/{names.LEASE_NAME}"
        lease = LeaseLock(
            self._client,
            key,
            identity=settings.replica,
            duration=settings.lease_seconds,
            annotations=self._leadership.lease_annotations,
        )
        leading = start(self._lead(Leader(lease), lease, start), "leader")
        try:
            yield
        finally:
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading

    async def _lead(self, leader: Leader, lease: LeaseLock, start: Start) -> None:
        """
        Acquire the lease and lead, again after each lost lease.

        If this replica gets the lease at its first attempt, it fills its caches in its first term. Otherwise it waits
        for filled caches before the next attempt. So a replica that cannot read the cluster does not take the lease
        from another one.
        """
        if not await leader.try_acquire():
            self._caches.open()
            await self._caches.synced()
        while True:
            try:
                await leader.lead(lambda: self._serve_term(leader, lease, start))
            except LeaseLost as error:
                log.warning("no longer the leader", why=str(error))
            except CachesStale as error:
                log.warning("no longer the leader", why=str(error))
                await asyncio.sleep(self._settings.lease_seconds)
            await self._caches.synced()

    async def _serve_term(self, leader: Leader, lease: LeaseLock, start: Start) -> None:
        """Lead; meanwhile inject ``caBundle`` for a webhook that runs apart, even before the caches are filled."""
        beside: list[asyncio.Task[None]] = []
        if "webhook" not in self._roles and hands_over(self._settings):
            injecting = cainjector.inject(self._client.guarded(leader.ensure_held), self._settings)
            beside.append(start(injecting, "CA injector"))
        try:
            await self._leadership.run(leader.ensure_held, recorded=lease.recorded(names.COOLDOWNS_ANNOTATION))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


async def freeze_when(filled: Callable[[], Awaitable[None]]) -> None:
    """
    Exempt the caches from garbage collection when they are *filled*: it would stop the loop, 0.1 s at 10,000 Services.

    Until then garbage among new objects is collected, and other garbage only every :data:`COLLECTION_INTERVAL`. That
    visits all objects, and of what fills the caches it could free nothing.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, 10, _NEVER)
    gc.freeze()  # the modules
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(COLLECTION_INTERVAL):
                    return await filled()
            gc.collect()
    finally:
        gc.set_threshold(*usual)
        gc.collect(1)  # of the new objects, too: what is frozen is never freed
        gc.freeze()


@contextmanager
def _listening(server: str, host: str, port: int) -> Iterator[tuple[str, int]]:
    """Raise :class:`SettingsError` with the setting at fault if *server* cannot bind its address."""
    try:
        yield host, port
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise SettingsError(
                f"{flag_and_variable(f'{server}_port')}: {port}: {why}; choose another port, or free it"
            ) from error
        raise SettingsError(
            f"{flag_and_variable(f'{server}_host')}: {host!r}: {why}; want an address of this machine"
        ) from error


@asynccontextmanager
async def _starting(stopped: asyncio.Event) -> AsyncIterator[Start]:
    """Start tasks that run as long as the block; the first that fails stops everything, and its error is raised."""
    tasks: dict[asyncio.Task[None], None] = {}  # in order of their start

    def stop_on_error(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception():
            stopped.set()
        else:
            tasks.pop(task, None)

    def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        tasks[task] = None
        task.add_done_callback(stop_on_error)
        return task

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
