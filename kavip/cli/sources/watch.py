"""
The objects that ``kavip status`` and ``kavip ui`` show, listed once or watched. ``status`` reads four kinds.

If the user may not list a namespaced kind in all namespaces, the objects of one namespace are shown. A watch continues
when the API server does not answer: the last objects stay, and :attr:`Listing.watch_error` says that they may be
outdated.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

from kavip import names
from kavip.cli.sources.cluster import KindListing, connected, list_everywhere, unread
from kavip.cli.views.listing import Listing
from kavip.errors import Forbidden
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.informer import Informer
from kavip.kube.resources import Resource

_STATUS: Final = (resources.NODES, resources.POOLS, resources.GROUPS, resources.SERVICES)
INTERVAL: Final = 0.5
"""Seconds between two listings: changes that come together are shown together."""
_EFFECTS: Final = {
    names.NODE: "nodes that hold no VIP are not shown",
    names.VIP_POOL: "pools are not shown",
    names.KEEPALIVED_GROUP: "groups, and the nodes that hold VIPs, are not shown",
    names.SERVICE: "Services are not shown",
    names.NAMESPACE: "namespace selectors count as matching",
}
"""The effect if a kind cannot be read."""


async def list_status(kubeconfig: str, *, context: str, namespace: str) -> Listing:
    """The objects as they are now; *namespace* is used for kinds that may not be listed in all ("": the context's)."""
    async with connected(kubeconfig, context) as (client, default):
        parts = await asyncio.gather(*(_listed(client, each, namespace or default) for each in _STATUS))
    return Listing(tuple(each for part in parts for each in part.objects), notes=_notes(parts))


async def watch_status(kubeconfig: str, *, context: str, namespace: str) -> AsyncIterator[Listing]:
    """The objects as they are now, and again after each change, without an end."""
    async with connected(kubeconfig, context) as (client, default):
        parts = await asyncio.gather(*(_listed(client, each, namespace or default) for each in _STATUS))
        async for listing in _watched(client, parts):
            yield listing


async def watch_decisions(client: Client, namespace: str) -> AsyncIterator[Listing]:
    """The same with all kinds that decisions read; a kind that the user may not list, Services too, is a note."""
    parts = await asyncio.gather(*(_listed_or_note(client, each, namespace) for each in resources.DECISION_KINDS))
    async for listing in _watched(client, parts):
        yield listing


async def _watched(client: Client, parts: Sequence[KindListing]) -> AsyncIterator[Listing]:
    """The objects of the kinds of *parts*, as they are now, and again after each change."""
    readable = [(part.resource, part.namespace) for part in parts if part.namespace is not None]
    informers = [Informer(client, resource, namespace=where) for resource, where in readable]
    async with asyncio.TaskGroup() as tasks:
        changed = asyncio.Event()
        for informer in informers:
            informer.subscribe(lambda _old, _new: changed.set())
            tasks.create_task(informer.run())
        for informer in informers:
            await informer.wait_listed(1)
        while True:
            objects = tuple(each for informer in informers for _, each in sorted(informer.store.items()))
            watch_error = _watch_error(informers)
            changed.clear()
            yield Listing(objects, absent=_absent(parts), notes=_notes(parts), watch_error=watch_error)
            while not changed.is_set() and watch_error == _watch_error(informers):
                await asyncio.sleep(INTERVAL)


def _watch_error(informers: Iterable[Informer[Any]]) -> str:
    return next((informer.current_error for informer in informers if informer.current_error), "")


def _absent(parts: Iterable[KindListing]) -> frozenset[str]:
    """The kinds of which no object is known; an optional kind that is not installed has none."""
    return frozenset(part.resource.kind for part in parts if part.namespace is None and part.notes)


def _notes(parts: Iterable[KindListing]) -> tuple[str, ...]:
    return tuple(note for part in parts for note in part.notes)


async def _listed(client: Client, resource: Resource[Any], namespace: str) -> KindListing:
    """The objects of a kind, or those of *namespace* if the user may list only these; Services must be listable."""
    try:
        return await list_everywhere(client, resource)
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        note = f"you may not list {resource.plural} of the whole cluster"
        if resource.namespaced:
            malformed: list[Malformed] = []
            try:
                objects, _ = await client.list(resource, namespace=namespace, on_malformed=malformed.append)
            except Forbidden:
                if resource is resources.SERVICES:
                    raise error from None
            else:
                only = f"{note}: only those of namespace {namespace} are shown"
                return KindListing(resource, tuple(objects), namespace, (only, *unread(resource, malformed)))
    return KindListing(resource, namespace=None, notes=(f"{note}: {_effect(resource)}",))


async def _listed_or_note(client: Client, resource: Resource[Any], namespace: str) -> KindListing:
    try:
        return await _listed(client, resource, namespace)
    except Forbidden as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
    return KindListing(resource, namespace=None, notes=(f"you may not list {resource.plural}: {_effect(resource)}",))


def _effect(resource: Resource[Any]) -> str:
    return _EFFECTS.get(resource.kind, "what depends on them is not known")
