"""Watches the source of a certificate and the webhook configurations by name, and ends a wait after a change."""

import asyncio
from typing import Any, Final, Generic

from kavip.kube.client import Client
from kavip.kube.informer import Informer
from kavip.kube.resources import Resource, T
from kavip.webhook.certs.cabundle import CONFIGURATIONS

_DEBOUNCE: Final = 0.2  # seconds: debounces bursts, and rate-limits fights with other writers


class CertificateWatch(Generic[T]):
    """A watch on the object *key* of *resource*, and on both webhook configurations called *configuration*."""

    def __init__(self, client: Client, resource: Resource[T], key: str, *, configuration: str) -> None:
        """:meth:`run` starts the watch."""
        self._key = key
        namespace, _, name = key.partition("/")
        self._source: Informer[T] = _by_name(client, resource, name, namespace=namespace)
        self._informers = [self._source, *(_by_name(client, each, configuration) for each in CONFIGURATIONS)]
        self._changed = asyncio.Event()
        for informer in self._informers:
            informer.subscribe(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run(), name=f"watch {informer.resource.kind} for certificates")

    async def wait(self, seconds: float) -> None:
        """Return after a change, or after *seconds*."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                await asyncio.sleep(_DEBOUNCE)
        except TimeoutError:
            pass
        self._changed.clear()

    def source(self) -> T | str:
        """The object, or why there is none; "" while that is unknown."""
        if (found := self._source.store.get(self._key)) is not None:
            return found
        if self._source.synced.is_set():
            return "does not exist"
        return f"cannot be read: {self._source.current_error}" if self._source.current_error else ""


def _by_name(client: Client, resource: Resource[Any], name: str, *, namespace: str = "") -> Informer[Any]:
    """An informer for one name: RBAC can restrict a watch to that."""
    return Informer(client, resource, namespace=namespace, fields=f"metadata.name={name}")
