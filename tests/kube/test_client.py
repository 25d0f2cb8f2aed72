"""The client against a faulty server, and with all kinds of credentials."""

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kavip import __version__, errors
from kavip.api.workload import ConfigMap
from kavip.kube import auth, transport
from kavip.kube.client import Client
from kavip.kube.codec import Malformed
from kavip.kube.resources import CONFIGMAPS, NODES, POOLS
from kavip.kube.transport import Transport
from tests.kube.conftest import until
from tests.kube.fakeapi import FakeApi, configmap, kubeconfig, refusal, serving

Api = tuple[FakeApi, Client]
KUBECONFIG = """
current-context: a
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, %s}]
"""


async def test_a_hanging_server_costs_only_the_timeout(api: Api) -> None:
    """Each call has its own timeout."""
    fake, client = api

    async def hang(request: web.Request) -> None:
        await asyncio.sleep(3600)

    fake.fault = hang
    with pytest.raises(errors.Unavailable, match="in time"):
        await client.get(CONFIGMAPS, "a/b", timeout=0.1)


async def test_a_watch_that_is_not_opened_in_time_is_unavailable(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of a watch must arrive soon, although the watch may be silent."""
    fake, client = api

    async def hang(request: web.Request) -> None:
        await asyncio.sleep(3600)

    fake.fault = hang
    monkeypatch.setattr(transport, "_OPEN_TIMEOUT", 0.1)
    with pytest.raises(errors.Unavailable, match="in time"):
        async with client.watch(CONFIGMAPS, "1", silence=3600):
            pass


async def test_watches_leave_the_connections_to_calls(api: Api) -> None:
    """With more watches than there are connections for calls, a call does not wait."""
    _, client = api
    async with AsyncExitStack() as stack:
        for _ in range(transport.CONNECTIONS + 1):
            await stack.enter_async_context(client.watch(CONFIGMAPS, "1"))
        await client.list(CONFIGMAPS)


async def test_a_refused_connection_is_unavailable(tmp_path: Path) -> None:
    """A refused connection is :class:`Unavailable`; the message names the server, without a password."""
    async with serving(FakeApi(), tmp_path) as config:
        pass
    found = yaml.safe_load(config.read_text())
    server = found["clusters"][0]["cluster"]["server"]
    found["clusters"][0]["cluster"]["server"] = server.replace("://", "://me:secret@")
    config.write_text(yaml.safe_dump(found))
    async with Client.from_settings(str(config)) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.get(CONFIGMAPS, "a/b")
    assert caught.value.status == 0
    assert str(caught.value) == f"the API server {server} does not answer: Connection refused"


@pytest.mark.parametrize(
    "server", ["me:secret@127.0.0.1:1", "https://me:secret@127.0.0.1:1x", "//me:secret@h", "ftp://h"]
)
async def test_a_server_that_is_no_url_is_one_line(tmp_path: Path, server: str) -> None:
    """The kubeconfig is wrong, and the message names what it says, without a password."""
    config = tmp_path / "kubeconfig"
    config.write_text((KUBECONFIG % "user: {}").replace("https://127.0.0.1:1", server))
    with pytest.raises(
        errors.SettingsError, match=r"^kubeconfig: server '[^']+': want a URL such as https://"
    ) as caught:
        await Client.from_settings(str(config)).__aenter__()
    assert "secret" not in str(caught.value)


async def test_the_password_of_a_proxy_is_in_no_message(tmp_path: Path) -> None:
    """Whether the proxy refuses the request or the connection."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = tmp_path / "kubeconfig"
    proxy = f'server: "https://api.example:6443", proxy-url: "http://me:secret@127.0.0.1:{port}"'
    config.write_text((KUBECONFIG % "user: {}").replace('server: "https://127.0.0.1:1"', proxy))
    messages = []
    async with Client.from_settings(str(config)) as client:
        for _ in range(2):
            with pytest.raises(errors.Unavailable) as caught:
                await client.get(CONFIGMAPS, "a/b")
            messages.append(str(caught.value).removeprefix("the API server https://api.example:6443 does not answer: "))
            server.close()
            await server.wait_closed()
    assert messages == ["407 Proxy Authentication Required", f"proxy 127.0.0.1:{port}: Connection refused"]


async def test_a_redirect_is_not_followed(api: Api) -> None:
    """The token is sent only to the configured server."""
    fake, client = api

    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    fake.fault = redirect
    with pytest.raises(errors.Unavailable):
        await client.get(CONFIGMAPS, "a/b")
    assert len(fake.lists) == 1


async def test_calls_have_a_user_agent_and_are_counted(tmp_path: Path) -> None:
    """The audit log shows kavip's name, and the observer gets method and status."""
    fake, seen = FakeApi(), list[tuple[str, int]]()

    async def missing(request: web.Request) -> web.StreamResponse:
        return refusal(404, "NotFound")

    fake.fault = missing
    async with (
        serving(fake, tmp_path) as config,
        Client.from_settings(str(config), observe=lambda method, code: seen.append((method, code))) as client,
    ):
        with pytest.raises(errors.NotFound):
            await client.get(CONFIGMAPS, "a/b")
    assert fake.headers["User-Agent"] == f"kavip/{__version__}"
    assert seen == [("GET", 404)]


async def test_the_next_page_is_requested_before_a_page_is_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server prepares it meanwhile."""
    fake, client = api
    for number in range(2 * CONFIGMAPS.page_size + 1):
        fake.objects[f"a/c{number:04}"] = configmap(f"a/c{number:04}", 1)
    happened, send = list[str](), Transport.send

    async def record(self: Transport, *args: Any, **more: Any) -> bytes:
        happened.append("request")
        return await send(self, *args, **more)

    def receive(page: Sequence[ConfigMap], _: bool) -> Sequence[ConfigMap]:
        happened.append("read")
        return page

    monkeypatch.setattr(Transport, "send", record)
    await client.list(CONFIGMAPS, receive=receive)
    assert happened == ["request", "request", "read", "request", "read", "read"]


async def test_an_expired_page_restarts_the_list_without_pages(api: Api) -> None:
    """An expired continue token is no failure."""
    fake, client = api
    for number in range(1100):
        fake.objects[f"a/c{number:04}"] = configmap(f"a/c{number:04}", 1)
    items, version = await client.list(CONFIGMAPS)
    assert (len(items), version) == (1100, "1")
    assert [query.get("limit") for query in fake.lists] == ["20"] * 55

    async def expired(request: web.Request) -> web.StreamResponse | None:
        return refusal(410, "Expired") if "continue" in request.query else None

    fake.fault = expired
    items, _ = await client.list(CONFIGMAPS)
    assert len(items) == 1100
    assert "limit" not in fake.lists[-1]


async def test_a_malformed_object_is_raised_or_passed_on(api: Api) -> None:
    """Without a callback, a malformed object is an error that names it."""
    fake, client = api
    fake.objects["a/bad"] = configmap("a/bad", 1, data=5)
    with pytest.raises(errors.BadInput, match="a/bad"):
        await client.list(CONFIGMAPS)
    handed: list[Malformed] = []
    items, _ = await client.list(CONFIGMAPS, on_malformed=handed.append)
    assert (items, [each.key for each in handed]) == ([], ["a/bad"])


@pytest.mark.parametrize("key", ["", "b", "a/", "/b", "a/b/c", "a/..", "../b"])
async def test_a_key_never_addresses_something_else(api: Api, key: str) -> None:
    """A key of the wrong shape is refused before anything is sent."""
    fake, client = api
    with pytest.raises(errors.BadInput, match="want"):
        await client.delete(CONFIGMAPS, key)
    assert not fake.lists


def test_paths_are_quoted_and_follow_the_group() -> None:
    """Core kinds are below /api, others below /apis; cluster-scoped kinds have no namespace."""
    assert CONFIGMAPS.object_path("a/b", "status") == "/api/v1/namespaces/a/configmaps/b/status"
    assert POOLS.object_path("p?x") == "/apis/kavip.io/v1alpha1/vippools/p%3Fx"
    with pytest.raises(errors.BadInput):
        NODES.object_path("a/b")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "key: [s3cret",
        "[]",
        '{"current-context": "x"}',
        '{"s3cret": 1, "contexts": 5, "clusters": [], "users": []}',
        KUBECONFIG % "usr: {token: s3cret}",
        KUBECONFIG.replace("cluster: a", "token: s3cret") % "user: {token: s3cret}",
    ],
)
async def test_a_bad_kubeconfig_is_one_line_that_does_not_quote_it(tmp_path: Path, content: str) -> None:
    """The message names the file and none of its content."""
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(errors.SettingsError) as caught:
        await Client.from_settings(str(file)).__aenter__()
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "Error" not in str(caught.value)


async def test_missing_credentials_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says what is needed."""
    with pytest.raises(errors.SettingsError, match="want a file that exists"):
        await Client.from_settings("/nowhere/config").__aenter__()
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(errors.SettingsError, match="set KUBECONFIG to the path of a kubeconfig"):
        await Client.from_settings("").__aenter__()


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is rotated on disk is used soon, without a restart."""
    monkeypatch.setattr(auth, "_REFRESH_SECONDS", 0.01)
    token, fake = tmp_path / "token", FakeApi()
    token.write_text("first")
    async with serving(fake, tmp_path) as plain:
        server = json.loads(plain.read_text())["clusters"][0]["cluster"]["server"]
        config = kubeconfig(tmp_path, server, tokenFile=str(token))
        async with Client.from_settings(str(config)) as client:
            await client.list(CONFIGMAPS)
            assert fake.headers["Authorization"] == "Bearer first"
            token.write_text("second")

            async def renewed() -> bool:
                await client.list(CONFIGMAPS)
                return fake.headers["Authorization"] == "Bearer second"

            async with asyncio.timeout(30):
                while not await renewed():
                    await asyncio.sleep(0.01)


async def test_a_pods_token_is_read_through_the_librarys_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing token is an outage, not a crash."""
    credentials = auth.Credentials("")

    def hook(_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/var/run/token")

    credentials._configuration.refresh_api_key_hook = hook
    with pytest.raises(errors.Unavailable, match="No such file or directory: /var/run/token"):
        await credentials.authorization()


async def test_a_failed_refresh_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[dict[str, object]]
) -> None:
    """The old token stays, and the plugin is called again."""
    monkeypatch.setattr(auth, "_REFRESH_SECONDS", 0.01)
    token = tmp_path / "token"
    token.write_text("first")
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", tokenFile=str(token))
    async with Client.from_settings(str(config)):
        token.unlink()
        await until(lambda: logged)
        await asyncio.sleep(0.1)
    assert [entry["event"] for entry in logged] == ["credentials refresh failed"]


async def test_a_context_of_several_files_is_chosen_by_name(tmp_path: Path) -> None:
    """As kubectl reads KUBECONFIG: missing files are skipped, and the context has a namespace."""
    files = [tmp_path / "missing"]
    for name, port in (("one", 1), ("two", 2)):
        context = {"cluster": name, "user": name, "namespace": f"of-{name}"}
        content = {
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": name, "context": context}],
            "users": [{"name": name, "user": {}}],
        }
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(content))
    paths = os.pathsep.join(map(str, files))
    for name, port in (("one", 1), ("two", 2)):
        credentials = auth.Credentials(paths, context=name)
        await credentials.load()
        assert (credentials.server, credentials.namespace) == (f"http://127.0.0.1:{port}", f"of-{name}")
    with pytest.raises(errors.SettingsError, match="three"):
        await auth.Credentials(paths, context="three").load()


