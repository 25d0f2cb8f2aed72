"""Helpers for tests of the informer: an informer with short times, and a recorder of its notifications."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kavip.api.workload import ConfigMap
from kavip.kube.client import Client
from kavip.kube.informer import Informer, InformerTiming
from kavip.kube.resources import CONFIGMAPS, Resource
from tests.kube.conftest import running
from tests.kube.fakeapi import FakeApi

FAST = InformerTiming(lifetime=60, silence=30, settled=0.05, base=0.01, cap=0.05)
OPTIONAL = Resource("v1", "configmaps", "ConfigMap", ConfigMap, optional=True)
SPARE = Resource("v1", "configmaps", "ConfigMap", ConfigMap, tolerate_forbidden=True)

Api = tuple[FakeApi, Client]
Log = list[MutableMapping[str, Any]]


def informer_of(
    client: Client, resource: Resource[ConfigMap] = CONFIGMAPS, timing: InformerTiming = FAST
) -> Informer[ConfigMap]:
    """An informer with short times."""
    return Informer(client, resource, timing=timing)


def recorder(informer: Informer[ConfigMap]) -> list[str]:
    """The notifications as ``+a/b``, ``~a/b`` and ``-a/b``; it asserts that the store has each notified object."""
    notified: list[str] = []

    def record(old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new or old
        assert obj is not None
        key = obj.metadata.key
        assert new is None or informer.store[key] is new
        notified.append(("~" if old and new else "+" if new else "-") + key)

    informer.subscribe(record)
    return notified


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[tuple[Informer[ConfigMap], list[str]]]:
    """A running informer that has listed, and its notifications (:func:`recorder`)."""
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        yield informer, notified


def phrases(logged: Log) -> list[str]:
    """The event names of log lines."""
    return [entry["event"] for entry in logged]


def once(answer: Callable[[], web.StreamResponse], *, watch: bool) -> Any:
    """A fault that answers the first list or watch only."""
    done = False

    async def fault(request: web.Request) -> web.StreamResponse | None:
        nonlocal done
        if done or ("watch" in request.query) != watch:
            return None
        done = True
        return answer()

    return fault
