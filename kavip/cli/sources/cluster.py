"""
The objects of a cluster that decisions read, listed once. What the user may not read is left out, with a note.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.api.workload import ConfigMap, Written
from kavip.cli.views.listing import Listing
from kavip.errors import Forbidden, NotFound, SettingsError
from kavip.kube import resources
from kavip.kube.auth import Credentials
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource
from kavip.kube.transport import Transport
from kavip.reconcile.observed.templates import is_template, template_key
from kavip.snapshot import KINDS, Object

_TO_EXPLAIN: Final = {
    names.SERVICE: "addresses that other namespaces hold look free here",
    names.NODE: "addresses of nodes look free here",
    names.NAMESPACE: "namespace selectors count as matching",
    names.KEEPALIVED_GROUP: "the group is the one that the Service names",
    names.VIP_POOL: "what kavip would decide now is unknown",
}
"""The effect on ``kavip explain`` if a kind cannot be read."""
_TO_PLAN: Final = {
    **_TO_EXPLAIN,
    names.KEEPALIVED_GROUP: "references to groups are not checked",
    names.VIP_POOL: "references to pools are not checked",
}
"""The effect on ``kavip check`` and ``plan``."""
_NO_API_SERVER: Final = f"you may not list endpointslices of {names.API_SERVER_SERVICE}: its addresses look free here"

_WRITTEN: Final = (
    Resource(resources.CONFIGMAPS.api_version, "configmaps", names.CONFIG_MAP, Written),
    Resource(resources.DAEMONSETS.api_version, "daemonsets", names.DAEMON_SET, Written),
)
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class KindListing:
    """
    The objects of one kind.

    *namespace*: where they may be listed; "" is all namespaces, None is no namespace. *is_absent*: no object could be
    read.
    """

    resource: Resource[Any]
    objects: tuple[Object, ...] = ()
    namespace: str | None = ""
    notes: tuple[str, ...] = ()
    is_absent: bool = False


@asynccontextmanager
async def connected(kubeconfig: str, context: str) -> AsyncIterator[tuple[Client, str]]:
    """A client of the cluster of *kubeconfig* ("": the one that kubectl uses), and the namespace of its context."""
    credentials = Credentials(kubeconfig, context=context)
    async with Client(Transport(credentials)) as client:
        yield client, credentials.namespace or "default"


async def list_for_service(kubeconfig: str, *, context: str, service: str, namespace: str) -> tuple[str, Listing]:
    """The key of *service* (``ns/name``, or a name in *namespace*), and the objects that decide its addresses."""
    async with connected(kubeconfig, context) as (client, default):
        key = service if "/" in service else f"{namespace or default}/{service}"
        home = key.partition("/")[0]
        parts = await asyncio.gather(
            *(_in_namespace(client, each, home) for each in resources.DECISION_KINDS), _api_server(client)
        )
    return key, Listing(
        tuple(each for part in parts for each in part.objects),
        absent=_absent(parts),
        notes=tuple(note for part in parts for note in part.notes),
    )


async def list_for_plan(kubeconfig: str, *, context: str, given: Collection[Object]) -> Listing:
    """The other objects; of a kind that the user may not list everywhere, those in the namespaces of *given*."""
    async with connected(kubeconfig, context) as (client, _):
        found = await _list_others(client, given)
        return replace(found, templates=await _templates(client, (*found.objects, *given)))


async def list_for_conversion(client: Client, namespaces: Collection[str]) -> Listing:
    """
    The same objects; of a kind that the user may not list everywhere, those in *namespaces*.

    Raises :class:`SettingsError` if kavip is not installed: the Services would wait for it.
    """
    try:
        await client.list(resources.POOLS, on_malformed=_skip)
    except NotFound:
        raise SettingsError("this cluster has no VIPPool: install kavip first") from None
    except Forbidden:
        pass  # the listing says so
    return await _list_in(client, sorted(namespaces), frozenset(KINDS))


async def list_for_diff(kubeconfig: str, *, context: str, given: Collection[Object]) -> Listing:
    """
    The same objects as :func:`list_for_plan`, and the objects that kavip made for the groups.

    Raises :class:`SettingsError` if the user may not read an object that the difference depends on.
    """
    async with connected(kubeconfig, context) as (client, _):
        found = await _list_others(client, given)
        if found.hidden:
            raise SettingsError(f"the difference is unknown: {'; '.join(sorted(found.hidden.values()))}")
        keys = sorted(each.key for each in found.objects if isinstance(each, KeepalivedGroup))
        gate = asyncio.Semaphore(_AT_ONCE)
        parts = await asyncio.gather(*(_written(client, resource, key, gate) for resource in _WRITTEN for key in keys))
        followed = {each.key for each in (*found.objects, *given) if isinstance(each, Service) and each.needs_slices}
        slices = await asyncio.gather(*(_slices(client, key, gate) for key in sorted(followed)))
        templates = await _templates(client, (*found.objects, *given))
    objects = (*found.objects, *(each for some in slices for each in some))
    written = dict(each for part in parts for each in part)
    return replace(found, objects=objects, written=written, templates=templates)


async def list_everywhere(client: Client, resource: Resource[Any]) -> KindListing:
    """The objects of a kind in all namespaces; raises :class:`Forbidden` if the user may not list them."""
    malformed: list[Malformed] = []
    try:
        objects, _ = await client.list(resource, on_malformed=malformed.append)
    except NotFound:
        if resource.optional:
            return KindListing(resource, namespace=None)
        note = f"this cluster has no {resource.kind}: is kavip installed?"
        return KindListing(resource, namespace=None, notes=(note,), is_absent=True)
    return KindListing(resource, tuple(objects), notes=unread(resource, malformed))


def unread(resource: Resource[Any], malformed: Iterable[Malformed]) -> tuple[str, ...]:
    """The notes about objects that cannot be read."""
    return tuple(f"{resource.kind} {each.key} cannot be read: {each.error}" for each in malformed)


async def _in_namespace(client: Client, resource: Resource[Any], namespace: str) -> KindListing:
    """The objects of a kind, or those of *namespace* if the user may list only these; Services must be listable."""
    try:
        return await list_everywhere(client, resource)
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        try:
            objects = await _objects_of(client, resource, namespace)
        except Forbidden:
            if resource is resources.SERVICES:
                raise error from None
            objects = ()
    return _restricted(resource, objects, _TO_EXPLAIN)


async def _list_others(client: Client, given: Collection[Object]) -> Listing:
    namespaces = sorted({each.metadata.namespace for each in given} - {""})
    lacking = {kind for kind, name in KINDS.items() if kind is Service or not any(type(each) is kind for each in given)}
    return await _list_in(client, namespaces, lacking)


async def _list_in(client: Client, namespaces: Collection[str], lacking: Collection[type[Object]]) -> Listing:
    """The objects that decisions read; notes about those of *lacking* that cannot all be read."""
    *parts, api_server = await asyncio.gather(
        *(_in_namespaces(client, resource, namespaces) for resource in resources.DECISION_KINDS), _api_server(client)
    )
    return Listing(
        (*(each for part in parts for each in part.objects), *api_server.objects),
        absent=_absent(parts),
        hidden={part.resource.kind: note for part in parts for note in part.notes},
        notes=tuple(note for part in parts if part.resource.type in lacking for note in part.notes),
    )


async def _in_namespaces(client: Client, resource: Resource[Any], namespaces: Collection[str]) -> KindListing:
    """The objects of a kind, or those of *namespaces* if the user may list only these."""
    try:
        return await list_everywhere(client, resource)
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
    objects: dict[str, Object] = {}
    for namespace in namespaces:
        with suppress(Forbidden, NotFound):
            objects.update((each.metadata.key, each) for each in await _objects_of(client, resource, namespace))
    return _restricted(resource, tuple(objects.values()), _TO_PLAN)


def _restricted(resource: Resource[Any], objects: Sequence[Object], effects: Mapping[str, str]) -> KindListing:
    """The listing of a kind that the user may not list in all namespaces."""
    note = f"you may not list {resource.plural} of the whole cluster: {effects.get(resource.kind)}"
    # No note for an optional kind: the API server answers Forbidden also if the cluster does not have the kind.
    return KindListing(resource, tuple(objects), None, () if resource.optional else (note,), is_absent=not objects)


def _absent(parts: Collection[KindListing]) -> frozenset[str]:
    return frozenset(part.resource.kind for part in parts if part.is_absent)


async def _objects_of(client: Client, resource: Resource[Any], namespace: str) -> Sequence[Object]:
    """The objects of a kind that belong to *namespace*."""
    if resource is resources.NAMESPACES:
        return [await client.get(resource, namespace)]
    if resource.namespaced:
        return (await client.list(resource, namespace=namespace))[0]
    return ()


async def _written(
    client: Client, resource: Resource[Written], key: str, gate: asyncio.Semaphore
) -> list[tuple[str, Written]]:
    with suppress(NotFound):
        async with gate:
            return [(f"{resource.kind} {key}", await client.get(resource, key))]
    return []


async def _templates(client: Client, objects: Collection[Object]) -> tuple[ConfigMap, ...]:
    """The ConfigMaps with templates that groups among *objects* name, as far as the user may read them."""
    found = []
    for key in sorted({template_key(each) for each in objects if isinstance(each, KeepalivedGroup)} - {""}):
        with suppress(NotFound, Forbidden):
            configmap = await client.get(resources.CONFIGMAPS, key)
            found += [configmap] if is_template(configmap) else []
    return tuple(found)


async def _slices(client: Client, key: str, gate: asyncio.Semaphore) -> Sequence[Object]:
    """The EndpointSlices of the Service *key*: its VIPs follow them."""
    async with gate:
        return await _slices_of(client, key)


async def _api_server(client: Client) -> KindListing:
    """The EndpointSlices of the API server, whose addresses cannot be VIPs."""
    try:
        found = await _slices_of(client, names.API_SERVER_SERVICE)
    except Forbidden:
        return KindListing(resources.ENDPOINT_SLICES, notes=(_NO_API_SERVER,))
    return KindListing(resources.ENDPOINT_SLICES, tuple(found))


async def _slices_of(client: Client, service: str) -> Sequence[Object]:
    namespace, _, name = service.partition("/")
    labels = f"{names.SERVICE_NAME_LABEL}={name}"
    found, _ = await client.list(resources.ENDPOINT_SLICES, namespace=namespace, labels=labels, on_malformed=_skip)
    return found


def _skip(_: Malformed) -> None:
    """Skip an object that cannot be read."""