async def test_the_version_of_the_api_server(api: Api) -> None:
    """It is the gitVersion; another program in its place is no API server."""
    fake, client = api
    bodies = [b'{"major": "1", "gitVersion": "v1.35.0"}', b"<html>"]

    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/version"
        return web.Response(body=bodies.pop(0))

    fake.fault = answer
    assert await client.version() == "v1.35.0"
    with pytest.raises(errors.Unavailable, match="not a response of an API server"):
        await client.version()


async def test_what_a_pod_answers_is_bounded(api: Api) -> None:
    """A body of exactly the limit is returned; a longer one is not read to its end."""
    fake, client = api
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        endless = web.StreamResponse()
        await endless.prepare(request)
        while request.path.startswith("/api/v1/namespaces/a/pods/endless:7/proxy/"):
            await endless.write(b"x" * 65536)
            sent += 65536
        await endless.write(b"x" * 1000)
        return endless

    fake.fault = answer
    assert await client.read_from_pod("a/short", "/state", port=7, most=1000) == b"x" * 1000
    with pytest.raises(errors.Unavailable, match="more than 1,000 bytes"):
        await client.read_from_pod("a/endless", "/state", port=7, most=1000)
    with pytest.raises(errors.Unavailable, match="more than 999 bytes"):
        await client.read_from_pod("a/short", "/state", port=7, most=999)
    assert sent < 2**26


async def test_a_dry_run_stores_nothing(api: Api) -> None:
    """The API server is asked to review the object only."""
    fake, client = api
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.path, dict(request.query), await request.json()))
        return web.json_response({})

    fake.fault = answer
    await client.create_dry_run(CONFIGMAPS, "a/b", {"data": {"c": "d"}})
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "a"}, "data": {"c": "d"}}
    assert asked == [("POST", "/api/v1/namespaces/a/configmaps", {"dryRun": "All"}, body)]
