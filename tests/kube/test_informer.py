"""The informer: how it follows objects that are added, modified and deleted."""

import asyncio
import json

import pytest
from aiohttp import web

from kavip.api.workload import ConfigMap
from kavip.kube.resources import CONFIGMAPS, Resource
from tests.kube.conftest import running, until
from tests.kube.fakeapi import configmap, line, refusal
from tests.kube.informers import OPTIONAL, SPARE, Api, Log, following, informer_of, once, phrases, recorder


async def test_the_store_follows_and_subscribers_are_notified_in_order(api: Api) -> None:
    """A late subscriber starts with the objects in the store."""
    fake, client = api
    await fake.put("a/one")
    async with following(client) as (informer, notified):
        await fake.put("a/two")
        await fake.put("a/one")
        await fake.remove("a/two")
        await until(lambda: len(notified) == 4)
        assert notified == ["+a/one", "+a/two", "~a/one", "-a/two"]
        assert recorder(informer) == ["+a/one"]
    assert list(informer.store) == ["a/one"]
    assert fake.watches[0]["allowWatchBookmarks"] == "true"
    assert 54 <= int(fake.watches[0]["timeoutSeconds"]) <= 66


async def test_the_first_list_is_stored_page_by_page(api: Api) -> None:
    """It counts as synced after the last one."""
    fake, client = api
    for number in range(2 * CONFIGMAPS.page_size + 1):
        await fake.put(f"a/c{number:02}")
    may_answer = asyncio.Event()

    async def hold(request: web.Request) -> None:
        if "continue" in request.query:
            await may_answer.wait()

    fake.fault = hold
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await until(lambda: notified)
        assert len(notified) == len(informer.store) == CONFIGMAPS.page_size
        assert not informer.synced.is_set()
        may_answer.set()
        await informer.synced.wait()
    assert len(notified) == len(informer.store) == 2 * CONFIGMAPS.page_size + 1


async def test_what_goes_during_the_first_list_is_not_kept(api: Api) -> None:
    """The list begins again, as its second page has expired: a lost object of the first is notified first."""
    fake, client = api
    for number in range(CONFIGMAPS.page_size + 1):
        await fake.put(f"a/c{number:02}")

    async def expire(request: web.Request) -> web.StreamResponse | None:
        if "continue" not in request.query:
            return None
        await until(lambda: informer.store)
        del fake.objects["a/c00"]
        return refusal(410, "Expired")

    fake.fault = expire
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await informer.synced.wait()
    assert list(informer.store) == [f"a/c{number:02}" for number in range(1, CONFIGMAPS.page_size + 1)]
    assert notified[-2:] == ["-a/c00", f"+a/c{CONFIGMAPS.page_size:02}"]
    assert len(notified) == CONFIGMAPS.page_size + 2


@pytest.mark.parametrize("how", ["status", "event"])
async def test_an_expired_version_is_listed_again(api: Api, logged: Log, how: str) -> None:
    """A 410 as a response or as an ERROR event causes a list; deletions are notified first."""
    fake, client = api
    for key in ("a/gone", "a/kept", "a/same"):
        await fake.put(key)
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        del notified[:]
        del fake.objects["a/gone"]  # while its history is lost
        fake.version += 1
        fake.objects["a/kept"] = configmap("a/kept", fake.version)
        fake.objects["a/new"] = configmap("a/new", fake.version)
        if how == "status":
            fake.fault = once(lambda: refusal(410, "Expired"), watch=True)
            await fake.fail(500, "InternalError")
        else:
            await fake.fail(410, "Expired")
        await until(lambda: notified)
    assert notified == ["-a/gone", "~a/kept", "+a/new"]
    assert len(fake.lists) == 2


async def test_an_unchanged_object_is_not_replaced_by_a_list(api: Api) -> None:
    """A list does not keep a second copy of the objects."""
    fake, client = api
    await fake.put("a/same")
    await fake.put("a/kept")
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        before = dict(informer.store)
        fake.version += 1
        fake.objects["a/kept"] = configmap("a/kept", fake.version)
        await fake.fail(410, "Expired")
        await until(lambda: len(fake.watches) == 2)
    assert informer.store["a/same"] is before["a/same"]
    assert informer.store["a/kept"].metadata.resource_version == str(fake.version)


async def test_a_recreated_object_is_a_deletion_and_an_addition(api: Api) -> None:
    """The same key with another uid is another object."""
    fake, client = api
    await fake.put("a/one", uid="first")
    informer = informer_of(client)
    notified = recorder(informer)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        fake.objects["a/one"] = configmap("a/one", 9, uid="second")
        await fake.fail(410, "Expired")
        await until(lambda: len(notified) == 3)
    assert notified == ["+a/one", "-a/one", "+a/one"]


