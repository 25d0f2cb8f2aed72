"""
A fake API server with faults on request.

It is only for faults that a real API server does not produce on request: 410, 429, silence, malformed objects, hanging
calls. Otherwise it implements what an informer needs: lists in pages, and watches from a version.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers a request in its own way, or None: as usual."""

Body = dict[str, Any]


class FakeApi:
    """Serves ConfigMaps only; *fault* sees each request first."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, Body] = {}
        self.history: list[tuple[int, str, Body]] = []
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.fault: Fault | None = None
        self.headers: dict[str, str] = {}
        self._news = asyncio.Condition()
        self._failures: list[bytes] = []
        self._ending = False

    async def put(self, key: str, **more: Any) -> None:
        """Create or replace an object."""
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.version += 1
        self.objects[key] = configmap(key, self.version, **more)
        await self._record(kind, self.objects[key])

    async def remove(self, key: str) -> None:
        """Delete an object."""
        self.version += 1
        gone = self.objects.pop(key)
        await self._record("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}})

    async def send_event(self, kind: str, obj: Body) -> None:
        """Send any event on the watches."""
        self.version += 1
        await self._record(kind, obj)

    async def fail(self, code: int, reason: str, message: str = "because") -> None:
        """End the open watches with an ERROR event."""
        async with self._news:
            self._failures.append(line("ERROR", status(code, reason, message)))
            self._news.notify_all()

    async def end(self) -> None:
        """Let every handler return."""
        self._ending = True
        async with self._news:
            self._news.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.headers = dict(request.headers)
        watching, failures = "watch" in request.query, len(self._failures)
        (self.watches if watching else self.lists).append(dict(request.query))
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            return answer
        return await self._watch(request, failures) if watching else self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        keys = sorted(self.objects)
        start = int(request.query.get("continue") or 0)
        end = start + int(request.query.get("limit") or len(keys) or 1)
        metadata = {"resourceVersion": str(self.version), "continue": str(end) if end < len(keys) else ""}
        return web.json_response({"metadata": metadata, "items": [self.objects[key] for key in keys[start:end]]})

    async def _watch(self, request: web.Request, failures: int) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        position = int(request.query["resourceVersion"])
        async with self._news:
            while not self._ending:
                for version, kind, obj in list(self.history):
                    if version > position:
                        await answer.write(line(kind, obj))
                        position = version
                if len(self._failures) > failures:
                    await answer.write(self._failures[-1])
                    break
                await self._news.wait()
        return answer

    async def _record(self, kind: str, obj: Body) -> None:
        self.history.append((self.version, kind, obj))
        async with self._news:
            self._news.notify_all()


def configmap(key: str, version: int, **more: Any) -> Body:
    """A ConfigMap; *more* replaces its top-level fields."""
    namespace, name = key.split("/")
    uid = more.pop("uid", f"uid-{key}")
    metadata = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}, **more}


def line(kind: str, obj: Body) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def status(code: int, reason: str, message: str = "because") -> Body:
    """A Status."""
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


def refusal(code: int, reason: str, **headers: str) -> web.Response:
    """A response with a Status."""
    return web.json_response(status(code, reason), status=code, headers=headers)


@asynccontextmanager
async def serving(fake: FakeApi, folder: Path) -> AsyncIterator[Path]:
    """Serve *fake* on loopback; yield a kubeconfig for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield kubeconfig(folder, f"http://{host}:{port}")
    finally:
        await fake.end()
        await runner.cleanup()


def kubeconfig(folder: Path, server: str, **user: str) -> Path:
    """A kubeconfig file."""
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(config))
    return file
