"""
What ``kavip status`` looks at: four kinds, listed once or watched. It needs the right to list them, and no other.

Of a namespaced kind that may not be read in the whole cluster, what the namespace holds is shown. A watch goes on when
the API server goes: what was seen last stays, and it is said that it may be old.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from kavip import names
from kavip.errors import Forbidden, NotFound
from kavip.kube import resources
from kavip.kube.auth import Credentials
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.informer import Informer
from kavip.kube.resources import Resource
from kavip.kube.transport import Transport
from kavip.snapshot import Object

KINDS: Final = (resources.NODES, resources.POOLS, resources.GROUPS, resources.SERVICES)
REST: Final = 0.5
"""Seconds between two views: what changes together is shown together."""
_COSTS: Final = {
    names.NODE: "those that hold no VIP are not shown",
    names.VIP_POOL: "pools are not shown",
    names.KEEPALIVED_GROUP: "groups, and which node holds a VIP, are not shown",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The *objects*, what could not be read (*notes*), and since it may be old, what is wrong (*trouble*)."""

    objects: tuple[Object, ...]
    notes: tuple[str, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """One kind, in the *namespace* in which it may be read ("": everywhere; None: nowhere)."""

    resource: Resource[Any]
    objects: tuple[Object, ...] = ()
    namespace: str | None = ""
    notes: tuple[str, ...] = ()


async def look(kubeconfig: str, *, context: str, namespace: str) -> Scene:
    """What there is now; *namespace*: where to look for what may not be read elsewhere, "": the context's."""
    async with _client(kubeconfig, context, namespace) as (client, home):
        return _scene(await asyncio.gather(*(_part(client, each, home) for each in KINDS)))


async def follow(kubeconfig: str, *, context: str, namespace: str) -> AsyncIterator[Scene]:
    """What there is now, and again whenever something changes, for ever."""
    async with _client(kubeconfig, context, namespace) as (client, home), asyncio.TaskGroup() as tasks:
        parts = await asyncio.gather(*(_part(client, each, home) for each in KINDS))
        notes = _scene(parts).notes
        changed = asyncio.Event()
        informers = [
            Informer(client, part.resource, namespace=part.namespace) for part in parts if part.namespace is not None
        ]
        for informer in informers:
            informer.subscribe(lambda _old, _new: changed.set())
            tasks.create_task(informer.run())
        for informer in informers:
            await informer.wait_listed(1)
        while True:
            objects = tuple(each for informer in informers for _, each in sorted(informer.store.items()))
            trouble = _trouble(informers)
            changed.clear()
            yield Scene(objects, notes, trouble)
            while not changed.is_set() and trouble == _trouble(informers):
                await asyncio.sleep(REST)


def _trouble(informers: list[Informer[Any]]) -> str:
    return next((informer.current_error for informer in informers if informer.current_error), "")


@asynccontextmanager
async def _client(kubeconfig: str, context: str, namespace: str) -> AsyncIterator[tuple[Client, str]]:
    credentials = Credentials(kubeconfig or None, context=context)
    async with Client(Transport(credentials)) as client:
        yield client, namespace or credentials.namespace or "default"


def _scene(parts: list[_Part]) -> Scene:
    return Scene(
        tuple(each for part in parts for each in part.objects), tuple(note for part in parts for note in part.notes)
    )


async def _part(client: Client, resource: Resource[Any], home: str) -> _Part:
    malformed: list[Malformed] = []
    try:
        objects, _ = await client.list(resource, on_malformed=malformed.append)
    except NotFound:
        why = f"this cluster has no {resource.kind}: is kavip installed?"
        return _Part(resource, namespace=None, notes=(why,))
    except Forbidden as error:
        return await _part_of(client, resource, home, error)
    notes = tuple(f"{resource.kind} {each.key} cannot be read: {each.error}" for each in malformed)
    return _Part(resource, tuple(objects), notes=notes)


async def _part_of(client: Client, resource: Resource[Any], home: str, error: Forbidden) -> _Part:
    """What of a kind stands in the namespace *home*; Services must be readable there at least."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        raise error
    told = f"you may not list {resource.plural} of the whole cluster"
    if resource.namespaced:
        try:
            objects, _ = await client.list(resource, namespace=home)
        except Forbidden:
            if resource is resources.SERVICES:
                raise error from None
        else:
            return _Part(resource, tuple(objects), home, (f"{told}: only those of namespace {home} are shown",))
    return _Part(resource, namespace=None, notes=(f"{told}: {_COSTS[resource.kind]}",))
