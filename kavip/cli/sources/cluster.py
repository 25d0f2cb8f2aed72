"""
One look at a cluster: LIST what decisions read, and nothing else; whatever a user may not read is told, and left out.
"""

import asyncio
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.api.workload import Written
from kavip.cli.sources.overlay import Standing
from kavip.cli.views.explain import Around
from kavip.errors import Forbidden, NotFound, SettingsError
from kavip.kube import resources
from kavip.kube.auth import Credentials
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource
from kavip.kube.transport import Transport
from kavip.snapshot import KINDS, Object

_COSTS: Final = {
    names.SERVICE: "addresses that other namespaces hold look free here",
    names.NODE: "addresses of nodes look free here",
    names.NAMESPACE: "selectors of namespaces are taken as fulfilled",
    names.KEEPALIVED_GROUP: "which group serves the Service is taken from the Service alone",
    names.VIP_POOL: "what kavip would decide now cannot be said",
}
"""What it means that a kind cannot be read."""
_UNSEEN: Final = f"you may not list endpointslices of {names.API_SERVER_SERVICE}: its addresses look free here"

_UNCHECKED: Final = {
    **_COSTS,
    names.KEEPALIVED_GROUP: "references to groups are not checked",
    names.VIP_POOL: "references to pools are not checked",
}
_WRITTEN: Final = (
    Resource(resources.CONFIGMAPS.api_version, "configmaps", names.CONFIG_MAP, Written),
    Resource(resources.DAEMONSETS.api_version, "daemonsets", names.DAEMON_SET, Written),
)
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Part:
    """What one kind gave; *why* it could not be read (whole)."""

    resource: Resource[Any]
    objects: Sequence[Object] = ()
    notes: tuple[str, ...] = ()
    is_absent: bool = False


def usual_kubeconfig() -> str:
    """``~/.kube/config`` where there is one; "" means the pod's service account."""
    home = os.environ.get("HOME")  # a container's user may have none, and Path.home() raises
    path = Path(home or "/") / ".kube" / "config"
    if path.exists():
        return str(path)
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise SettingsError("no cluster: give --kubeconfig or set KUBECONFIG, or ask files with -f")
    return ""


async def read(kubeconfig: str, *, context: str, service: str, namespace: str) -> tuple[str, Around]:
    """
    The key of *service* (``ns/name``, or a name of *namespace*, else of the context's), and the cluster around it.

    An empty *kubeconfig* means the pod's service account.
    """
    credentials = Credentials(kubeconfig or None, context=context)
    async with Client(Transport(credentials)) as client:
        key = service if "/" in service else f"{namespace or credentials.namespace or 'default'}/{service}"
        home = key.partition("/")[0]
        parts = await asyncio.gather(
            *(_part(client, resource, home) for resource in resources.DECISION_KINDS), _api_server(client)
        )
    return key, Around(
        tuple(each for part in parts for each in part.objects),
        frozenset(part.resource.kind for part in parts if part.is_absent),
        tuple(note for part in parts for note in part.notes),
    )


async def standing(kubeconfig: str, *, context: str, given: Collection[Object]) -> Standing:
    """The cluster around the objects *given* by files; of a kind that may not be read, what their namespaces hold."""
    async with Client(Transport(Credentials(kubeconfig or None, context=context))) as client:
        return await _standing(client, given)


async def whole(kubeconfig: str, *, context: str, given: Collection[Object]) -> Standing:
    """The same, and what kavip made for the groups; raises where something cannot be read that a difference needs."""
    async with Client(Transport(Credentials(kubeconfig or None, context=context))) as client:
        found = await _standing(client, given)
        if found.hidden:
            raise SettingsError(f"no difference can be told: {'; '.join(sorted(found.hidden.values()))}")
        keys = sorted(each.key for each in found.objects if isinstance(each, KeepalivedGroup))
        gate = asyncio.Semaphore(_AT_ONCE)
        parts = await asyncio.gather(*(_written(client, resource, key, gate) for resource in _WRITTEN for key in keys))
        followed = {each.key for each in (*found.objects, *given) if isinstance(each, Service) and each.follows_slices}
        slices = await asyncio.gather(*(_slices(client, key, gate) for key in sorted(followed)))
    objects = (*found.objects, *(each for some in slices for each in some))
    return replace(found, objects=objects, written=dict(each for part in parts for each in part))


