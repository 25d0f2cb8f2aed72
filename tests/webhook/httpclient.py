"""A webhook server with a real certificate, and an HTTP client that trusts it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import aiohttp

from kavip import names
from kavip.api import review
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.webhook.server import WebhookServer

HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Connection:
    """A client session with a server that listens on *url*; *ca* can sign further leaves."""

    session: aiohttp.ClientSession
    url: str
    ca: KeyPair

    async def post(self, path: str, data: bytes, **headers: str) -> tuple[int, bytes]:
        """Send *data*; return the status and the body of the response."""
        sent = {"Content-Type": "application/json", **headers}
        async with self.session.post(self.url + path, data=BytesIO(data), headers=sent) as answer:
            return answer.status, await answer.read()

    async def review(self, path: str, data: bytes) -> dict[str, Any]:
        """Send *data*, a review; return the response in the answer."""
        status, body = await self.post(path, data)
        assert status == 200, body
        answered: dict[str, Any] = json.loads(body)
        assert (answered["apiVersion"], answered["kind"]) == (review.API_VERSION, review.KIND)
        response: dict[str, Any] = answered["response"]
        return response


@asynccontextmanager
async def connected(server: WebhookServer) -> AsyncIterator[Connection]:
    """*server*, listening on a free port of loopback."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    server.serve_certificate(certificates.new_leaf(ca, HOSTS, now))
    port = await server.start("127.0.0.1", 0)
    trust = ssl.create_default_context(cadata=ca.certificate_pem.decode())
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
            yield Connection(session, f"https://127.0.0.1:{port}", ca)
    finally:
        await server.stop()


KINDS = {
    names.MUTATE_SERVICE_PATH: ("", "v1", names.SERVICE),
    names.VALIDATE_SERVICE_PATH: ("", "v1", names.SERVICE),
    names.MUTATE_GROUP_PATH: (names.REDHATCOP_GROUP, names.VERSION, names.KEEPALIVED_GROUP),
    names.VALIDATE_GROUP_PATH: (names.REDHATCOP_GROUP, names.VERSION, names.KEEPALIVED_GROUP),
    names.VALIDATE_POOL_PATH: (names.KAVIP_GROUP, names.VERSION, names.VIP_POOL),
}


def review_body(path: str, new: Any, old: Any = None, *, operation: str = "CREATE", uid: str = "u1") -> bytes:
    """The body that the API server posts to *path*."""
    group, version, kind = KINDS[path]
    metadata = (new or old or {}).get("metadata", {}) if isinstance(new or old, dict) else {}
    request = {
        "uid": uid,
        "kind": {"group": group, "version": version, "kind": kind},
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "jane"},
        "object": new,
        "oldObject": old,
    }
    return json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request}).encode()


async def send(connection: Connection, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A new connection on which *data* has been sent."""
    trust = ssl.create_default_context(cadata=connection.ca.certificate_pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", int(connection.url.rpartition(":")[2]), ssl=trust)
    writer.write(data)
    return reader, writer


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the next response; its body is read too."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(maxsplit=1)
    await reader.readexactly(int(length[0]) if length else 0)
    return int(head.split(maxsplit=2)[1])
