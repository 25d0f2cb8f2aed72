"""
The caches of one replica: informers that fill the Snapshot and what groups own, and tell whom a change concerns.

Nothing is served from them before they are :attr:`Caches.synced`: a half-filled cache would refuse what is right and
give away what is held.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

from kavip import names, telemetry
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.informer import Informer
from kavip.kube.resources import Resource
from kavip.reconcile import enqueue
from kavip.reconcile.observed.objects import Owned, OwnedObjects
from kavip.reconcile.observed.operator import OperatorObject, OperatorWatch, WritesBlocked
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.predicate import PendingWrites
from kavip.snapshot import KINDS, Object, Snapshot

_OWNED = (resources.DAEMONSETS, resources.CONFIGMAPS, resources.PODS)
_MONITORING = (resources.POD_MONITORS, resources.ROLES, resources.ROLE_BINDINGS)
_COMPLAINTS = "reason=FailedCreate,regarding.kind=DaemonSet"
_MOST_NAMES = 100  # in a URL; a name has up to 63 characters
_RIVALS = (resources.OPERATOR_LEASES, resources.OPERATOR_DEPLOYMENTS)


def _labelled(client: Client, resource: Resource[Any]) -> Informer[Owned]:
    """A cache of the objects that carry the label of a group."""
    return Informer(client, resource, labels=names.GROUP_LABEL)


def _complaints(client: Client) -> Informer[Owned]:
    """A cache of what DaemonSets say about pods that they cannot create."""
    found: Informer[Any] = Informer(client, resources.DAEMONSET_EVENTS, fields=_COMPLAINTS)
    return found


def _by_name(client: Client, resource: Resource[Any], name: str) -> Informer[OperatorObject]:
    """A cache of the objects of one name, in any namespace: RBAC can grant that much and no more."""
    return Informer(client, resource, fields=f"metadata.name={name}")


def _nobody(_: Key) -> None:
    """Wake nobody: this replica does not lead."""


def selector(followed: Iterable[str]) -> str:
    """
    The labels of the EndpointSlices that are read: the API server's, and those of the Services *followed*.

    A cluster has thousands of others, and each change of a pod's readiness is one of a slice. Selectors know names
    alone, so slices of Services of the same name in other namespaces come along; where there are too many names for a
    URL, all come.
    """
    wanted = sorted({key.rpartition("/")[2] for key in (names.API_SERVER_SERVICE, *followed)})
    if len(wanted) > _MOST_NAMES:
        return names.SERVICE_NAME_LABEL
    return f"{names.SERVICE_NAME_LABEL} in ({','.join(wanted)})"


class Outlook(NamedTuple):
    """Whatever changes here concerns every key: why the controller may not write, and whether it serves Prometheus."""

    hindrance: WritesBlocked | None
    has_monitors: bool


class Caches:
    """The Snapshot, kept current; whoever leads (:meth:`lead`) is told the keys that changes concern."""

    def __init__(
        self,
        client: Client,
        *,
        owned: bool,
        group_namespaces: Collection[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Watch what decisions read, and with *owned* also the objects that groups own; *now* is the wall clock."""
        self._now = now
        self.snapshot, self.objects = Snapshot(group_namespaces), OwnedObjects()
        self.pending, self.rivals = PendingWrites(), OperatorWatch()
        self.wake: Callable[[Key], None] = _nobody
        self._open = asyncio.Event()
        self.informers: list[Informer[Object] | Informer[Owned] | Informer[OperatorObject]] = []
        self._pools: Mapping[str, Object] = {}
        self._counted: dict[int, int] = {}  # informer, by number -> its setbacks
        for resource in resources.DECISION_KINDS:
            informer: Informer[Object] = Informer(client, resource)  # type: ignore[arg-type]  # one of Object
            if resource is resources.POOLS:
                self._pools = informer.store
            informer.subscribe(self._take)
            self.informers.append(informer)
        slices: Resource[Any] = resources.ENDPOINT_SLICES
        self._slices: Informer[Object] = Informer(client, slices, labels=selector(()))
        self._slices.subscribe(self._take)
        self.informers.append(self._slices)
        self._monitoring = [_labelled(client, kind) for kind in _MONITORING if owned]
        watchers = [_labelled(client, kind) for kind in _OWNED if owned] + self._monitoring
        if owned:
            watchers.append(_complaints(client))
        for watcher in watchers:
            watcher.subscribe(self._take_owned)
        self.informers += watchers
        self._rivals = [_by_name(client, kind, name) for kind in _RIVALS if owned for name in kind.names]
        for each in self._rivals:
            each.subscribe(self._take_rival)
        self.informers += self._rivals

    def lead(self, wake: Callable[[Key], None]) -> None:
        """Tell *wake* whom a change concerns, and let rest what is freed, from now on."""
        self.snapshot.ledger.cooldown.lead(self._now())
        self.wake = wake

    def follow(self) -> None:
        """Wake nobody from now on; another replica lets rest what is freed."""
        self.wake = _nobody
        self.snapshot.ledger.cooldown.follow()

    async def synced(self) -> None:
        """Return as soon as every cache is filled."""
        for informer in self.informers:
            await informer.synced.wait()
        await self._slices.wait_current()  # with what the Services ask for

    def open(self) -> None:
        """Let :meth:`fill` begin."""
        self._open.set()

    async def fill(self, informer: Informer[Any]) -> NoReturn:
        """Keep the cache of *informer* from the moment on at which somebody wants it filled."""
        await self._open.wait()
        await informer.run()

    async def refresh(self) -> None:
        """
        Return as soon as the caches hold all that was written before this call, and nothing else is believed.

        For a new leader: what his predecessor wrote last may not have come through the watches yet, and what he himself
        expected in an earlier term has either come or never will.
        """
        asked = [(informer, informer.request_list()) for informer in self.informers]
        self._open.set()  # only now: what is listed for the first time need not be listed again
        for informer, number in asked:
            await informer.wait_listed(number)
        await self._slices.wait_current()
        self.snapshot.ledger.drop_expectations()
        self.pending.clear()

    def unready(self) -> Iterator[str]:
        """Which caches are not filled yet, and why, one line each."""
        for each in self.informers:
            if not each.synced.is_set():
                yield f"cache of {each.resource.kind} is not filled: {each.current_error or 'listing'}"

    @property
    def leads(self) -> bool:
        """Whether this replica leads."""
        return self.wake is not _nobody

    def measure(self) -> None:
        """Set the metrics that are read off the caches."""
        for number, each in enumerate(self.informers):
            kind = each.resource.kind
            telemetry.INFORMER_SYNCED.labels(kind).set(each.synced.is_set())
            telemetry.WATCH_ERRORS.labels(kind).inc(each.error_count - self._counted.get(number, 0))
            self._counted[number] = each.error_count

    def _take(self, old: Object | None, new: Object | None) -> None:
        """Enter a change into the Snapshot, and wake whom it concerns."""
        if isinstance(new, VIPPool) and new.name not in self.snapshot.pools:
            self.snapshot.put_all((*self._pools.values(), new))  # the first of a list: all are parsed at once
        elif new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.drop(KINDS[type(old)], old.metadata.key)
        self._slices.select(selector(self.snapshot.followed))
        sent = self.pending.pop_sent(changed.key) if isinstance(changed := new or old, Service) else None
        if self.leads:
            self.snapshot.ledger.cooldown.start(self._now())  # before an address that was just freed can be assigned
            for key in enqueue.of(self.snapshot, old, new, sent=sent):
                self.wake(key)

    def outlook(self) -> Outlook:
        """
        What no object tells: whether keepalived-operator is gone, whether there are PodMonitors.

        To be asked every second: what a broken watch hides is no silence.
        """
        now = time.monotonic()
        if any(each.current_error for each in self._rivals):
            self.rivals.blink(at=now)
        self.objects.has_pod_monitors = bool(self._monitoring) and all(each.is_available for each in self._monitoring)
        return Outlook(self.rivals.hindrance(now), self.objects.has_pod_monitors)

    def _take_rival(self, old: OperatorObject | None, new: OperatorObject | None) -> None:
        self.rivals.see(old, new, at=time.monotonic())

    def _take_owned(self, old: Owned | None, new: Owned | None) -> None:
        if self.snapshot.any_group(group := self.objects.store(old, new)):
            self.wake(Key(KeyKind.GROUP, group))
