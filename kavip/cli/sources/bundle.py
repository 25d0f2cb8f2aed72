"""
What ``kavip collect`` reads of a cluster, with the rights of its user. It stores nothing there.

What cannot be read is recorded, and the rest is read. Only an API server that does not answer at all is an error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import WholeObject
from kavip.api.pool import VIPPool
from kavip.cli.sources.agents import in_turns, read_state
from kavip.cli.sources.cluster import connected
from kavip.cli.sources.doctor import inspect_with
from kavip.cli.views.bundle import relevance, texts
from kavip.cli.views.bundle.contents import Bundle, Missing
from kavip.cli.views.bundle.selection import allowed_part
from kavip.cli.views.doctor.checks import diagnose
from kavip.cli.views.doctor.output import data as doctor_data
from kavip.errors import ApiError, Forbidden, KavipError, Unavailable
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource, T
from kavip.kube.transport import TOO_LARGE

_Item = TypeVar("_Item")
Report = Callable[[str], None]
"""Called with what is read now."""

_AT_ONCE: Final = 8
_MOST: Final = 500  # pods that are asked, configurations that are read
_LARGEST_LOG: Final = 2**20  # bytes
_LARGEST_METRICS: Final = 4 * 2**20
_MOST_MALFORMED: Final = 10  # objects of a kind that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    What is wanted.

    *namespace*: for kinds that may not be listed in all ("": the context's). *tail*: lines of each log, -1 for all.
    *since*: seconds of each log, 0 for all. *timeout*: seconds for everything.
    """

    namespace: str = ""
    tail: int = -1
    since: int = 0
    timeout: float = 120.0


async def read_bundle(
    kubeconfig: str, *, context: str, request: Request, report: Report
) -> tuple[dict[str, bytes], list[Missing]]:
    """The files of a bundle, with the index; and what is missing. Raises :class:`ApiError` without any answer."""
    async with connected(kubeconfig, context) as (client, default):
        reader = _Reader(client, request, request.namespace or default, report)
        about = await reader.read()
    return reader.bundle.complete(about), reader.bundle.missing


