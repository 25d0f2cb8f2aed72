"""Who may read: a page that was opened by the link; no other site, no other name, no other user of the machine."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kavip.cli.ui.access import MOST_SESSIONS
from tests.cli.ui.serving import PAGE, Reader, serving

DATA = ("/events", "/service?name=billing/api")


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    """A server, and a client without a session."""
    async with serving() as made:
        yield made


async def status(reader: Reader, path: str, **headers: str) -> int:
    """The status of a GET with these headers."""
    async with reader.get(path, headers=headers) as answer:
        found: int = answer.status
        return found


# --- token and session ------------------------------------------------------------------------------------------------
async def test_a_link_works_once(reader: Reader) -> None:
    """The second use is refused, and the server announces another link."""
    used = reader.token
    await reader.log_in()
    assert await status(reader, "/service?name=billing/api") == 200
    async with reader.post_token(used) as answer:
        assert answer.status == 403 and "used before" in await answer.text()
    assert len(reader.links) == 2 and reader.token != used


async def test_the_cookie_is_for_this_site_and_no_script(reader: Reader) -> None:
    """HttpOnly, SameSite=Strict, and without an end: it goes with the browser."""
    async with reader.post_token(reader.token) as answer:
        cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(rf"kavip-ui-{reader.port}=[\w-]{{43}}; HttpOnly; Path=/; SameSite=Strict", cookie)


async def test_nothing_is_served_without_a_session(reader: Reader) -> None:
    """The files of the page are, and they hold no data."""
    assert [await status(reader, path) for path in DATA] == [403, 403]
    assert [await status(reader, path) for path in PAGE] == [200] * len(PAGE)


@pytest.mark.parametrize("token", ["", "x", "é" * 40, "x" * 100_000])
async def test_a_wrong_token_opens_nothing(reader: Reader, token: str) -> None:
    """Whatever its length."""
    async with reader.post_token(token) as answer:
        assert answer.status == 403 and "Set-Cookie" not in answer.headers
    assert len(reader.links) == 1


async def test_a_cookie_alone_is_not_enough(reader: Reader) -> None:
    """Browsers send it to every port of the host, so a server of another user may have seen it."""
    await reader.log_in()
    for path in DATA:
        async with reader.get(path, key="") as answer:
            assert answer.status == 403
        async with reader.get(
            f"{path}{'&' if '?' in path else '?'}key={reader.key}&key={reader.key}", key=""
        ) as answer:
            assert answer.status == 403


async def test_a_key_alone_is_not_enough(reader: Reader) -> None:
    """Nor is the key of another session."""
    await reader.log_in()
    first = reader.key
    reader.cookie = ""
    assert [await status(reader, path) for path in DATA] == [403, 403]
    await reader.log_in()
    async with reader.get("/service?name=billing/api", key=first) as answer:
        assert answer.status == 403


async def test_sessions_are_bounded(reader: Reader) -> None:
    """The oldest one ends."""
    await reader.log_in()
    first = reader.cookie, reader.key
    for _ in range(MOST_SESSIONS):
        await reader.log_in()
    assert await status(reader, "/service?name=billing/api") == 200
    reader.cookie, reader.key = first
    assert await status(reader, "/service?name=billing/api") == 403


# --- other sites ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
async def test_a_rebound_name_is_refused(reader: Reader, host: str) -> None:
    """DNS rebinding: the browser takes this server for its own site, and says so in Host; nothing is served."""
    await reader.log_in()
    given = host.format(port=reader.port)
    assert [await status(reader, path, Host=given) for path in ("/", *DATA)] == [403] * 3
    async with reader.post_token(reader.token, Host=given) as answer:
        assert answer.status == 403


async def test_two_hosts_are_refused(reader: Reader) -> None:
    """Even if one of them is right."""
    wire, out = await asyncio.open_connection("127.0.0.1", reader.port)
    out.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{reader.port}\r\nHost: evil.example\r\n\r\n".encode())
    assert b" 200 " not in await wire.readline()
    out.close()
    await out.wait_closed()


async def test_localhost_is_this_server_too(reader: Reader) -> None:
    """A forwarded port has that name."""
    assert await status(reader, "/", Host=f"localhost:{reader.port}") == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
async def test_another_origin_is_refused(reader: Reader, origin: str) -> None:
    """With the secrets, too."""
    await reader.log_in()
    given = origin.format(port=reader.port)
    assert [await status(reader, path, Origin=given) for path in DATA] == [403, 403]
    async with reader.post_token(reader.token, Origin=given) as answer:
        assert answer.status == 403


async def test_a_session_needs_an_origin(reader: Reader) -> None:
    """Every browser sends it with a POST."""
    async with reader.client.post(f"{reader.base}/session", data=reader.token.encode()) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "SAME-ORIGIN"])
async def test_requests_that_other_pages_cause_are_refused(reader: Reader, site: str) -> None:
    """Another port of the same host is the same site, and another page."""
    await reader.log_in()
    assert [await status(reader, path, **{"Sec-Fetch-Site": site}) for path in ("/", *DATA)] == [403] * 3
    assert await status(reader, "/service?name=billing/api", **{"Sec-Fetch-Site": "same-origin"}) == 200


# --- other users ------------------------------------------------------------------------------------------------------
async def test_the_port_is_on_loopback_only(reader: Reader) -> None:
    """On another address of the machine nothing listens, not even on another one of loopback."""
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        await asyncio.open_connection("127.0.0.2", reader.port)


@pytest.mark.netns
async def test_another_user_of_the_machine_gets_no_data(reader: Reader) -> None:
    """A process of another user sees the port, but finds no token or session in arguments, variables and files."""
    await reader.log_in()
    secrets = [reader.token, reader.cookie, reader.key]
    script = f"""
import encodings.idna, os, sys, urllib.error, urllib.request
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def status(path):
    try:
        return urllib.request.urlopen("{reader.base}" + path).status
    except urllib.error.HTTPError as error:
        return error.code
def content(file):
    try:
        return open(file, "rb").read()
    except OSError:
        return b""
print(*map(status, ["/", "/events", "/service?name=billing/api", "/events?key=x"]))
seen = b"".join(content("/proc/{os.getpid()}/" + name) for name in ("cmdline", "environ", "mem"))
print([secret for secret in sys.stdin.read().split() if secret.encode() in seen])
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate("\n".join(secrets).encode())
    assert printed.decode().splitlines() == ["200 403 403 403", "[]"]


# --- limits -----------------------------------------------------------------------------------------------------------
async def test_requests_are_bounded(reader: Reader) -> None:
    """A long path, many headers and an unknown method are refused; the server lives."""
    assert await status(reader, f"/?{'x' * 4000}") == 414
    wire, out = await asyncio.open_connection("127.0.0.1", reader.port)
    out.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{reader.port}\r\nX: {'x' * 100_000}\r\n\r\n".encode())
    assert b" 400 " in await wire.readline()
    out.close()
    with pytest.raises(aiohttp.ClientResponseError, match="405"):
        async with reader.client.put(f"{reader.base}/", headers={"Origin": reader.base}, raise_for_status=True):
            pass
    assert await status(reader, "/nothing") == 404
    assert await status(reader, "/../../etc/passwd") == 404
