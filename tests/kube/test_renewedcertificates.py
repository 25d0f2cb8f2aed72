"""Certificates that are renewed in their files are used for new connections, without a restart."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from kavip.http import tls
from kavip.kube import auth
from kavip.kube.auth import Credentials
from kavip.kube.transport import Transport
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from tests.pki.secrets import issued
from tests.support.streamserver import stream_server

NOW = datetime.now(UTC)
FIRST, SECOND = certificates.new_ca(NOW), certificates.new_ca(NOW)
HOST = "127.0.0.1"


def client_of(authority: KeyPair) -> bytes:
    """A client certificate of *authority*, and its key."""
    made = issued(authority, NOW, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)
    return made.certificate_pem + made.key_pem


def kubeconfig(folder: Path, *, user: dict[str, Any], port: int = 1) -> Path:
    """A kubeconfig that names the file ``ca``."""
    cluster = {"server": f"https://{HOST}:{port}", "certificate-authority": str(folder / "ca")}
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(json.dumps(content))
    return folder / "config"


async def connects(credentials: Credentials, port: int) -> bool:
    """Whether a new connection trusts the server, and the server trusts it."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=credentials.tls)
        try:
            return await reader.read() == b"well"
        finally:
            writer.transport.abort()
    except OSError:  # also of TLS
        return False


async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that the connection works."""
    writer.write(b"well")


@asynccontextmanager
async def keeping_fresh(folder: Path, **user: Any) -> AsyncIterator[Credentials]:
    """Credentials that are refreshed."""
    credentials = Credentials(str(kubeconfig(folder, user=user)))
    await credentials.load()
    task = asyncio.create_task(credentials.keep_fresh())
    try:
        yield credentials
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until_it_connects(credentials: Credentials, port: int) -> None:
    """Wait for a connection that works."""
    async with asyncio.timeout(30):
        while not await connects(credentials, port):
            await asyncio.sleep(0.01)


async def test_a_renewed_ca_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also after its file had half a certificate for a moment."""
    monkeypatch.setattr(auth, "_REFRESH_SECONDS", 0.01)
    (tmp_path / "ca").write_bytes(FIRST.certificate_pem)
    leaf = certificates.new_leaf(SECOND, (HOST,), NOW)
    async with stream_server(serve, tls=tls.serving_context(leaf)) as port, keeping_fresh(tmp_path) as credentials:
        assert not await connects(credentials, port)
        (tmp_path / "ca").write_bytes(SECOND.certificate_pem[:200])
        await asyncio.sleep(0.1)
        assert not await connects(credentials, port)
        (tmp_path / "ca").write_bytes(SECOND.certificate_pem)
        await until_it_connects(credentials, port)


async def test_a_renewed_client_certificate_is_presented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server does not accept the first one."""
    monkeypatch.setattr(auth, "_REFRESH_SECONDS", 0.01)
    (tmp_path / "ca").write_bytes(FIRST.certificate_pem)
    (tmp_path / "client").write_bytes(client_of(FIRST))
    context = tls.serving_context(certificates.new_leaf(FIRST, (HOST,), NOW), SECOND.certificate_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    files = {"client-certificate": str(tmp_path / "client"), "client-key": str(tmp_path / "client")}
    async with stream_server(serve, tls=context) as port, keeping_fresh(tmp_path, **files) as credentials:
        assert not await connects(credentials, port)
        (tmp_path / "client").write_bytes(client_of(SECOND))
        await until_it_connects(credentials, port)


async def test_a_busy_connection_gives_way_to_one_with_the_renewed_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that closes no connection would see the expired certificate for ever."""
    monkeypatch.setattr(auth, "_REFRESH_SECONDS", 0.01)
    (tmp_path / "ca").write_bytes(FIRST.certificate_pem)
    (tmp_path / "client").write_bytes(client_of(FIRST))
    context = tls.serving_context(certificates.new_leaf(FIRST, (HOST,), NOW), FIRST.certificate_pem.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serial = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        while await reader.readuntil(b"\r\n\r\n"):
            seen.append(serial)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    files = {"client-certificate": str(tmp_path / "client"), "client-key": str(tmp_path / "client")}
    async with stream_server(answer, tls=context) as port:
        credentials = Credentials(str(kubeconfig(tmp_path, user=files, port=port)))
        async with Transport(credentials) as transport, asyncio.timeout(30):
            await transport.send("GET", "/version")
            await transport.send("GET", "/version")
            assert len(seen) == 2 and len(set(seen)) == 1
            (tmp_path / "client").write_bytes(client_of(FIRST))
            while len(set(seen)) == 1:
                await transport.send("GET", "/version")
                await asyncio.sleep(0.01)
