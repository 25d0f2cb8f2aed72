"""The informer, when the API server is slow, busy, broken or gone."""

import asyncio

import pytest
from aiohttp import web

from kavip.kube.informer import Timing
from tests.kube.conftest import running, until
from tests.kube.fakeapi import configmap, line, status
from tests.kube.informers import Api, Log, follow, once, phrases, recorder

SILENCE = 1.0
"""Seconds: who stalls for less says something in time."""


@pytest.mark.slow
async def test_a_silent_connection_is_given_up_and_nothing_is_lost(api: Api, logged: Log) -> None:
    """A watch on which no byte comes for long is opened again where it stood; that alone is no trouble."""
    fake, client = api
    silent = asyncio.Event()

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query or len(fake.watches) > 1:
            return None
        answer = web.StreamResponse()
        await answer.prepare(request)
        silent.set()
        await asyncio.sleep(3600)
        return answer

    fake.fault = fault
    informer = follow(client, timing=Timing(lifetime=60, silence=SILENCE, settled=0.05, base=0.01, cap=0.05))
    async with running(informer.run()):
        await asyncio.wait_for(silent.wait(), 30)
        await fake.put("a/meanwhile")
        await until(lambda: "a/meanwhile" in informer.store)
    assert len(fake.lists) == 1
    assert fake.watches[1]["resourceVersion"] == fake.watches[0]["resourceVersion"]
    assert phrases(logged) == ["cache filled"]


@pytest.mark.slow
async def test_a_server_that_answers_no_more_is_trouble(api: Api, logged: Log) -> None:
    """Silence shows when the watch is opened again: a connection that yields nothing at all is an outage."""
    fake, client = api
    informer = follow(client, timing=Timing(lifetime=60, silence=SILENCE, settled=0.05, base=0.01, cap=0.05))

    async def hang(request: web.Request) -> None:
        await asyncio.sleep(3600)

    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = hang
        await until(lambda: informer.trouble == "Unavailable")
        fake.fault = None
        await until(lambda: not informer.trouble)
    assert phrases(logged) == ["cache filled", "watch interrupted; retrying", "watch works again"]


async def test_429_is_obeyed_and_logged_once(api: Api, logged: Log) -> None:
    """No request comes before Retry-After has passed; any number of refusals is one line, its end another."""
    fake, client = api
    times: list[float] = []

    async def fault(request: web.Request) -> web.StreamResponse | None:
        times.append(asyncio.get_running_loop().time())
        busy = status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 0.3}}
        return web.json_response(busy, status=429) if len(times) < 3 else None

    fake.fault = fault
    informer = follow(client)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        assert informer.trouble == "Throttled"
        await until(lambda: not informer.trouble)
    assert times[1] - times[0] >= 0.3
    assert times[2] - times[1] >= 0.3
    assert phrases(logged) == ["watch interrupted; retrying", "cache filled", "watch works again"]


async def test_an_outage_is_one_line_and_its_end_another(api: Api, logged: Log) -> None:
    """A proxy's 502 with HTML, a 503, a broken connection: retried until it is over, the store as it was."""
    fake, client = api
    await fake.put("a/one")
    refused = 0

    async def outage(request: web.Request) -> web.StreamResponse | None:
        nonlocal refused
        refused += 1
        if refused % 3 == 0 and request.transport is not None:
            request.transport.abort()
        return web.Response(status=502 + refused % 2, text="<html>secret</html>", content_type="text/html")

    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = outage
        await fake.fail(500, "InternalError")
        await until(lambda: refused > 12)
        assert list(informer.store) == ["a/one"]
        await fake.put("a/two")
        fake.fault = None
        await until(lambda: "a/two" in informer.store)
        await until(lambda: not informer.trouble)
    assert phrases(logged) == ["cache filled", "watch interrupted; retrying", "watch works again"]
    assert "html" not in str(logged)
    assert len(fake.lists) == 1


async def test_a_watch_that_always_ends_at_once_backs_off(api: Api) -> None:
    """An API server that closes each watch as soon as it is open is not hammered."""
    fake, client = api

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        answer = web.StreamResponse()
        await answer.prepare(request)
        return answer

    fake.fault = fault
    informer = follow(client, timing=Timing(settled=30, base=0.05, cap=0.05))
    async with running(informer.run()):
        await until(lambda: informer.trouble == "Unavailable")
        began, before = asyncio.get_running_loop().time(), len(fake.watches)
        await asyncio.sleep(0.3)
        lasted = asyncio.get_running_loop().time() - began
        assert len(fake.watches) - before <= lasted / 0.025 + 1


@pytest.mark.parametrize("body", [b"{}", b'{"items":null}', b"[]", b"<html>", b""])
async def test_an_answer_that_is_no_list_deletes_nothing(api: Api, body: bytes) -> None:
    """200 with something else in it, from a proxy or a server that dies, is an outage."""
    fake, client = api
    await fake.put("a/one")
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = once(lambda: web.Response(body=body), watch=False)
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) > 1)
    assert told == ["+a/one"]
    assert len(fake.lists) == 3


async def test_a_torn_line_is_read_again_as_a_whole(api: Api) -> None:
    """What stands after the last newline of a connection that ends was never told."""
    fake, client = api
    whole = line("ADDED", configmap("a/torn", 50))

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        answer = web.StreamResponse()
        await answer.prepare(request)
        if len(fake.watches) == 1:
            await answer.write(whole[:50])
            return answer
        for byte in range(0, len(whole), 7):
            await answer.write(whole[byte : byte + 7])
            await asyncio.sleep(0)
        await asyncio.sleep(3600)
        return answer

    fake.fault = fault
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await until(lambda: told)
    assert told == ["+a/torn"]
    assert len(fake.lists) == 1


async def test_a_server_whose_storage_was_set_back_is_listed_again(api: Api) -> None:
    """A version that the server has not reached is not waited for."""
    fake, client = api
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        await fake.fail(504, "Timeout", "Too large resource version: 9, current: 4")
        await until(lambda: len(fake.watches) > 1)
    assert len(fake.lists) == 2
