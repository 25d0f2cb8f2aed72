"""The informer, as the objects come, change and go."""

import asyncio
import json

import pytest
from aiohttp import web

from kavip.api.workload import ConfigMap
from kavip.kube.resources import Resource
from tests.kube.conftest import running, until
from tests.kube.fakeapi import configmap, line, refusal
from tests.kube.informers import OPTIONAL, SPARE, Api, Log, follow, following, once, phrases, recorder


async def test_the_store_follows_and_subscribers_see_what_it_holds(api: Api) -> None:
    """Creation, change and deletion are told in order; a late subscriber begins with what is there."""
    fake, client = api
    await fake.put("a/one")
    async with following(client) as (informer, told):
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


async def test_what_is_listed_again_unchanged_stays_the_same_object(api: Api) -> None:
    """A list of what is known leaves no second copy of it behind."""
    fake, client = api
    await fake.put("a/same")
    await fake.put("a/kept")
    informer = follow(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        before = dict(informer.store)
        fake.version += 1
        fake.objects["a/kept"] = configmap("a/kept", fake.version)
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) == 2)
    assert informer.store["a/same"] is before["a/same"]
    assert informer.store["a/kept"].metadata.resource_version == str(fake.version)


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


async def test_what_is_told_again_takes_nothing_back(api: Api) -> None:
    """An old copy, or an old deletion, after what came later: the store stays as it is, and nobody is told."""
    fake, client = api
    await fake.put("a/one")
    async with following(client) as (informer, told):
        await fake.put("a/one")
        await until(lambda: told == ["+a/one", "~a/one"])
        newest = int(informer.store["a/one"].metadata.resource_version)
        await fake.say("MODIFIED", configmap("a/one", newest - 1))
        await fake.say("DELETED", configmap("a/one", newest))
        await fake.say("ADDED", configmap("a/gone", newest - 1))
        await fake.put("a/two")
        await until(lambda: "+a/two" in told)
    assert told == ["+a/one", "~a/one", "+a/two"]
    assert int(informer.store["a/one"].metadata.resource_version) == newest
