"""What the tests of the informer share: one to follow, and what it tells."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kavip.api.workload import ConfigMap
from kavip.kube.client import Client
from kavip.kube.informer import Informer, Timing
from kavip.kube.resources import CONFIGMAPS, Resource
from tests.kube.conftest import running
from tests.kube.fakeapi import FakeApi

FAST = Timing(lifetime=60, silence=30, settled=0.05, base=0.01, cap=0.05)
OPTIONAL = Resource("v1", "configmaps", "ConfigMap", ConfigMap, optional=True)
SPARE = Resource("v1", "configmaps", "ConfigMap", ConfigMap, dispensable=True)

Api = tuple[FakeApi, Client]
Log = list[MutableMapping[str, Any]]


def follow(client: Client, resource: Resource[ConfigMap] = CONFIGMAPS, timing: Timing = FAST) -> Informer[ConfigMap]:
    """An informer with short times."""
    return Informer(client, resource, timing=timing)


def recorder(informer: Informer[ConfigMap]) -> list[str]:
    """What a subscriber is told, as ``+a/b``, ``~a/b`` and ``-a/b``; it always sees what it is told of in the store."""
    told: list[str] = []

    def record(old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new or old
        assert obj is not None
        key = obj.metadata.key
        assert new is None or informer.store[key] is new
        told.append(("~" if old and new else "+" if new else "-") + key)

    informer.subscribe(record)
    return told


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[tuple[Informer[ConfigMap], list[str]]]:
    """An informer that has listed and runs, and what it tells (:func:`recorder`)."""
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        yield informer, told


def phrases(logged: Log) -> list[str]:
    """The messages only."""
    return [entry["event"] for entry in logged]


def once(answer: Callable[[], web.StreamResponse], *, watch: bool) -> Any:
    """A fault that answers the first list or watch, and leaves the others alone."""
    done = False

    async def fault(request: web.Request) -> web.StreamResponse | None:
        nonlocal done
        if done or ("watch" in request.query) != watch:
            return None
        done = True
        return answer()

    return fault
