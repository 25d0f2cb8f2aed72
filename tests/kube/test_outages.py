"""The informer with a slow, busy, broken or missing API server."""

import asyncio

import pytest
from aiohttp import web

from kavip.kube.informer import InformerTiming
from tests.kube.conftest import running, until
from tests.kube.fakeapi import configmap, line, status
from tests.kube.informers import Api, Log, informer_of, once, phrases, recorder

SILENCE = 1.0
"""Seconds: who stalls for less says something in time."""


@pytest.mark.slow
async def test_a_silent_watch_is_opened_again(api: Api, logged: Log) -> None:
    """It continues at the same version, and that alone is no error."""
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
    informer = informer_of(
        client, timing=InformerTiming(lifetime=60, silence=SILENCE, settled=0.05, base=0.01, cap=0.05)
    )
    async with running(informer.run()):
        await asyncio.wait_for(silent.wait(), 30)
        await fake.put("a/meanwhile")
        await until(lambda: "a/meanwhile" in informer.store)
    assert len(fake.lists) == 1
    assert fake.watches[1]["resourceVersion"] == fake.watches[0]["resourceVersion"]
    assert phrases(logged) == ["cache synced"]


@pytest.mark.slow
async def test_an_unresponsive_server_is_an_error(api: Api, logged: Log) -> None:
    """If the watch cannot be opened again, that is an outage."""
    fake, client = api
    informer = informer_of(
        client, timing=InformerTiming(lifetime=60, silence=SILENCE, settled=0.05, base=0.01, cap=0.05)
    )

    async def hang(request: web.Request) -> None:
        await asyncio.sleep(3600)

    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = hang
        await until(lambda: informer.current_error == "Unavailable")
        fake.fault = None
        await until(lambda: not informer.current_error)
    assert phrases(logged) == ["cache synced", "watch interrupted; retrying", "watch works again"]


async def test_429_is_obeyed_and_logged_once(api: Api, logged: Log) -> None:
    """No request is sent before Retry-After has passed; all refusals are one log line, and the recovery is another."""
    fake, client = api
    times: list[float] = []

    async def fault(request: web.Request) -> web.StreamResponse | None:
        times.append(asyncio.get_running_loop().time())
        busy = status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 0.3}}
        return web.json_response(busy, status=429) if len(times) < 3 else None

    fake.fault = fault
    informer = informer_of(client)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        assert informer.current_error == "Throttled"
        await until(lambda: not informer.current_error)
    assert times[1] - times[0] >= 0.3
    assert times[2] - times[1] >= 0.3
    assert phrases(logged) == ["watch interrupted; retrying", "cache synced", "watch works again"]


async def test_an_outage_is_logged_once_and_its_end_once(api: Api, logged: Log) -> None:
    """HTML with a 502, a 503, a broken connection: retried until the end, with an unchanged store."""
    fake, client = api
    await fake.put("a/one")
    refused = 0

    async def outage(request: web.Request) -> web.StreamResponse | None:
        nonlocal refused
        refused += 1
        if refused % 3 == 0 and request.transport is not None:
            request.transport.abort()
        return web.Response(status=502 + refused % 2, text="<html>secret</html>", content_type="text/html")

    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = outage
        await fake.fail(500, "InternalError")
        await until(lambda: refused > 12)
        assert list(informer.store) == ["a/one"]
        await fake.put("a/two")
        fake.fault = None
        await until(lambda: "a/two" in informer.store)
        await until(lambda: not informer.current_error)
    assert phrases(logged) == ["cache synced", "watch interrupted; retrying", "watch works again"]
    assert "html" not in str(logged)
    assert len(fake.lists) == 1


async def test_a_watch_that_always_ends_at_once_backs_off(api: Api) -> None:
    """A server that closes each watch at once is not flooded."""
    fake, client = api

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        answer = web.StreamResponse()
        await answer.prepare(request)
        return answer

    fake.fault = fault
    informer = informer_of(client, timing=InformerTiming(settled=30, base=0.05, cap=0.05))
    async with running(informer.run()):
        await until(lambda: informer.current_error == "Unavailable")
        began, before = asyncio.get_running_loop().time(), len(fake.watches)
        await asyncio.sleep(0.3)
        lasted = asyncio.get_running_loop().time() - began
        assert len(fake.watches) - before <= lasted / 0.025 + 1


@pytest.mark.parametrize("body", [b"{}", b'{"items":null}', b"[]", b"<html>", b""])
async def test_an_answer_that_is_no_list_deletes_nothing(api: Api, body: bytes) -> None:
    """A 200 with another body, from a proxy or a dying server, is an outage."""
    fake, client = api
    await fake.put("a/one")
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = once(lambda: web.Response(body=body), watch=False)
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) > 1)
    assert notified == ["+a/one"]
    assert len(fake.lists) == 3


async def test_an_incomplete_line_is_read_again(api: Api) -> None:
    """Bytes after the last newline of a closed connection are ignored."""
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
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await until(lambda: notified)
    assert notified == ["+a/torn"]
    assert len(fake.lists) == 1


async def test_a_restored_storage_is_listed_again(api: Api) -> None:
    """A version that the server has not reached is not awaited."""
    fake, client = api
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        await fake.fail(504, "Timeout", "Too large resource version: 9, current: 4")
        await until(lambda: len(fake.watches) > 1)
    assert len(fake.lists) == 2