async def _standing(client: Client, given: Collection[Object]) -> Standing:
    namespaces = sorted({each.metadata.namespace for each in given} - {""})
    lacking = {kind for kind, name in KINDS.items() if kind is Service or not any(type(each) is kind for each in given)}
    *parts, api_server = await asyncio.gather(
        *(_reachable(client, resource, namespaces) for resource in resources.DECISION_KINDS), _api_server(client)
    )
    return Standing(
        (*(each for part in parts for each in part.objects), *api_server.objects),
        absent=frozenset(part.resource.kind for part in parts if part.is_absent),
        hidden={part.resource.kind: note for part in parts for note in part.notes},
        notes=tuple(note for part in parts if part.resource.type in lacking for note in part.notes),
    )


async def _reachable(client: Client, resource: Resource[Any], namespaces: Collection[str]) -> _Part:
    """What may be read of a kind: everything, or what *namespaces* hold."""
    try:
        return await _part(client, resource, "")
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
    objects: dict[str, Object] = {}
    for namespace in namespaces:
        with suppress(Forbidden, NotFound):
            found = await _of(client, resource, namespace)
            objects.update((each.metadata.key, each) for each in found)
    told = f"you may not list {resource.plural} of the whole cluster: {_UNCHECKED.get(resource.kind)}"
    return _Part(resource, tuple(objects.values()), () if resource.optional else (told,), is_absent=not objects)


async def _written(
    client: Client, resource: Resource[Written], key: str, gate: asyncio.Semaphore
) -> list[tuple[str, Written]]:
    with suppress(NotFound):
        async with gate:
            return [(f"{resource.kind} {key}", await client.get(resource, key))]
    return []


async def _slices(client: Client, key: str, gate: asyncio.Semaphore) -> Sequence[Object]:
    """Where the endpoints of the Service *key* are: its VIPs follow them."""
    namespace, _, name = key.partition("/")
    async with gate:
        labels = f"{names.SERVICE_NAME_LABEL}={name}"
        found, _ = await client.list(
            resources.ENDPOINT_SLICES, namespace=namespace, labels=labels, on_malformed=_nothing
        )
    return found


async def _part(client: Client, resource: Resource[Any], namespace: str) -> _Part:
    malformed: list[Malformed] = []
    try:
        objects, _ = await client.list(resource, on_malformed=malformed.append)
    except NotFound:
        if resource.optional:
            return _Part(resource)
        return _Part(resource, notes=(f"this cluster has no {resource.kind}: is kavip installed?",), is_absent=True)
    except Forbidden as error:
        if not namespace:
            raise
        return await _own(client, resource, namespace, error)
    notes = tuple(f"{resource.kind} {each.key} cannot be read: {each.error}" for each in malformed)
    return _Part(resource, objects, notes)


async def _api_server(client: Client) -> _Part:
    """Where the API server is; of other Services nothing is to be known. Who may not read it is told nothing new."""
    namespace, _, name = names.API_SERVER_SERVICE.partition("/")
    try:
        found, _ = await client.list(
            resources.ENDPOINT_SLICES,
            namespace=namespace,
            labels=f"{names.SERVICE_NAME_LABEL}={name}",
            on_malformed=_nothing,
        )
    except Forbidden:
        return _Part(resources.ENDPOINT_SLICES, notes=(_UNSEEN,))
    return _Part(resources.ENDPOINT_SLICES, found)


def _nothing(_: Malformed) -> None:
    """Pass over what cannot be read."""


async def _own(client: Client, resource: Resource[Any], namespace: str, error: Forbidden) -> _Part:
    """What of a kind belongs to *namespace*: all that somebody sees who may read only that."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        raise error
    objects: Sequence[Object] = ()
    try:
        objects = await _of(client, resource, namespace)
    except Forbidden:
        if resource is resources.SERVICES:
            raise error from None
    told = f"you may not list {resource.plural} of the whole cluster: {_COSTS.get(resource.kind)}"
    # where there is no such kind, who may not read it is told the same
    return _Part(resource, objects, () if resource.optional else (told,), is_absent=not objects)


async def _of(client: Client, resource: Resource[Any], namespace: str) -> Sequence[Object]:
    """The objects of a kind that belong to *namespace*."""
    if resource is resources.NAMESPACES:
        return [await client.get(resource, namespace)]
    if resource.namespaced:
        return (await client.list(resource, namespace=namespace))[0]
    return ()
