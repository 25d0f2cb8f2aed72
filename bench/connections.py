"""
Calls that are answered while other clients hold every connection of a port: ``python -m bench.connections``.

They open as many connections as the port accepts, and get an answer on each: on the probe port one ``GET /livez``,
on the webhook one review that is allowed. Then kubelet and the API server call, from the address of these clients and
from another one. Meanwhile the clients send three reviews a second, each on another connection.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import cycle
from typing import Final

from bench import goal
from kavip import names, telemetry
from kavip.api import review
from kavip.http import ports
from kavip.pki import certificates
from kavip.snapshot import Snapshot
from kavip.webhook.server import WebhookServer

HOST: Final = "127.0.0.1"
SOURCES: Final = (("their own address", HOST), ("another address", "127.0.0.2"))
PROBES, WEBHOOK = 64, 384  # connections of the other clients
CALLS: Final = 4  # as many failed probes in a row make kubelet restart a container
PATIENCE: Final = 3.0  # seconds: timeoutSeconds of the validating webhooks
PAUSE: Final = 1 / 3  # between two reviews of the other clients
HEAD: Final = f"POST {names.VALIDATE_SERVICE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY: Final = (
    f'{{"apiVersion":"{review.API_VERSION}","kind":"{review.KIND}","request":{{"uid":"u","operation":"CREATE",'
    '"kind":{"group":"","version":"v1","kind":"Service"},"object":{"metadata":{"name":"a","namespace":"b"}}}}'
)
REVIEW: Final = f"{HEAD}Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode()
PROBE: Final = f"GET {names.LIVE_PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str], Awaitable[Wire]]
"""Opens a connection from an address."""


def main() -> None:
    """Print the table."""
    telemetry.configure_logging("warning", "text")
    asyncio.run(probes())
    asyncio.run(webhook())


async def probes() -> None:
    """The probe port."""
    async with ports.serving(ports.probes(lambda: ()), HOST, 0, name="probe") as port:

        async def dial(source: str) -> Wire:
            return await asyncio.open_connection(HOST, port, local_addr=(source, 0))

        await held(f"probes, {PROBES} connections with one GET each", dial, PROBE, PROBES)


async def webhook() -> None:
    """The webhook."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    server = WebhookServer(Snapshot())
    server.serve_certificate(certificates.new_leaf(ca, [HOST], now))
    port = await server.start(HOST, 0)
    trust = ssl.create_default_context(cadata=ca.certificate_pem.decode())

    async def dial(source: str) -> Wire:
        return await asyncio.open_connection(HOST, port, local_addr=(source, 0), ssl=trust)

    await held(f"reviews, {WEBHOOK} connections with one each", dial, REVIEW, WEBHOOK)
    await server.stop()


async def held(what: str, dial: Dial, request: bytes, count: int) -> None:
    """Print how many calls are answered while *count* connections that have had an answer stay open."""
    clients: list[Wire] = []
    for _ in range(count):
        clients.append(await dial(HOST))
        await ask(clients[-1], request)
    using = asyncio.create_task(use(clients, request))
    for name, source in SOURCES:
        answered = 0
        for _ in range(CALLS):
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(PATIENCE):
                    wire = await dial(source)
                    answered += (await ask(wire, request)).startswith(b"HTTP/1.1 200 ")
                    wire[1].close()
        goal.row(f"{what}; from {name}", f"{answered}/{CALLS}", goal="all", met=answered == CALLS)
    using.cancel()
    for _, writer in clients:
        writer.transport.abort()


async def use(clients: list[Wire], request: bytes) -> None:
    """Use the connections of *clients* in turn, so that none is idle."""
    for wire in cycle(clients):
        with suppress(OSError, asyncio.IncompleteReadError):
            await ask(wire, request)
        await asyncio.sleep(PAUSE)


async def ask(wire: Wire, request: bytes) -> bytes:
    """The head of the answer to *request*; its body is read too."""
    wire[1].write(request)
    head = await wire[0].readuntil(b"\r\n\r\n")
    await wire[0].readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
    return head


if __name__ == "__main__":
    main()
