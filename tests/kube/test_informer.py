"""The informer through everything that an API server may do."""

import asyncio
import json
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from aiohttp import web

from kavip.api.workload import ConfigMap
from kavip.kube.client import Client
from kavip.kube.informer import Informer, Timing
from kavip.kube.resources import CONFIGMAPS, Resource
from tests.kube.conftest import running, until
from tests.kube.fake import FakeApi, configmap, line, refusal, status

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


async def test_the_store_follows_and_subscribers_see_what_it_holds(api: Api) -> None:
    """Creation, change and deletion are told in order; a late subscriber begins with what is there."""
    fake, client = api
    await fake.put("a/one")
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        await fake.put("a/two")
        await fake.put("a/one")
        await fake.remove("a/two")
        await until(lambda: len(told) == 4)
        assert told == ["+a/one", "+a/two", "~a/one", "-a/two"]
        assert recorder(informer) == ["+a/one"]
    assert list(informer.store) == ["a/one"]
    assert fake.watches[0]["allowWatchBookmarks"] == "true"
    assert 54 <= int(fake.watches[0]["timeoutSeconds"]) <= 66


@pytest.mark.parametrize("how", ["status", "event"])
async def test_an_expired_version_is_listed_again_and_deletions_are_told(api: Api, logged: Log, how: str) -> None:
    """410 as an answer and as an ERROR event alike lead to a list, whose difference is told, deletions first."""
    fake, client = api
    for key in ("a/gone", "a/kept", "a/same"):
        await fake.put(key)
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        del told[:]
        del fake.objects["a/gone"]  # while the history of it is lost
        fake.version += 1
        fake.objects["a/kept"] = configmap("a/kept", fake.version)
        fake.objects["a/new"] = configmap("a/new", fake.version)
        if how == "status":
            fake.fault = once(lambda: refusal(410, "Expired"), watch=True)
            await fake.fail(500, "InternalError")
        else:
            await fake.fail(410, "Expired")
        await until(lambda: told)
    assert told == ["-a/gone", "~a/kept", "+a/new"]
    assert len(fake.lists) == 2


async def test_a_recreated_object_is_told_as_gone_and_come(api: Api) -> None:
    """The same key with another uid is another object."""
    fake, client = api
    await fake.put("a/one", uid="first")
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.objects["a/one"] = configmap("a/one", 9, uid="second")
        await fake.fail(410, "Expired")
        await until(lambda: len(told) == 3)
    assert told == ["+a/one", "-a/one", "+a/one"]


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
    informer = follow(client, timing=Timing(lifetime=60, silence=0.3, settled=0.05, base=0.01, cap=0.05))
    async with running(informer.run()):
        await asyncio.wait_for(silent.wait(), 30)
        await fake.put("a/meanwhile")
        await until(lambda: "a/meanwhile" in informer.store)
    assert len(fake.lists) == 1
    assert fake.watches[1]["resourceVersion"] == fake.watches[0]["resourceVersion"]
    assert phrases(logged) == ["cache filled"]


async def test_a_server_that_answers_no_more_is_trouble(api: Api, logged: Log) -> None:
    """Silence shows when the watch is opened again: a connection that yields nothing at all is an outage."""
    fake, client = api
    informer = follow(client, timing=Timing(lifetime=60, silence=0.2, settled=0.05, base=0.01, cap=0.05))

    async def hang(request: web.Request) -> None:
        await asyncio.sleep(3600)

    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.fault = hang
        await until(lambda: informer.trouble == "Unavailable")
        fake.fault = None
        await until(lambda: not informer.trouble)
    assert phrases(logged) == ["cache filled", "watch interrupted; retrying", "watch works again"]


async def test_bookmarks_move_the_version(api: Api) -> None:
    """The next watch begins where the last bookmark was."""
    fake, client = api
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        await fake.say("BOOKMARK", configmap("/", 777) | {"data": None})
        await fake.fail(500, "InternalError")
        await until(lambda: len(fake.watches) > 1)
    assert fake.watches[1]["resourceVersion"] == "777"
    assert len(fake.lists) == 1


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


