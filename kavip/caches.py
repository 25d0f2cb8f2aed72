"""
The caches of one replica: informers fill the Snapshot and the objects that groups own, and enqueue the changed keys.

They are used only when they are :meth:`Caches.synced`: a half-filled cache would refuse valid objects and assign
addresses that are held.

A replica with the webhook alone does not read what groups own. So it has no record of what their nodes run, and
external IPs that only a running instance shows do not count for objects in deletion (:mod:`kavip.snapshot.deletion`).
It refuses nothing for that reason: it may only admit an address that such an object still holds. The controller repeats
every check, and does not serve that address twice.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

from kavip import names, telemetry
from kavip.api.pool import VIPPool
from kavip.api.service import Service, share_texts
from kavip.api.workload import ConfigMap, ConfigMapIdentity, without_content
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.informer import Informer
from kavip.kube.resources import Resource
from kavip.podtemplate.permissions import NOTHING_PERMITTED, TemplatePermissions
from kavip.reconcile import enqueue
from kavip.reconcile.observed.objects import Owned, OwnedObjects
from kavip.reconcile.observed.operator import OperatorObject, OperatorWatch, WritesBlocked
from kavip.reconcile.observed.templates import ConfigTemplates
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.predicate import PendingWrites
from kavip.snapshot import KINDS, Object, Snapshot

_OWNED = (resources.DAEMONSETS, resources.CONFIGMAPS, resources.PODS)
_MONITORING = (resources.POD_MONITORS, resources.ROLES, resources.ROLE_BINDINGS)
_FAILURES = "reason=FailedCreate,regarding.kind=DaemonSet"  # Events of DaemonSets that cannot create pods
_MOST_NAMES = 100  # in a URL; a name has up to 63 characters
_OPERATOR = (resources.OPERATOR_LEASES, resources.OPERATOR_DEPLOYMENTS)


class Environment(NamedTuple):
    """What applies to every key: why the controller must not write, and whether the cluster has PodMonitors."""

    blocked: WritesBlocked | None
    has_pod_monitors: bool


class Caches:
    """The Snapshot and the other inputs of decisions, kept current. On a leader, changes enqueue keys."""

    def __init__(
        self,
        client: Client,
        *,
        owned: bool,
        group_namespaces: Collection[str] = (),
        templates: TemplatePermissions = NOTHING_PERMITTED,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """
        Watch what decisions read, and with *owned* also the objects that groups own; *now* is the wall clock.

        With *group_namespaces*, the objects that groups own are watched in these namespaces only, one by one. The
        ConfigMaps with templates are watched where *templates* are permitted.
        """
        self._now, self._owned = now, owned
        self.snapshot, self.objects = Snapshot(group_namespaces), OwnedObjects()
        self.pending, self.operator = PendingWrites(), OperatorWatch()
        self.templates = ConfigTemplates()
        self._enqueue: Callable[[Key], None] | None = None
        self._open = asyncio.Event()
        self.informers: list[
            Informer[Object] | Informer[Owned] | Informer[OperatorObject] | Informer[ConfigMapIdentity]
        ] = []
        self._pools: Mapping[str, Object] = {}
        self.services: Informer[Any]
        """The informer of Services."""
        self._counted: dict[int, int] = {}  # errors that the metric has, by the number of the informer
        self._namespaces: Informer[Any]
        self._groups: Informer[Any]
        for resource in resources.DECISION_KINDS:
            informer: Informer[Object] = Informer(
                client,
                resource,  # type: ignore[arg-type]  # one of Object
                transform=_with_shared_texts,
            )
            if resource is resources.POOLS:
                self._pools = informer.store
            if resource is resources.NAMESPACES:
                self._namespaces = informer
            if resource is resources.SERVICES:
                self.services = informer
            if resource is resources.GROUPS:
                self._groups = informer
            informer.subscribe(self._update)
            self.informers.append(informer)
        slices: Resource[Any] = resources.ENDPOINT_SLICES
        self._slices: Informer[Object] = Informer(client, slices, labels=selector(()))
        self._slices.subscribe(self._update)
        self._followed: frozenset[str] = frozenset()
        """The Services whose EndpointSlices are read. The webhook reads only those of the API server."""
        self.informers.append(self._slices)
        self._monitoring: list[Informer[Owned]] = []
        for namespace in sorted(group_namespaces) or [""] if owned else ():
            self._watch_owned(client, namespace)
        for namespace in templates.places(group_namespaces) if owned else ():
            self._watch_templates(client, namespace)
        self._operator_informers = [_by_name(client, kind, name) for kind in _OPERATOR if owned for name in kind.names]
        for operator in self._operator_informers:
            operator.subscribe(self._update_operator)
        self.informers += self._operator_informers

    def _watch_owned(self, client: Client, namespace: str) -> None:
        """Watch what groups in *namespace* own; "": in all."""

        def informer(resource: Resource[Any], *, labels: str = "", fields: str = "") -> Informer[Owned]:
            made: Informer[Owned] = Informer(
                client,
                resource,
                namespace=namespace,
                labels=labels,
                fields=fields,
                lacks_namespace=lambda: self._lacks(namespace),
                transform=self._without_unused_content,
            )
            made.subscribe(self._update_owned)
            self.informers.append(made)
            return made

        for kind in _OWNED:
            informer(kind, labels=names.GROUP_LABEL)
        self._monitoring += [informer(kind, labels=names.GROUP_LABEL) for kind in _MONITORING]
        informer(resources.DAEMONSET_EVENTS, fields=_FAILURES)

    def _without_unused_content(self, obj: Owned) -> Owned:
        """
        *obj*; a ConfigMap that is not of a group keeps no content, for any user may label any number of them.

        If its group comes later, :class:`~kavip.controller.configmapreader.ConfigMapReader` reads the content.
        """
        if not isinstance(obj, ConfigMap) or self.snapshot.any_group(obj.metadata.key):
            return obj
        return without_content(obj)

    def _watch_templates(self, client: Client, namespace: str) -> None:
        """Watch the versions of ConfigMaps in *namespace* with templates of keepalived.conf; "": in all."""
        templates: Informer[ConfigMapIdentity] = Informer(
            client,
            resources.TEMPLATE_CONFIGMAPS,
            namespace=namespace,
            labels=names.CONFIG_TEMPLATE_LABEL,
            lacks_namespace=lambda: self._lacks(namespace),
        )
        templates.subscribe(self._update_template)
        self.informers.append(templates)

    def _lacks(self, namespace: str) -> bool:
        """Whether the cluster has no such *namespace*; false while that is unknown."""
        return bool(namespace) and self._namespaces.synced.is_set() and namespace not in self._namespaces.store

    # --- a term of leadership -----------------------------------------------------------------------------------------
    def lead(self, enqueue_key: Callable[[Key], None]) -> None:
        """From now on call *enqueue_key* with the keys that changes concern, and start cool-downs."""
        self.snapshot.ledger.cooldown.lead(self._now())
        self._enqueue = enqueue_key

    def follow(self) -> None:
        """From now on enqueue nothing; another replica starts cool-downs."""
        self._enqueue = None
        self.snapshot.ledger.cooldown.follow()

    @property
    def leads(self) -> bool:
        """Whether this replica leads."""
        return self._enqueue is not None

    async def refresh(self) -> None:
        """
        Return as soon as the caches hold everything that was written before this call.

        A new leader needs that: the last writes of the previous leader may not have come through the watches yet. After
        this call, a write that this replica expected in an earlier term has arrived, or never will.
        """
        requested = [(informer, informer.request_list()) for informer in self.informers]
        self._open.set()  # after the requests, so that the first list of an informer also answers its request
        for informer, number in requested:
            await informer.wait_listed(number)
        await self._slices.wait_current()
        self.snapshot.ledger.drop_expectations()
        self.pending.clear()

    # --- filling ------------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Let :meth:`fill` begin."""
        self._open.set()

    async def fill(self, informer: Informer[Any]) -> NoReturn:
        """Keep the cache of *informer* current, once :meth:`open` or :meth:`refresh` was called."""
        await self._open.wait()
        if informer.resource is resources.CONFIGMAPS:
            await self._groups.synced.wait()  # they tell which content is kept
        await informer.run()

    async def synced(self) -> None:
        """Return as soon as every cache is filled."""
        for informer in self.informers:
            await informer.synced.wait()
        await self._slices.wait_current()  # with the slices of the Services that were listed

    def unready(self) -> Iterator[str]:
        """The caches that are not filled yet, and why, one line each."""
        for each in self.informers:
            if not each.synced.is_set():
                yield f"cache of {each.description} is not filled: {each.current_error or 'listing'}"

    @property
    def is_openshift(self) -> bool:
        """Whether the cluster has OpenShift's kind Network."""
        return any(each.is_available for each in self.informers if each.resource is resources.NETWORKS)

    def update_metrics(self) -> None:
        """Set the metrics that are computed at each scrape."""
        synced: dict[str, bool] = {}
        for number, each in enumerate(self.informers):
            kind = each.resource.kind
            synced[kind] = synced.get(kind, True) and each.synced.is_set()
            telemetry.WATCH_ERRORS.labels(kind).inc(each.error_count - self._counted.get(number, 0))
            self._counted[number] = each.error_count
        for kind, is_synced in synced.items():
            telemetry.INFORMER_SYNCED.labels(kind).set(is_synced)

    def update_environment(self) -> Environment:
        """
        Update what depends on time and on the watches: the block by keepalived-operator, and the kinds of the cluster.

        Call it every second. While a watch of keepalived-operator is broken, its Leases count as renewed.
        """
        now = time.monotonic()
        if any(each.current_error for each in self._operator_informers):
            self.operator.restart_leases(at=now)
        available = [each.is_available for each in self._monitoring if not each.lacks_namespace()]
        self.objects.has_pod_monitors = bool(available) and all(available)
        return Environment(self.operator.blocked(now), self.objects.has_pod_monitors)

    # --- changes ------------------------------------------------------------------------------------------------------
    def _update(self, old: Object | None, new: Object | None) -> None:
        """Enter a change into the Snapshot, and enqueue the keys that it concerns."""
        if isinstance(new, VIPPool) and new.name not in self.snapshot.pools:
            self.snapshot.put_all((*self._pools.values(), new))  # the first pool of a list: parse all at once
        elif new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.drop(KINDS[type(old)], old.metadata.key)
        if self._owned and self._followed != self.snapshot.followed:
            self._followed = frozenset(self.snapshot.followed)
            self._slices.select(selector(self._followed))
        changed = new or old
        sent = self.pending.pop_sent(changed.key) if isinstance(changed, Service) else None
        if self._enqueue is not None:
            self.snapshot.ledger.cooldown.start(self._now())  # before a freed address can be assigned again
            for key in enqueue.of(self.snapshot, old, new, sent=sent):
                self._enqueue(key)
        else:
            self.snapshot.changes.forget()
            self.snapshot.ledger.forget_changes()

    def _update_owned(self, old: Owned | None, new: Owned | None) -> None:
        for group in self.objects.store(old, new):
            if isinstance(new or old, ConfigMap):
                self._update_published(group)
            if self._enqueue is not None and self.snapshot.any_group(group):
                self._enqueue(Key(KeyKind.GROUP, group))

    def store_published(self, configmap: ConfigMap) -> None:
        """Keep *configmap* of a group, with its content."""
        self._update_owned(self.objects.configmaps.get(configmap.metadata.key), configmap)

    def _update_template(self, old: ConfigMapIdentity | None, new: ConfigMapIdentity | None) -> None:
        """Enqueue the groups that name the ConfigMap."""
        self.templates.note(old, new)
        if self._enqueue is not None and (changed := new or old):
            for group in self.templates.users_of(changed.metadata.key, self.snapshot.groups.values()):
                self._enqueue(Key(KeyKind.GROUP, group))

    def _update_published(self, group: str) -> None:
        """Let objects in deletion hold what the published configuration of *group* contains."""
        changes = self.snapshot.publish(group, self.objects.published_text(group))
        if self._enqueue is None or not changes:
            return
        self.snapshot.ledger.cooldown.start(self._now())
        for before, after in changes:
            for key in enqueue.of(self.snapshot, before, after):
                self._enqueue(key)

    def _update_operator(self, old: OperatorObject | None, new: OperatorObject | None) -> None:
        self.operator.store(old, new, at=time.monotonic())


# --- what is watched --------------------------------------------------------------------------------------------------
def selector(followed: Iterable[str]) -> str:
    """
    The label selector of the EndpointSlices that are read: the API server's, and those of the Services *followed*.

    A cluster has thousands of others, and each change of a pod's readiness changes one. A selector contains only names,
    so it also matches Services of these names in other namespaces. If there are too many names for a URL, it matches
    all.
    """
    wanted = sorted({key.rpartition("/")[2] for key in (names.API_SERVER_SERVICE, *followed)})
    if len(wanted) > _MOST_NAMES:
        return names.SERVICE_NAME_LABEL
    return f"{names.SERVICE_NAME_LABEL} in ({','.join(wanted)})"


def _with_shared_texts(obj: Object) -> Object:
    return share_texts(obj) if isinstance(obj, Service) else obj


def _by_name(client: Client, resource: Resource[Any], name: str) -> Informer[OperatorObject]:
    """A cache of the objects with the name *name*, in any namespace: the RBAC role grants this name only."""
    return Informer(client, resource, fields=f"metadata.name={name}")
