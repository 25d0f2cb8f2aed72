"""One probe of real servers, conforming and otherwise."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kavip.agent.health.probe import LARGEST, HTTPProber, ProbeResult, TrustStore
from kavip.pki import certificates
from kavip.pki.trustbundle import encode_pem
from kavip.vrrp.targets import CheckTarget
from tests.support.streamserver import Serve, stream_server

SOON = 0.15
"""Seconds: long enough for an answer over loopback, short enough to wait for one that never comes."""
LONG = 60.0


def answering(answer: bytes, *, then: float = 0.0) -> Serve:
    """A server that reads a request, answers, and closes *then* seconds later."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await asyncio.sleep(then)

    return serve


async def run_probe(script: Serve, *, seconds: float = LONG, path: str = "/healthz") -> ProbeResult:
    """The result of a probe of a server."""
    async with stream_server(script) as port:
        return await HTTPProber().probe(CheckTarget("http", "127.0.0.1", port, path), ca_file=None, seconds=seconds)


@pytest.mark.parametrize(
    ("answer", "well", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True, "status 200"),
        (b"HTTP/1.0 204\r\n\r\n", True, "status 204"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", True, "status 302"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\nLink: x\n\nHTTP/1.1 200 OK\r\n\r\n", True, "status 200"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\n\r\n", False, "status 503"),
        (b"HTTP/1.1 400 Bad\r\n\r\n", False, "status 400"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", False, "status 401"),
        (b"HTTP/1.1 500 hunter2\r\n\r\n", False, "status 500"),
        (b"HTTP/1.1 999 Odd\r\n\r\n", False, "its answer is not HTTP"),
        (b"HTTP/2 200\r\n\r\n", False, "its answer is not HTTP"),
        (b"SSH-2.0-hunter2\r\n", False, "its answer is not HTTP"),
        (b"", False, "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK", False, "its answer is not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * LARGEST * 3, False, "its answer is not HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * LARGEST, False, "its answer has no end"),
    ],
)
async def test_the_status_decides(answer: bytes, well: bool, message: str) -> None:
    """The status of the final answer counts, and no message quotes the server."""
    assert await run_probe(answering(answer)) == ProbeResult(well, message)


async def test_an_expected_refusal_is_a_success() -> None:
    """Only where the target expects it."""
    for status, well in ((401, True), (403, True), (404, False), (500, False)):
        async with stream_server(answering(f"HTTP/1.1 {status} x\r\n\r\n".encode())) as port:
            target = CheckTarget("http", "127.0.0.1", port, refusals=frozenset({401, 403}))
            found = await HTTPProber().probe(target, ca_file=None, seconds=LONG)
        assert found == ProbeResult(well, f"status {status}")


@pytest.mark.parametrize(("status", "well"), [(200, True), (204, False), (302, False), (401, False)])
async def test_a_single_status_may_be_expected(status: int, well: bool) -> None:
    """Then no other one passes, not even one that counts as success otherwise."""
    async with stream_server(answering(f"HTTP/1.1 {status} x\r\n\r\n".encode())) as port:
        target = CheckTarget("http", "127.0.0.1", port, refusals=frozenset({401}), expected=200)
        found = await HTTPProber().probe(target, ca_file=None, seconds=LONG)
    assert found == ProbeResult(well, f"status {status}")


async def test_a_redirect_is_a_success_and_is_not_followed() -> None:
    """No request reaches its target."""
    visits: list[int] = []

    async def visited(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        visits.append(1)

    async with stream_server(visited) as port:
        location = f"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:{port}/\r\n\r\n".encode()
        assert (await run_probe(answering(location))).ok
    assert visits == []


async def test_a_request_holds_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method, path, host and user agent, on a connection of its own; no token, cookie or proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    heads: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    asker = HTTPProber()
    async with stream_server(listen) as port:
        for _ in range(2):
            assert (await asker.probe(CheckTarget("http", "127.0.0.1", port, "/x?y"), ca_file=None, seconds=LONG)).ok
    lines = ["GET /x?y HTTP/1.1", f"Host: 127.0.0.1:{port}", "User-Agent: kavip", "Accept: */*", "Connection: close"]
    assert heads == ["\r\n".join([*lines, "", ""]).encode()] * 2


async def test_a_body_without_an_end_is_not_read() -> None:
    """Gigabytes of body cost nothing: the connection is closed at once."""
    ended = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        finally:
            ended.set()

    async with stream_server(flood) as port:
        target = CheckTarget("http", "127.0.0.1", port)
        assert (await HTTPProber().probe(target, ca_file=None, seconds=LONG)).ok
        async with asyncio.timeout(LONG):
            await ended.wait()


@pytest.mark.parametrize("trickle", [b"", b"H", b"HTTP/1.1 100 x\r\n\r\n"])
async def test_the_timeout_bounds_the_whole_probe(trickle: bytes) -> None:
    """Of a silent server, one that sends a byte at a time, and one with endless interim answers."""

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(trickle)
            await asyncio.sleep(SOON / 10)

    began = time.monotonic()
    assert await run_probe(drip, seconds=SOON) == ProbeResult(False, f"no answer within {SOON:g} s")
    assert time.monotonic() - began < LONG


async def test_a_failed_connection_is_reported() -> None:
    """A closed port and a reset connection, with the system's error text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = CheckTarget("http", "127.0.0.1", free.getsockname()[1])
        assert await HTTPProber().probe(target, ca_file=None, seconds=LONG) == ProbeResult(False, "connection refused")

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    assert await run_probe(reset) == ProbeResult(False, "connection reset by peer")


async def test_a_name_is_looked_up() -> None:
    """localhost is found; an unknown name is reported, and blocks no thread of the agent."""
    async with stream_server(answering(b"HTTP/1.1 200 OK\r\n\r\n")) as port:
        assert (await HTTPProber().probe(CheckTarget("http", "localhost", port), ca_file=None, seconds=LONG)).ok
    answer = await HTTPProber().probe(CheckTarget("http", "no.such.name.invalid", 80), ca_file=None, seconds=LONG)
    assert not answer.ok
    assert answer.message in ("its name does not resolve", f"no answer within {LONG:g} s")


# --- TLS ------------------------------------------------------------------------------------------------------------


class Authority:
    """A CA in a file, and servers with certificates of it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._now = folder, datetime.now(UTC)
        self._pair = certificates.new_ca(self._now)
        self.file = folder / "ca.crt"
        self.file.write_bytes(encode_pem([self._pair.certificate]))

    def server(self, *hosts: str, life: timedelta = timedelta(days=1), age: timedelta = timedelta()) -> ssl.SSLContext:
        """TLS for a server of these names; *age* ago its certificate was made."""
        leaf = certificates.new_leaf(self._pair, hosts, self._now - age, lifetime=life)
        path = self._folder / "leaf.pem"
        path.write_bytes(leaf.key_pem + encode_pem([leaf.certificate]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA."""
    return Authority(tmp_path)


async def secured(tls: ssl.SSLContext, ca_file: Path | None, asker: HTTPProber | None = None) -> ProbeResult:
    """The result of a probe of a server with *tls*, with *ca_file* as the trusted CA."""
    async with stream_server(answering(b"HTTP/1.1 200 OK\r\n\r\n"), tls=tls) as port:
        target = CheckTarget("https", "127.0.0.1", port)
        return await (asker or HTTPProber()).probe(target, ca_file=ca_file, seconds=LONG)


async def test_a_certificate_of_the_ca_is_accepted(authority: Authority) -> None:
    """If it names the host and is not expired."""
    assert await secured(authority.server("127.0.0.1"), authority.file) == ProbeResult(True, "status 200")
    other = await secured(authority.server("192.0.2.1"), authority.file)
    assert not other.ok and "IP address mismatch" in other.message
    old = await secured(authority.server("127.0.0.1", age=timedelta(days=9)), authority.file)
    assert not old.ok and "expired" in old.message


async def test_a_certificate_of_another_ca_is_refused(authority: Authority) -> None:
    """Verification cannot be switched off; the image's CAs do not help."""
    assert "is not valid" in (await secured(authority.server("127.0.0.1"), None)).message
    with_other = Path(authority.file).with_name("other")
    with_other.mkdir()
    assert "is not valid" in (await secured(authority.server("127.0.0.1"), Authority(with_other).file)).message


async def test_a_missing_or_invalid_ca_blocks_the_probe(authority: Authority, tmp_path: Path) -> None:
    """The message names the field of the group."""
    wrong = tmp_path / "wrong.crt"
    wrong.write_text("hunter2")
    for path in (wrong, tmp_path / "absent.crt"):
        answer = await secured(authority.server("127.0.0.1"), path)
        assert answer == ProbeResult(None, "the CA of caFrom is not mounted, or is invalid")


async def test_a_changed_ca_is_read_again(authority: Authority, tmp_path: Path) -> None:
    """kubelet replaces the file; the next probe uses the new CA."""
    asker, mounted = HTTPProber(), tmp_path / "mounted.crt"
    (tmp_path / "new").mkdir()
    successor = Authority(tmp_path / "new")
    mounted.write_bytes(authority.file.read_bytes())
    assert (await secured(authority.server("127.0.0.1"), mounted, asker)).ok
    successor.file.replace(mounted)
    assert not (await secured(authority.server("127.0.0.1"), mounted, asker)).ok
    assert (await secured(successor.server("127.0.0.1"), mounted, asker)).ok


async def test_a_server_without_tls_fails_the_probe(authority: Authority) -> None:
    """The message does not quote it."""

    async def blunt(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 this is no TLS\r\n\r\n")
        await writer.drain()

    async with stream_server(blunt) as port:
        target = CheckTarget("https", "127.0.0.1", port)
        assert await HTTPProber().probe(target, ca_file=authority.file, seconds=LONG) == ProbeResult(
            False, "TLS failed"
        )


async def test_an_address_that_does_not_answer_hides_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have an address that drops packets: its check needs one that answers."""
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(3):  # the kernel drops what comes after them
            connecting = waiting.enter_context(socket.socket())
            connecting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connecting.connect(("127.0.0.2", port))
        resolve = socket.getaddrinfo

        def both(host: str, *arguments: Any, **more: Any) -> Any:
            return [each for known in ("127.0.0.2", "127.0.0.1") for each in resolve(known, *arguments, **more)]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        async with stream_server(answering(b"HTTP/1.1 200 OK\r\n\r\n"), port=port):
            found = await HTTPProber().probe(CheckTarget("http", "two.example", port), ca_file=None, seconds=LONG)
    assert found == ProbeResult(ok=True, message="status 200")


async def test_a_slow_resolver_delays_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that runs every second occupies one resolver thread, not all."""
    resolve, released, looked = socket.getaddrinfo, threading.Event(), []

    def slow(host: str, *arguments: Any, **more: Any) -> Any:
        if host == "slow.example":
            looked.append(host)
            released.wait(LONG)
        return resolve("127.0.0.1", *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asker = HTTPProber()
    try:
        async with stream_server(answering(b"HTTP/1.1 200 OK\r\n\r\n")) as port:
            for _ in range(30):
                late = await asker.probe(CheckTarget("http", "slow.example", port), ca_file=None, seconds=0.01)
                assert late.message == "no answer within 0.01 s"
            well = await asker.probe(CheckTarget("http", "quick.example", port), ca_file=None, seconds=LONG / 2)
            assert (well, looked) == (ProbeResult(ok=True, message="status 200"), ["slow.example"])
            released.set()
            later = await asker.probe(CheckTarget("http", "slow.example", port), ca_file=None, seconds=LONG)
            assert later.ok
    finally:
        released.set()


def test_certificates_without_recent_extensions_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 is strict by default, and refuses what the CAs of many clusters issue."""
    usual = ssl.create_default_context

    def strict(**given: Any) -> ssl.SSLContext:
        made = usual(**given)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    assert not TrustStore().context(None).verify_flags & ssl.VERIFY_X509_STRICT
