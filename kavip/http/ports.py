"""
The small ports: ``/livez`` and ``/readyz`` on one, ``/metrics`` on another, which may be secured.

``/livez`` succeeds while the event loop runs. ``/readyz`` lists what is missing, and succeeds if nothing is. Each
answer closes its connection, so no client can rest on one. A secured port uses TLS, and serves a page only to a client
whose token allows it.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from kavip import names, telemetry
from kavip.http.bearertoken import Authorize, refusal
from kavip.http.connection import Limits
from kavip.http.listener import Listener

LIMITS: Final = Limits(connections=64, unused=5.0, grace=0.0, keep_alive=False)
Pages = Mapping[str, Callable[[], web.Response]]


@dataclass(frozen=True, slots=True)
class Security:
    """The *tls* context of each new connection, and which clients may read the pages."""

    tls: Callable[[], ssl.SSLContext]
    authorize: Authorize


@asynccontextmanager
async def serving(
    pages: Pages, host: str, port: int, *, name: str, security: Security | None = None
) -> AsyncIterator[int]:
    """Serve *pages* for the duration of the context; yields the port. Evictions count under *name*."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        page = pages.get(request.path)
        if page is None:
            return web.Response(text=f"want one of {', '.join(sorted(pages))}\n", status=404)
        if request.method not in ("GET", "HEAD"):
            return web.Response(text="want GET\n", status=405, headers={"Allow": "GET, HEAD"})
        refused = await refusal(request, security.authorize) if security else None
        return refused or page()

    tls = security.tls if security else None
    listener = Listener(answer, tls=tls, limits=LIMITS, evicted=telemetry.EVICTIONS.labels(name).inc)
    bound = await listener.start(host, port)
    try:
        yield bound
    finally:
        await listener.stop()


def probes(unready: Callable[[], Iterable[str]]) -> Pages:
    """The probes; *unready* yields a line for each thing that is missing."""

    def live() -> web.Response:
        return web.Response(text="ok\n")

    def ready() -> web.Response:
        missing = list(unready())
        return web.Response(text="\n".join(missing or ["ok"]) + "\n", status=503 if missing else 200)

    return {names.LIVE_PATH: live, names.READY_PATH: ready}


def metrics(refresh: Callable[[], None]) -> Pages:
    """``/metrics``; *refresh* updates gauges before each scrape."""

    def show() -> web.Response:
        refresh()
        return web.Response(body=telemetry.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    return {names.METRICS_PATH: show}