async def test_a_malformed_object_is_logged_once_and_its_last_good_version_stays(api: Api, logged: Log) -> None:
    """It spoils neither list nor watch; a good version ends it; a deletion is a deletion."""
    fake, client = api
    await fake.put("a/good")
    await fake.put("a/bad", data="no object")
    informer = follow(client)
    told = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        await fake.put("a/good", data=["secret"])
        await fake.put("a/good", data=["secret"])
        await fake.put("a/bad")
        await until(lambda: "a/bad" in informer.store)
        kept = informer.store["a/good"]
        assert kept.data == {"a": "b"}
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) > 1)
        assert informer.store["a/good"] is kept
        await fake.remove("a/good")
        await until(lambda: "a/good" not in informer.store)
    assert told == ["+a/good", "+a/bad", "-a/good"]
    skipped = [entry["object"] for entry in logged if entry["event"] == "object skipped"]
    assert skipped == ["a/bad", "a/good"]
    assert "secret" not in str(logged)


async def test_a_malformed_object_that_comes_back_is_news(api: Api, logged: Log) -> None:
    """It is logged again after it has been away, though nobody has seen it go."""
    fake, client = api
    await fake.put("a/bad", data=5)
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        bad = fake.objects.pop("a/bad")
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) > 1)
        fake.objects["a/bad"] = bad
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) > 2)
    assert phrases(logged).count("object skipped") == 2


@pytest.mark.parametrize("levels", [990, 5_000, 100_000])
async def test_an_object_nested_too_deeply_spoils_only_itself(api: Api, logged: Log, levels: int) -> None:
    """No decoder's recursion limit makes the others unreadable, in a list or in a watch."""
    fake, client = api
    deep = json.dumps(configmap("a/deep", 5))[:-1].encode() + b',"x":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"
    fine = json.dumps(configmap("a/fine", 6)).encode()

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return web.Response(body=b'{"metadata":{"resourceVersion":"6"},"items":[' + deep + b"," + fine + b"]}")
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b'{"type":"ADDED","object":' + deep + b"}\n")
        await answer.write(line("ADDED", configmap("a/later", 8)))
        await asyncio.sleep(3600)
        return answer

    fake.fault = fault
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: "a/later" in informer.store)
    assert "a/fine" in informer.store
    if levels > 1000:  # what is near the limit may be read or not
        assert [entry["object"] for entry in logged if entry["event"] == "object skipped"] == ["a/deep"]


async def test_a_kind_that_is_not_installed_is_waited_for(api: Api, logged: Log) -> None:
    """Not synced until it exists; one line, however long it takes."""
    fake, client = api

    async def absent(request: web.Request) -> web.StreamResponse | None:
        return refusal(404, "NotFound")

    fake.fault = absent
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: len(fake.lists) > 4)
        assert not informer.synced.is_set()
        await fake.put("a/one")
        fake.fault = None
        await asyncio.wait_for(informer.synced.wait(), 30)
        assert "a/one" in informer.store
    assert phrases(logged)[:2] == ["kind not installed", "cache filled"]


@pytest.mark.parametrize(("resource", "code", "reason"), [(OPTIONAL, 404, "NotFound"), (SPARE, 403, "Forbidden")])
async def test_a_kind_that_may_be_absent_counts_as_synced_and_empty_while_it_is(
    api: Api, resource: Resource[ConfigMap], code: int, reason: str
) -> None:
    """It is followed from when it can be read, and its objects are gone when it cannot: not installed, or no right."""
    fake, client = api

    async def absent(request: web.Request) -> web.StreamResponse | None:
        return refusal(code, reason)

    fake.fault = absent
    informer = follow(client, resource)
    told = recorder(informer)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        assert (len(informer.store), informer.is_there) == (0, False)
        await fake.put("a/one")
        fake.fault = None
        await until(lambda: "a/one" in informer.store)
        assert informer.is_there
        fake.fault = absent
        await fake.fail(410, "Expired")
        await until(lambda: not informer.store)
    assert told == ["+a/one", "-a/one"]


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
