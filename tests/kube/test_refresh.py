"""Requested lists: an informer shows what its watch has not delivered."""

import asyncio

from aiohttp import web

from kavip.kube.informer import Informer, InformerTiming
from tests.kube.conftest import running, until
from tests.kube.fakeapi import FakeApi, configmap, refusal
from tests.kube.informers import OPTIONAL, Api, informer_of, once

SLOW = InformerTiming(lifetime=60, silence=30, settled=0.05, base=600, cap=600)


def put_silently(fake: FakeApi, key: str) -> None:
    """Create an object that no watch delivers."""
    fake.version += 1
    fake.objects[key] = configmap(key, fake.version)


async def listed(informer: Informer, number: int) -> None:  # type: ignore[type-arg]  # of whatever
    """Wait for a list."""
    await asyncio.wait_for(informer.wait_listed(number), 30)


async def test_a_requested_list_shows_undelivered_changes(api: Api) -> None:
    """The list starts after the request; then the watch continues."""
    fake, client = api
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        put_silently(fake, "a/late")
        assert not informer.store
        await listed(informer, informer.request_list())
        assert list(informer.store) == ["a/late"]
        await until(lambda: len(fake.watches) == 2)
        assert fake.watches[1]["resourceVersion"] == str(fake.version)
        await fake.put("a/later")
        await until(lambda: len(informer.store) == 2)


async def test_the_first_list_serves_an_earlier_request(api: Api) -> None:
    """It starts after the request, so no second list is needed."""
    fake, client = api
    informer = informer_of(client)
    number = informer.request_list()
    async with running(informer.run()):
        await listed(informer, number)
        await until(lambda: fake.watches)
    assert (len(fake.lists), len(fake.watches)) == (1, 1)


async def test_a_list_in_progress_does_not_serve_a_request(api: Api) -> None:
    """Its content may be older than the request."""
    fake, client = api
    gate = asyncio.Event()

    async def stale(request: web.Request) -> web.StreamResponse | None:
        if gate.is_set() or "watch" in request.query:
            return None
        answer = fake._list(request)
        await gate.wait()
        return answer

    fake.fault = stale
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.lists)
        number = informer.request_list()
        put_silently(fake, "a/late")
        gate.set()
        await listed(informer, number)
    assert list(informer.store) == ["a/late"]


async def test_a_failed_list_stays_pending(api: Api) -> None:
    """A working watch does not serve the request either."""
    fake, client = api
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        put_silently(fake, "a/late")
        fake.fault = once(lambda: refusal(503, "ServiceUnavailable"), watch=False)
        await listed(informer, informer.request_list())
    assert list(informer.store) == ["a/late"]


async def test_a_request_ends_the_back_off_of_an_absent_kind(api: Api) -> None:
    """If the kind is still absent, the request is served."""
    fake, client = api

    async def absent(_: web.Request) -> web.StreamResponse:
        return refusal(404, "NotFound")

    fake.fault = absent
    informer = informer_of(client, OPTIONAL, timing=SLOW)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        await listed(informer, informer.request_list())
    assert len(fake.lists) == 2


async def test_another_label_selector_causes_a_list(api: Api) -> None:
    """Objects come and go with the selector, and the watch uses it; the same selector changes nothing."""
    fake, client = api
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        informer.select("")
        before = informer.list_pending
        informer.select("app in (web)")
        assert (before, informer.list_pending) == (False, True)
        await asyncio.wait_for(informer.wait_current(), 30)
        await until(lambda: len(fake.watches) == 2)
    assert [query.get("labelSelector") for query in (*fake.lists, *fake.watches)] == [
        *(None, "app in (web)"),
        *(None, "app in (web)"),
    ]
