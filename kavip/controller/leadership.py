"""
What the replica that leads runs: queue, workers, the eye on the agents, and Events.

Each term begins with every key there is, from caches that were listed after the lease was taken: whoever holds an
address is in the ledger before anybody is served, also he to whom the last leader gave one a moment ago. A write to one
Service does not conflict with a write to another, so nothing but this keeps two from getting the same address. A term
ends with nothing left behind; the next one starts anew.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import structlog

from kavip import names, telemetry
from kavip.api.event import Note, ObjectReference
from kavip.caches import Caches, Outlook
from kavip.controller.meters import Masters
from kavip.controller.prober import Probe
from kavip.controller.worker import Worker
from kavip.controller.writer import Writer
from kavip.errors import CachesStale
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import Resource
from kavip.kube.transport import Guard
from kavip.kube.workqueue import WorkQueue
from kavip.reconcile import enqueue
from kavip.reconcile.observed.nodes import AgentStates
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Key, KeyKind, Notice, ReconcileOptions
from kavip.settings import Settings, listed
from kavip.snapshot import Object, Snapshot

log = structlog.get_logger()

REPORTER: Final = f"{names.KAVIP_GROUP}/controller"
LOOK_OUT: Final = 1.0  # seconds between two looks at what only time can tell
FILLING: Final = 60.0  # seconds within which a new leader has its caches, or lets another lead
LONGEST_BACKOFF: Final = 30.0  # seconds: after an outage of the API server nobody waits much longer than the outage


class Leading:
    """Terms of leadership of one replica, one after the other."""

    def __init__(self, client: Client, settings: Settings, caches: Caches) -> None:
        """Nothing starts before :meth:`run`."""
        self._client, self._settings, self._caches = client, settings, caches
        self._queue: WorkQueue[Key] | None = None
        self._events: Events | None = None
        self._probe: Probe | None = None
        self._masters = Masters()
        self._records = Records()
        self._dropped = 0  # Events, as far as they have been counted

    async def run(self, guard: Guard) -> None:
        """Serve one term, until cancelled; *guard* is asked before the bytes of each write leave."""
        await self._refresh()
        client = self._client.guarded(guard)
        queue: WorkQueue[Key] = WorkQueue(cap=LONGEST_BACKOFF, can_defer=lambda key: key.kind is KeyKind.GROUP)
        events = Events(client, reporter=REPORTER, instance=self._settings.replica)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False) as session:
            probe = Probe(
                session,
                changed=lambda group: queue.add(Key(KeyKind.GROUP, group)),
                interval=self._settings.probe_interval,
                began=datetime.now(UTC),
            )
            writer = Writer(client, self._records, self._caches.pending, now=lambda: datetime.now(UTC))
            worker = self._worker(queue, events, probe, writer)
            self._probe = probe
            self._begin(queue, worker, events)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(events.run(), name="events")
                    tasks.create_task(probe.run(), name="probe")
                    tasks.create_task(worker.run(), name="workers")
                    tasks.create_task(self._look_out(queue), name="look-out")
            finally:
                self._end()

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(FILLING):
                await self._caches.refresh()
        except TimeoutError:
            why = "; ".join(self._caches.unready()) or "the API server does not list what is there"
            raise CachesStale(f"not filled within {FILLING:g} s: {why}") from None
        self._records.settle()

    def measure(self) -> None:
        """Set the metrics that are read off."""
        telemetry.QUEUE_DEPTH.set(len(self._queue) if self._queue is not None else 0)
        led = self._caches.snapshot if self._probe is not None else Snapshot()
        self._masters.measure(led, self._probe.agents if self._probe is not None else AgentStates())
        if self._events is not None:
            telemetry.EVENTS_DROPPED.inc(self._events.dropped - self._dropped)
            self._dropped = self._events.dropped

    def _worker(self, queue: WorkQueue[Key], events: Events, probe: Probe, writer: Writer) -> Worker:
        settings, caches = self._settings, self._caches
        return Worker(
            snapshot=caches.snapshot,
            objects=caches.objects,
            records=self._records,
            pending=caches.pending,
            rivals=caches.rivals,
            queue=queue,
            writer=writer,
            eye=probe,
            notify=lambda key, notice: self._notify(events, key, notice),
            options=ReconcileOptions(
                image=settings.image,
                ipam=settings.ipam,
                agent_port=settings.agent_port,
                agent_allowed_cidrs=",".join(listed(settings.agent_allowed_cidrs)),
                agent_metrics=settings.agent_metrics,
                prometheus_account=settings.prometheus_account,
            ),
        )

    async def _look_out(self, queue: WorkQueue[Key]) -> None:
        """Look at everything again when keepalived-operator has gone, or Prometheus's has come."""
        before = self._caches.outlook()
        while True:
            await asyncio.sleep(LOOK_OUT)
            if (outlook := self._caches.outlook()) != before:
                _tell(outlook)
                for key in enqueue.everything(self._caches.snapshot):
                    queue.add(key)
                before = outlook

    def _begin(self, queue: WorkQueue[Key], worker: Worker, events: Events) -> None:
        snapshot = self._caches.snapshot
        self._caches.lead(worker.add)
        worker.begin(enqueue.start(snapshot))
        _tell(self._caches.outlook())
        self._queue = queue
        self._events, self._dropped = events, 0
        telemetry.LEADER.set(1)
        log.info("leading", services=len(snapshot.services), groups=len(snapshot.groups), pools=len(snapshot.pools))

    def _end(self) -> None:
        self._caches.follow()
        self._queue = self._probe = None
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

    def _about(self, kind: KeyKind) -> tuple[Resource[Any], Mapping[str, Object]]:
        snapshot = self._caches.snapshot
        match kind:
            case KeyKind.SERVICE:
                return resources.SERVICES, snapshot.services
            case KeyKind.GROUP:
                return resources.GROUPS, {**snapshot.groups, **snapshot.outside}
            case KeyKind.POOL:
                return resources.POOLS, snapshot.pools


def _tell(outlook: Outlook) -> None:
    if outlook.hindrance:
        who = "; ".join(outlook.hindrance.who) or "not known yet"
        log.info("standing aside: keepalived-operator may be running", who=who)
    else:
        log.info("serving", prometheus=outlook.has_monitors)
