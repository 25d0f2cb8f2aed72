"""An informer that is asked for a list shows what its watch has not told."""

import asyncio

from aiohttp import web

from kavip.kube.informer import Informer, Timing
from tests.kube.conftest import running, until
from tests.kube.fakeapi import FakeApi, configmap, refusal
from tests.kube.informers import OPTIONAL, Api, follow, once

SLOW = Timing(lifetime=60, silence=30, settled=0.05, base=600, cap=600)


def slip(fake: FakeApi, key: str) -> None:
    """Let an object come of which no watch tells yet."""
    fake.version += 1
    fake.objects[key] = configmap(key, fake.version)


async def listed(informer: Informer, number: int) -> None:  # type: ignore[type-arg]  # of whatever
    """Wait for a list."""
    await asyncio.wait_for(informer.came(number), 30)


async def test_a_list_shows_what_the_watch_owes(api: Api) -> None:
    """Whoever asks waits for a list that begins then; afterwards the watch goes on from there."""
    fake, client = api
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        slip(fake, "a/late")
        assert not informer.store
        await listed(informer, informer.ask())
        assert list(informer.store) == ["a/late"]
        await until(lambda: len(fake.watches) == 2)
        assert fake.watches[1]["resourceVersion"] == str(fake.version)
        await fake.put("a/later")
        await until(lambda: len(informer.store) == 2)


async def test_who_asks_before_the_first_list_needs_no_second(api: Api) -> None:
    """The first list begins after the question, so it is the answer."""
    fake, client = api
    informer = follow(client)
    number = informer.ask()
    async with running(informer.run()):
        await listed(informer, number)
        await until(lambda: fake.watches)
    assert (len(fake.lists), len(fake.watches)) == (1, 1)


async def test_a_list_that_has_begun_already_is_no_answer(api: Api) -> None:
    """What it says may be older than the question."""
    fake, client = api
    gate = asyncio.Event()

    async def stale(request: web.Request) -> web.StreamResponse | None:
        if gate.is_set() or "watch" in request.query:
            return None
        answer = fake._list(request)
        await gate.wait()
        return answer

    fake.fault = stale
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.lists)
        number = informer.ask()
        slip(fake, "a/late")
        gate.set()
        await listed(informer, number)
    assert list(informer.store) == ["a/late"]


async def test_a_list_that_fails_is_still_owed(api: Api) -> None:
    """A watch that works is no answer either."""
    fake, client = api
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        slip(fake, "a/late")
        fake.fault = once(lambda: refusal(503, "ServiceUnavailable"), watch=False)
        await listed(informer, informer.ask())
    assert list(informer.store) == ["a/late"]


async def test_a_kind_that_is_absent_is_asked_for_at_once(api: Api) -> None:
    """Its back-off is nobody's hurry until somebody asks; that it is still absent is an answer."""
    fake, client = api

    async def absent(_: web.Request) -> web.StreamResponse:
        return refusal(404, "NotFound")

    fake.fault = absent
    informer = follow(client, OPTIONAL, timing=SLOW)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        await listed(informer, informer.ask())
    assert len(fake.lists) == 2


async def test_other_labels_are_another_list(api: Api) -> None:
    """What they pick comes, what they do not goes, and the watch goes on with them; the same labels ask nothing."""
    fake, client = api
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        informer.select("")
        before = informer.is_behind
        informer.select("app in (web)")
        assert (before, informer.is_behind) == (False, True)
        await asyncio.wait_for(informer.caught_up(), 30)
        await until(lambda: len(fake.watches) == 2)
    assert [query.get("labelSelector") for query in (*fake.lists, *fake.watches)] == [
        *(None, "app in (web)"),
        *(None, "app in (web)"),
    ]