async def test_bookmarks_move_the_version(api: Api) -> None:
    """The next watch starts at the last bookmark."""
    fake, client = api
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: fake.watches)
        await fake.send_event("BOOKMARK", configmap("/", 777) | {"data": None})
        await fake.fail(500, "InternalError")
        await until(lambda: len(fake.watches) > 1)
    assert fake.watches[1]["resourceVersion"] == "777"
    assert len(fake.lists) == 1


async def test_a_malformed_object_is_logged_once_and_its_last_version_stays(api: Api, logged: Log) -> None:
    """Lists and watches continue; a valid version replaces it, and a deletion removes it."""
    fake, client = api
    await fake.put("a/good")
    await fake.put("a/bad", data="no object")
    informer = informer_of(client)
    notified = recorder(informer)
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
    assert notified == ["+a/good", "+a/bad", "-a/good"]
    skipped = [entry["object"] for entry in logged if entry["event"] == "object skipped"]
    assert skipped == ["a/bad", "a/good"]
    assert "secret" not in str(logged)


async def test_a_malformed_object_is_logged_again_after_an_absence(api: Api, logged: Log) -> None:
    """Also if the deletion was missed."""
    fake, client = api
    await fake.put("a/bad", data=5)
    informer = informer_of(client)
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
async def test_an_object_nested_too_deeply_affects_no_other(api: Api, logged: Log, levels: int) -> None:
    """The recursion limit of the decoder does not make other objects unreadable, in a list or a watch."""
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
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: "a/later" in informer.store)
    assert "a/fine" in informer.store
    if levels > 1000:  # near the limit both is possible
        assert [entry["object"] for entry in logged if entry["event"] == "object skipped"] == ["a/deep"]


async def test_a_kind_that_is_not_installed_is_retried(api: Api, logged: Log) -> None:
    """Not synced until it exists; one log line, and each attempt is an error."""
    fake, client = api

    async def absent(request: web.Request) -> web.StreamResponse | None:
        return refusal(404, "NotFound")

    fake.fault = absent
    informer = informer_of(client)
    async with running(informer.run()):
        await until(lambda: len(fake.lists) > 4)
        assert not informer.synced.is_set()
        assert informer.error_count >= 4
        await fake.put("a/one")
        fake.fault = None
        await asyncio.wait_for(informer.synced.wait(), 30)
        assert "a/one" in informer.store
    assert phrases(logged)[:2] == ["kind not installed", "cache synced"]


@pytest.mark.parametrize(("resource", "code", "reason"), [(OPTIONAL, 404, "NotFound"), (SPARE, 403, "Forbidden")])
async def test_an_optional_kind_is_synced_and_empty_while_it_is_absent(
    api: Api, resource: Resource[ConfigMap], code: int, reason: str
) -> None:
    """Not installed or forbidden, which is no error; its objects come and go with its availability."""
    fake, client = api

    async def absent(request: web.Request) -> web.StreamResponse | None:
        return refusal(code, reason)

    fake.fault = absent
    informer = informer_of(client, resource)
    notified = recorder(informer)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), 30)
        await until(lambda: len(fake.lists) > 4)
        assert (len(informer.store), informer.is_available, informer.error_count) == (0, False, 0)
        await fake.put("a/one")
        fake.fault = None
        await until(lambda: "a/one" in informer.store)
        assert informer.is_available
        fake.fault = absent
        await fake.fail(410, "Expired")
        await until(lambda: not informer.store)
    assert notified == ["+a/one", "-a/one"]


async def test_an_old_event_changes_nothing(api: Api) -> None:
    """An old version or deletion after a newer version is ignored."""
    fake, client = api
    await fake.put("a/one")
    async with following(client) as (informer, notified):
        await fake.put("a/one")
        await until(lambda: notified == ["+a/one", "~a/one"])
        newest = int(informer.store["a/one"].metadata.resource_version)
        await fake.send_event("MODIFIED", configmap("a/one", newest - 1))
        await fake.send_event("DELETED", configmap("a/one", newest))
        await fake.send_event("ADDED", configmap("a/gone", newest - 1))
        await fake.put("a/two")
        await until(lambda: "+a/two" in notified)
    assert notified == ["+a/one", "~a/one", "+a/two"]
    assert int(informer.store["a/one"].metadata.resource_version) == newest
