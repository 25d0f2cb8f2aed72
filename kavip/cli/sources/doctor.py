"""
What ``kavip doctor`` reads of a cluster. It stores nothing: the only object that it sends is a dry run.

What the user may not read is a gap, and so is what the API server fails to return. An API server that does not answer
at all, or does not know the user, is an error.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

from kavip.admission import registration
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import Definition, Heartbeat, PublishedConfig, Workload
from kavip.api.registration import WebhookConfiguration
from kavip.api.review import UserInfo
from kavip.cli.sources.agents import ask_agents
from kavip.cli.sources.cluster import connected, list_everywhere
from kavip.cli.views.doctor.inspection import AgentAnswer, DryRun, Gap, Inspection, Right, Source
from kavip.cli.views.doctor.programs import DEFINITIONS, needed_rights
from kavip.cli.views.doctor.webhooks import NAME, PROBE, PROBE_NAMESPACE
from kavip.errors import ApiError, Forbidden, NotFound
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource
from kavip.kube.reviewer import is_allowed
from kavip.snapshot import Object

_HEARTBEATS: Final = "kube-node-lease"
_MOST_CONFIGS: Final = 100
_TIMEOUT: Final = 5.0  # seconds for one review
_AT_ONCE: Final = 16
_NOTES: Final = 3  # objects that cannot be read

T = TypeVar("T")
_OBJECTS: Final[dict[Source, Resource[Any]]] = {
    Source.SERVICE_RANGES: resources.SERVICE_CIDRS,
    Source.NODES: resources.NODES,
    Source.POOLS: resources.POOLS,
    Source.GROUPS: resources.GROUPS,
    Source.SERVICES: resources.SERVICES,
}
_CONFIGURATIONS: Final = {
    registration.MUTATING: resources.MUTATING_WEBHOOKS,
    registration.VALIDATING: resources.VALIDATING_WEBHOOKS,
}


async def inspect(kubeconfig: str, *, context: str) -> Inspection:
    """Read the cluster of *kubeconfig*."""
    async with connected(kubeconfig, context) as (client, _):
        return await inspect_with(client)


async def inspect_with(client: Client) -> Inspection:
    """Read the cluster of *client*."""
    return await _Reader(client).read()


@dataclass(slots=True)
class _Reader:
    """Reads one cluster, and collects the gaps."""

    client: Client
    gaps: dict[Source, Gap] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def read(self) -> Inspection:
        """Read everything: what depends on other objects last."""
        kinds = await asyncio.gather(*(self._try(source, self._objects(source), ()) for source in _OBJECTS))
        objects = tuple(each for some in kinds for each in some)
        groups = [each for each in objects if isinstance(each, KeepalivedGroup)]
        workloads = await self._try(Source.WORKLOADS, self._workloads(), ())
        return Inspection(
            objects=objects,
            version=await self._try(Source.VERSION, self.client.version(), ""),
            definitions=await self._try(Source.DEFINITIONS, self._definitions(), {}),
            configurations=await self._try(Source.WEBHOOKS, self._configurations(), {}),
            dry_run=await self._dry_run(),
            workloads=workloads,
            denied=await self._try(Source.REVIEWS, self._denied(workloads), ()),
            heartbeats=await self._try(Source.HEARTBEATS, self._heartbeats(), ()),
            configs=await self._try(Source.CONFIGS, self._configs(groups), {}),
            agents=await self._try(Source.AGENTS, self._agents(groups), ()),
            at=datetime.now(UTC),
            gaps=self.gaps,
        )

    async def _try(self, source: Source, reading: Awaitable[T], nothing: T) -> T:
        """The result of *reading*, or *nothing* and a gap if *source* cannot be read."""
        try:
            return await reading
        except ApiError as error:
            if error.status in (0, HTTPStatus.UNAUTHORIZED):
                raise
            self.gaps[source] = Gap(f"you may not {source}" if isinstance(error, Forbidden) else f"{source}: {error}")
            return nothing

    # --- objects ------------------------------------------------------------------------------------------------------
    async def _objects(self, source: Source) -> tuple[Object, ...]:
        found = await list_everywhere(self.client, _OBJECTS[source])
        if found.notes and not found.is_absent:
            self.gaps[source] = Gap("; ".join(found.notes[:_NOTES]), is_whole=False)
        return found.objects

    async def _definitions(self) -> dict[str, Definition]:
        return await self._named(resources.DEFINITIONS, DEFINITIONS)

    async def _configurations(self) -> dict[str, WebhookConfiguration]:
        found = {kind: await self._named(resource, (NAME,)) for kind, resource in _CONFIGURATIONS.items()}
        return {kind: one for kind, some in found.items() for one in some.values()}

    async def _configs(self, groups: Iterable[KeepalivedGroup]) -> dict[str, PublishedConfig]:
        keys = sorted(each.key for each in groups)
        if len(keys) > _MOST_CONFIGS:
            self.gaps[Source.CONFIGS] = Gap(f"only {_MOST_CONFIGS} of {len(keys)} groups are looked at", is_whole=False)
        return await self._named(resources.PUBLISHED_CONFIGS, keys[:_MOST_CONFIGS])

    async def _agents(self, groups: Iterable[KeepalivedGroup]) -> tuple[AgentAnswer, ...]:
        answers, gap = await ask_agents(self.client, groups)
        if gap is not None:
            self.gaps[Source.AGENTS] = gap
        return answers

    async def _named(self, resource: Resource[Any], keys: Iterable[str]) -> dict[str, Any]:
        """The objects with *keys* that exist."""
        found = {}
        for key in keys:
            try:
                found[key] = await self.client.get(resource, key)
            except NotFound:
                continue
        return found

    async def _workloads(self) -> tuple[Workload, ...]:
        deployments, _ = await self.client.list(resources.DEPLOYMENTS, on_malformed=_skip)
        daemonsets, _ = await self.client.list(resources.EVERY_DAEMONSET, on_malformed=_skip)
        return (*deployments, *daemonsets)

    async def _heartbeats(self) -> tuple[Heartbeat, ...]:
        found, _ = await self.client.list(resources.HEARTBEATS, namespace=_HEARTBEATS, on_malformed=_skip)
        return tuple(sorted(found, key=lambda each: each.metadata.name))

    # --- the webhook and the rights -----------------------------------------------------------------------------------
    async def _dry_run(self) -> DryRun | None:
        """The answer to a Service that kavip refuses; None, with a gap, if something else forbids it."""
        try:
            await self.client.create_dry_run(resources.SERVICES, f"{PROBE_NAMESPACE}/kavip-doctor", PROBE)
        except Forbidden as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise
            self.gaps[Source.DRY_RUN] = Gap(f"you may not {Source.DRY_RUN}, which is sent as a dry run")
            return None
        except ApiError as error:
            if not error.status:
                raise
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                self.gaps[Source.DRY_RUN] = Gap(f"the dry run of a Service: {error}")
                return None
            return DryRun(error.status, error.message)
        return DryRun(HTTPStatus.CREATED)

    async def _denied(self, workloads: tuple[Workload, ...]) -> tuple[Right, ...]:
        rights = needed_rights(workloads)
        allowed = await asyncio.gather(*map(self._is_allowed, rights))
        return tuple(each for each, is_held in zip(rights, allowed, strict=True) if not is_held)

    async def _is_allowed(self, right: Right) -> bool:
        namespace, _, name = right.account.partition("/")
        everyone = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        user = UserInfo(username=f"system:serviceaccount:{namespace}:{name}", groups=everyone)
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        attributes["namespace"] = right.namespace
        async with self.slots:
            return await is_allowed(self.client, user, {"resourceAttributes": attributes}, timeout=_TIMEOUT)


def _skip(_: Malformed) -> None:
    """Skip an object that cannot be read."""