@dataclass(slots=True)
class _Reader:
    """
    Reads one cluster into a bundle, step by step until the time is over.

    A step may take half of the time that is left, so that agents that do not answer leave time for logs.
    """

    client: Client
    request: Request
    namespace: str
    report: Report
    bundle: Bundle = field(default_factory=Bundle)
    groups: dict[str, WholeObject] = field(default_factory=dict)
    own_pods: list[WholeObject] = field(default_factory=list)
    group_pods: list[WholeObject] = field(default_factory=list)
    subjects: set[relevance.Subject] = field(default_factory=set)

    async def read(self) -> dict[str, Any]:
        """Read everything; return when and how."""
        started = datetime.now(UTC)
        version = await self.client.version()
        deadline = monotonic() + self.request.timeout
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "objects of kavip": self._objects,
            "workloads": self._workloads,
            "events": self._events,
            "logs of kavip": self._own_logs,  # before what many nodes may fill the bundle with
            "configurations": self._configurations,
            "agents": self._agents,
            "metrics": self._metrics,
            "doctor": self._doctor,
            "logs of groups": self._group_logs,
        }
        for name, step in steps.items():
            self.report(name)
            try:
                async with asyncio.timeout(max(0, (deadline - monotonic()) / 2)):
                    await step()
            except TimeoutError:
                self.bundle.miss(name, f"not read, or not wholly, in its part of {self.request.timeout:g} s")
        return {
            "at": f"{started:%Y-%m-%dT%H:%M:%SZ}",
            "kubernetes": version,
            "options": {"namespace": self.request.namespace, "tail": self.request.tail, "since": self.request.since},
        }

    # --- objects ------------------------------------------------------------------------------------------------------
    async def _objects(self) -> None:
        kinds = (resources.NODES, resources.POOLS, resources.GROUPS, resources.SERVICES)
        nodes, pools, groups, services = await asyncio.gather(*(self._list(resources.whole(each)) for each in kinds))
        self.groups = {each.metadata.key: each for each in groups}
        served = [each for each in services if relevance.is_served(each)]
        labels = relevance.node_labels(relevance.typed(groups, KeepalivedGroup), served)
        self._add(names.NODE, nodes, labels=labels)
        self._add(names.VIP_POOL, pools)
        self._add(names.KEEPALIVED_GROUP, groups)
        self._add(names.SERVICE, served, labels=relevance.service_labels(relevance.typed(pools, VIPPool)))
        slices = await self._list(resources.ENDPOINT_SLICES)
        counts = relevance.endpoint_counts(slices, (each.metadata.key for each in served))
        self.bundle.add_json("objects", "endpoints.json", value=texts.without_secrets(counts))

    async def _workloads(self) -> None:
        deployments, daemonsets, own, grouped, leases = await asyncio.gather(
            self._list(resources.whole(resources.DEPLOYMENTS), labels=relevance.OWN_PODS),
            self._list(resources.whole(resources.EVERY_DAEMONSET), labels=names.GROUP_LABEL),
            self._list(resources.whole(resources.PODS), labels=relevance.OWN_PODS),
            self._list(resources.whole(resources.PODS), labels=names.GROUP_LABEL),
            self._list(resources.LEASES, fields=f"metadata.name={names.LEASE_NAME}"),
        )
        homes = {each.metadata.namespace for each in deployments}
        self.subjects.update(each for home in homes for each in relevance.further_subjects(home))
        self.own_pods = [each for each in own if each.metadata.namespace in homes]
        known = (each for each in grouped if relevance.group_of(each) in self.groups)
        self.group_pods = in_turns(known, lambda each: (relevance.group_of(each), relevance.node_of(each)))
        self._add(names.DEPLOYMENT, deployments)
        self._add(names.DAEMON_SET, [each for each in daemonsets if each.metadata.key in self.groups])
        self._add(names.POD, [*self.own_pods, *self.group_pods])
        self._add(names.LEASE, leases)

    async def _events(self) -> None:
        events = await self._list(resources.EVENTS)
        found = relevance.events_about(events, self.subjects)
        self.bundle.add_objects("objects", "events.json", objects=(allowed_part("Event", each) for each in found))

    def _add(self, kind: str, objects: Sequence[Any], *, labels: Collection[str] = ()) -> None:
        """Add *objects* of one kind; from now on Events about them are wanted."""
        self.subjects.update((kind, each.metadata.key) for each in objects)
        parts = (allowed_part(kind, each, labels=labels) for each in objects)
        self.bundle.add_objects("objects", f"{kind.lower()}s.json", objects=parts)

    async def _list(self, resource: Resource[T], *, labels: str = "", fields: str = "") -> list[T]:
        """The objects of a kind, or those of one namespace if the user may list only these."""
        malformed: list[Malformed] = []
        selection: dict[str, Any] = {"labels": labels, "fields": fields, "on_malformed": malformed.append}
        what = f"list {resource.plural}"
        found: list[T] = []
        try:
            found += (await self.client.list(resource, **selection))[0]
        except Forbidden as error:
            self.bundle.miss(what, str(error))
            if resource.namespaced:
                found += await self._list_one_namespace(resource, selection)
        except ApiError as error:
            self.bundle.miss(what, str(error))
        for each in malformed[:_MOST_MALFORMED]:
            self.bundle.miss(f"{resource.kind} {each.key}", each.error)
        if len(malformed) > _MOST_MALFORMED:
            self.bundle.miss(what, f"{len(malformed) - _MOST_MALFORMED} more objects cannot be read")
        return sorted(found, key=lambda each: str(each.metadata.key))

    async def _list_one_namespace(self, resource: Resource[T], selection: dict[str, Any]) -> list[T]:
        try:
            return [*(await self.client.list(resource, namespace=self.namespace, **selection))[0]]
        except ApiError as error:
            self.bundle.miss(f"list {resource.plural} in namespace {self.namespace}", str(error))
            return []

    # --- what pods and the controller say -----------------------------------------------------------------------------
    async def _configurations(self) -> None:
        async def read(key: str) -> None:
            found = await self.client.get(resources.PUBLISHED_CONFIGS, key)
            for name, text in texts.configurations(found).items():
                self.bundle.add("groups", *key.split("/"), name, content=text)

        keys = self._some(sorted(self.groups), "configurations")
        await self._each({f"configuration of group {key}": key for key in keys}, read)

    async def _agents(self) -> None:
        async def ask(pod: WholeObject) -> None:
            port = relevance.agent_port(self.groups[relevance.group_of(pod)])
            state = texts.agent_state(await read_state(self.client, pod.metadata.key, port=port))
            self.bundle.add_json("agents", *pod.metadata.key.split("/"), "state.json", value=state)

        pods = self._some(self.group_pods, "agents")
        await self._each({f"state of the agent in pod {each.metadata.key}": each for each in pods}, ask)

    async def _metrics(self) -> None:
        async def ask(pod: WholeObject) -> None:
            raw = await self.client.read_from_pod(
                pod.metadata.key, names.METRICS_PATH, port=relevance.metrics_port(pod), most=_LARGEST_METRICS
            )
            self.bundle.add("metrics", *pod.metadata.key.split("/"), "metrics.txt", content=texts.metrics(raw))

        pods = self._some(self.own_pods, "metrics")
        await self._each({f"metrics of pod {each.metadata.key}": each for each in pods}, ask)

    async def _doctor(self) -> None:
        async def look(_: None) -> None:
            found = doctor_data(diagnose(await inspect_with(self.client)))
            self.bundle.add_json("doctor.json", value=texts.without_secrets(found))

        await self._each({"doctor": None}, look)

    async def _own_logs(self) -> None:
        await self._logs(self.own_pods)

    async def _group_logs(self) -> None:
        await self._logs(self.group_pods)

    async def _logs(self, pods: list[WholeObject]) -> None:
        async def read(log: _Log) -> None:
            raw = await self._log(log)
            path = ("logs", *log.pod.split("/"), f"{log.container}{'.previous' if log.previous else ''}.log")
            self.bundle.add(*path, content=texts.log(raw))

        found: dict[str, _Log] = {}
        for pod in self._some(pods, "logs"):
            for container, is_restarted in relevance.logged_containers(pod):
                for previous in (False, True)[: 1 + is_restarted]:
                    log = _Log(pod.metadata.key, container, previous)
                    found[str(log)] = log
        await self._each(found, read)

    async def _log(self, log: "_Log") -> bytes:
        """The last lines of *log*: fewer than wanted, if they are longer than a file may be."""
        query = {"container": log.container, "previous": str(log.previous).lower(), "timestamps": "true"}
        if self.request.since:
            query["sinceSeconds"] = str(self.request.since)
        lines = self.request.tail
        while True:
            tail = {"tailLines": str(lines)} if lines >= 0 else {}
            try:
                raw = await self.client.read_log(log.pod, {**query, **tail}, most=_LARGEST_LOG)
            except Unavailable as error:
                if error.reason != TOO_LARGE or lines == 0:
                    raise
                lines = lines // 4 if lines > 0 else _LARGEST_LOG // 256
                continue
            if lines != self.request.tail:
                self.bundle.miss(str(log), f"only its last {lines} lines are in the bundle: more are too large")
            return raw

    def _some(self, items: list[_Item], what: str) -> list[_Item]:
        """The first of *items*."""
        if len(items) > _MOST:
            self.bundle.miss(what, f"only {_MOST} of {len(items)} are looked at")
        return items[:_MOST]

    async def _each(self, items: Mapping[str, _Item], read: Callable[[_Item], Awaitable[None]]) -> None:
        """Call *read* for each item, some at once; an error costs only this item."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def guarded(name: str, item: _Item) -> None:
            async with slots:
                try:
                    await read(item)
                except (KavipError, msgspec.MsgspecError) as error:
                    self.bundle.miss(name, str(error))

        await asyncio.gather(*(guarded(name, item) for name, item in items.items()))


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of a container; *previous*: of the one that ran before."""

    pod: str
    container: str
    previous: bool

    def __str__(self) -> str:
        return f"{'previous ' * self.previous}log of container {self.container} of pod {self.pod}"
