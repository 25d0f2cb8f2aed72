"""
The plain ports: ``/livez`` and ``/readyz`` on one, ``/metrics`` on another.

Live means that the event loop turns. Ready means that nothing says why it is not: the answer lists what does.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from aiohttp import web

from kavip import names, telemetry


@asynccontextmanager
async def serving(application: web.Application, host: str, port: int) -> AsyncIterator[None]:
    """Serve *application* for the duration of the block."""
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        yield
    finally:
        await runner.cleanup()


def probes(unready: Callable[[], Iterable[str]]) -> web.Application:
    """The probes; *unready* names what is missing, one line each, nothing when ready."""

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        missing = list(unready())
        return web.Response(text="\n".join(missing or ["ok"]) + "\n", status=503 if missing else 200)

    application = web.Application()
    application.router.add_get(names.LIVE_PATH, live)
    application.router.add_get(names.READY_PATH, ready)
    return application


def metrics(refresh: Callable[[], None]) -> web.Application:
    """``/metrics``; *refresh* sets the gauges that are read off, just before they are."""

    async def show(_: web.Request) -> web.Response:
        refresh()
        return web.Response(body=telemetry.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.router.add_get(names.METRICS_PATH, show)
    return application
