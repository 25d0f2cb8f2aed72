"""
One look at a cluster: LIST what decisions read, and nothing else; whatever a user may not read is told, and left out.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from kavip import names
from kavip.errors import Forbidden, NotFound, SettingsError
from kavip.explaining import Around
from kavip.kube import resources
from kavip.kube.auth import Credentials
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource
from kavip.kube.transport import Transport
from kavip.snapshot import Object

_COSTS: Final = {
    names.SERVICE: "addresses that other namespaces hold look free here",
    names.NODE: "addresses of nodes look free here",
    names.NAMESPACE: "selectors of namespaces are taken as fulfilled",
    names.KEEPALIVED_GROUP: "which group serves the Service is taken from the Service alone",
    names.VIP_POOL: "what kavip would decide now cannot be said",
}
"""What it means that a kind cannot be read."""


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
        parts = await asyncio.gather(*(_part(client, resource, home) for resource in resources.DECISIVE))
    return key, Around(
        tuple(each for part in parts for each in part.objects),
        frozenset(part.resource.kind for part in parts if part.is_absent),
        tuple(note for part in parts for note in part.notes),
    )


async def _part(client: Client, resource: Resource[Any], namespace: str) -> _Part:
    malformed: list[Malformed] = []
    try:
        objects, _ = await client.list(resource, undecodable=malformed.append)
    except NotFound:
        if resource.optional:
            return _Part(resource)
        return _Part(resource, notes=(f"this cluster has no {resource.kind}: is kavip installed?",), is_absent=True)
    except Forbidden as error:
        return await _own(client, resource, namespace, error)
    notes = tuple(f"{resource.kind} {each.key} cannot be read: {each.why}" for each in malformed)
    return _Part(resource, objects, notes)


async def _own(client: Client, resource: Resource[Any], namespace: str, error: Forbidden) -> _Part:
    """What of a kind belongs to *namespace*: all that somebody sees who may read only that."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        raise error
    objects: Sequence[Object] = ()
    try:
        if resource is resources.NAMESPACES:
            objects = [await client.get(resource, namespace)]
        elif resource.namespaced:
            objects, _ = await client.list(resource, namespace=namespace)
    except Forbidden:
        if resource is resources.SERVICES:
            raise error from None
    told = f"you may not list {resource.plural} of the whole cluster: {_COSTS.get(resource.kind)}"
    # where there is no such kind, who may not read it is told the same
    return _Part(resource, objects, () if resource.optional else (told,), is_absent=not objects)
