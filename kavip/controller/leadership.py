"""
What the replica that leads runs: queue, workers, prober and Events.

Each term begins with every key, and with caches that were listed after the lease was acquired. So the ledger contains
every holder of an address before any Service gets one, even one that the previous leader served a moment ago. A write
to one Service does not conflict with a write to another, so nothing else keeps two Services from getting one address.
Before that it recovers the cool-downs of addresses that were freed while no controller ran (:mod:`.recovery`).
A term leaves nothing running; the next one starts anew.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import structlog

from kavip import names, telemetry
from kavip.api.event import Note, ObjectReference
from kavip.caches import Caches, Environment
from kavip.controller.chartvalues import ChartValues
from kavip.controller.configmapreader import ConfigMapReader
from kavip.controller.metrics import GroupMetrics
from kavip.controller.prober import AgentProber
from kavip.controller.recovery import Recovery, recover_cooldowns
from kavip.controller.templatefile import TemplateFile
from kavip.controller.templaterenderer import TemplateRenderer
from kavip.controller.worker import Worker
from kavip.controller.writer import Writer
from kavip.errors import ApiError, CachesStale
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import Resource
from kavip.kube.transport import Guard
from kavip.kube.workqueue import WorkQueue
from kavip.names import Reason
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, KeyKind, Notice, ReconcileOptions
from kavip.settings import Settings, split_names
from kavip.snapshot import Object, Snapshot

log = structlog.get_logger()

REPORTER: Final = f"{names.KAVIP_GROUP}/controller"
ENVIRONMENT_INTERVAL: Final = 1.0
"""Seconds between two checks of what only time can show."""
CACHES_DEADLINE: Final = 60.0
"""Seconds within which a new leader has its caches, or gives up the lease."""
LONGEST_BACKOFF: Final = 30.0
"""Seconds: after an outage of the API server no key waits much longer than the outage."""


class Leadership:
    """The terms of leadership of one replica, one after the other."""

    def __init__(self, client: Client, settings: Settings, caches: Caches) -> None:
        """Start nothing before :meth:`run`."""
        self._client, self._settings, self._caches = client, settings, caches
        self._queue: WorkQueue[Key] | None = None
        self._prober: AgentProber | None = None
        self._metrics = GroupMetrics()
        self._records = Records()
        self._template = TemplateFile(settings.template_file)

    def lease_annotations(self) -> Mapping[str, str]:
        """What the Lease records: up to which version of Services the status of the pools has every cool-down."""
        version, cooldown = self._caches.services.version, self._caches.snapshot.ledger.cooldown
        if self._queue is None or not version or not cooldown.is_persisted():
            return {}
        return {names.COOLDOWNS_ANNOTATION: version}

    async def run(self, guard: Guard, *, recorded: str = "") -> None:
        """
        Serve one term until cancelled; the client calls *guard* before the bytes of each write leave.

        *recorded*: the version that :meth:`lease_annotations` of the previous leader recorded.
        """
        await self._refresh()
        recovery = await self._recover(recorded)
        await self._template.update()
        client = self._client.guarded(guard)
        queue: WorkQueue[Key] = WorkQueue(cap=LONGEST_BACKOFF, can_defer=lambda key: key.kind is KeyKind.GROUP)
        events = Events(client, reporter=REPORTER, instance=self._settings.replica)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False) as session:
            prober = AgentProber(
                session,
                changed=lambda group: queue.add(Key(KeyKind.GROUP, group)),
                interval=self._settings.probe_interval,
                probed_from=datetime.now(UTC),
            )
            writer = Writer(client, self._records, self._caches.pending, now=lambda: datetime.now(UTC))
            renderer = self._renderer(queue)
            worker = self._worker(queue, events, prober, writer, renderer)
            self._prober = prober
            self._begin(queue, worker)
            self._report(recovery, events, recorded)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(events.run(), name="events")
                    tasks.create_task(prober.run(), name="prober")
                    tasks.create_task(worker.run(), name="workers")
                    tasks.create_task(renderer.run(), name="templates")
                    tasks.create_task(self._watch_environment(queue), name="environment")
                    if self._settings.template_file:
                        tasks.create_task(self._template.run(lambda: self._add_groups(queue)), name="template file")
                    tasks.create_task(self._chart_values(client, events).run(), name="chart values")
            finally:
                self._end()

    def update_metrics(self) -> None:
        """Set the metrics that are computed at each scrape."""
        telemetry.QUEUE_DEPTH.set(len(self._queue) if self._queue is not None else 0)
        if self._prober is not None:
            self._metrics.update(self._caches.snapshot, self._prober.agents)
        else:
            self._metrics.update(Snapshot(), AgentStates())

    # --- a term -------------------------------------------------------------------------------------------------------
    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(CACHES_DEADLINE):
                await self._caches.refresh()
        except TimeoutError:
            why = "; ".join(self._caches.unready()) or "the API server does not list its objects"
            raise CachesStale(f"not filled within {CACHES_DEADLINE:g} s: {why}") from None
        self._records.settle()

    async def _recover(self, recorded: str) -> Recovery:
        """Recover cool-downs of addresses that were freed while no controller ran."""
        caches = self._caches
        try:
            async with asyncio.timeout(CACHES_DEADLINE):
                return await recover_cooldowns(
                    self._client,
                    caches.services,
                    caches.snapshot.ledger,
                    recorded=recorded,
                    now_at=caches.services.version or caches.services.seen_since,
                )
        except (TimeoutError, ApiError) as error:
            why = str(error) or f"no answer within {CACHES_DEADLINE:g} s"
            raise CachesStale(f"Services at resourceVersion {recorded} are not known: {why}") from None

    def _report(self, recovery: Recovery, events: Events, recorded: str) -> None:
        """Count *recovery*, and send an Event if addresses that were freed may be assigned without a cool-down."""
        if recovery is Recovery.SEEN:
            return
        telemetry.COOLDOWN_RECOVERIES.labels(recovery).inc()
        if recovery is Recovery.COMPLETE:
            return
        which = "assigned and freed" if recovery is Recovery.PARTIAL else "freed"
        text = (
            f"addresses that were {which} after resourceVersion {recorded} and before this term may be assigned "
            "again without a cool-down, because the API server did not send the changes since then"
        )
        log.warning("cool-downs lost", recorded=recorded, result=recovery)
        lease = resources.LEASES
        about = ObjectReference(
            api_version=lease.api_version, kind=lease.kind, namespace=self._settings.namespace, name=names.LEASE_NAME
        )
        events.emit(Note(about, Reason.COOLDOWNS_LOST, text, severity="Warning"))

    def _worker(
        self,
        queue: WorkQueue[Key],
        events: Events,
        prober: AgentProber,
        writer: Writer,
        renderer: TemplateRenderer,
    ) -> Worker:
        settings, caches = self._settings, self._caches
        return Worker(
            snapshot=caches.snapshot,
            objects=caches.objects,
            records=self._records,
            pending=caches.pending,
            operator=caches.operator,
            queue=queue,
            writer=writer,
            prober=prober,
            renderer=renderer,
            notify=lambda key, notice: self._emit(events, key, notice),
            options=ReconcileOptions(
                image=settings.image,
                pull_policy=settings.pull_policy,
                pull_secrets=split_names(settings.pull_secrets),
                ipam=settings.ipam,
                agent_port=settings.agent_port,
                agent_allowed_cidrs=",".join(split_names(settings.agent_allowed_cidrs)),
                agent_metrics=settings.agent_metrics,
                prometheus_account=settings.prometheus_account,
                policy_images=split_names(settings.policy_images),
                policy_service_accounts=split_names(settings.policy_service_accounts),
                templates=TemplatePermissions.of(settings.template_namespaces, settings.template_privileges),
            ),
            template=lambda: self._template.template,
        )

    def _renderer(self, queue: WorkQueue[Key]) -> TemplateRenderer:
        templates = self._caches.templates
        reader = ConfigMapReader(
            self._client,
            snapshot=self._caches.snapshot,
            templates=templates,
            objects=self._caches.objects,
            store_published=self._caches.store_published,
        )
        return TemplateRenderer(templates, changed=lambda group: queue.add(Key(KeyKind.GROUP, group)), read=reader.read)

    def _chart_values(self, client: Client, events: Events) -> ChartValues:
        snapshot, operator = self._caches.snapshot, self._caches.operator
        return ChartValues(
            client,
            namespace=self._settings.namespace,
            events=events,
            namespaces=snapshot.namespaces,
            blocked=lambda: operator.blocked(time.monotonic()),
            now=lambda: datetime.now(UTC),
        )

    def _begin(self, queue: WorkQueue[Key], worker: Worker) -> None:
        snapshot = self._caches.snapshot
        self._caches.lead(worker.add)
        worker.begin(enqueue.start(snapshot))
        _log_environment(self._caches.update_environment())
        self._queue = queue
        telemetry.LEADER.set(1)
        log.info("leading", services=len(snapshot.services), groups=len(snapshot.groups), pools=len(snapshot.pools))

    def _end(self) -> None:
        self._caches.follow()
        self._queue = self._prober = None
        telemetry.LEADER.set(0)

    def _add_groups(self, queue: WorkQueue[Key]) -> None:
        for name in sorted(self._caches.snapshot.groups):
            queue.add(Key(KeyKind.GROUP, name))

    async def _watch_environment(self, queue: WorkQueue[Key]) -> None:
        """Reconcile everything when keepalived-operator has gone, or the Prometheus operator has come."""
        before = self._caches.update_environment()
        while True:
            await asyncio.sleep(ENVIRONMENT_INTERVAL)
            if (environment := self._caches.update_environment()) != before:
                _log_environment(environment)
                for key in enqueue.everything(self._caches.snapshot):
                    queue.add(key)
                before = environment

    # --- Events -------------------------------------------------------------------------------------------------------
    def _emit(self, events: Events, key: Key, notice: Notice) -> None:
        resource, objects = self._objects_of(key.kind)
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

    def _objects_of(self, kind: KeyKind) -> tuple[Resource[Any], Mapping[str, Object]]:
        snapshot = self._caches.snapshot
        match kind:
            case KeyKind.SERVICE:
                return resources.SERVICES, snapshot.services
            case KeyKind.GROUP:
                return resources.GROUPS, {**snapshot.groups, **snapshot.outside}
            case KeyKind.POOL:
                return resources.POOLS, snapshot.pools


def _log_environment(environment: Environment) -> None:
    if environment.blocked:
        log.info("writes blocked by keepalived-operator", by="; ".join(environment.blocked.by) or "not known yet")
    else:
        log.info("serving", prometheus=environment.has_pod_monitors)
