"""
A bare client of the API server, with only aiohttp and JSON: the least that any controller needs.

``python -m bench.bare KUBECONFIG PATH`` GETs *PATH* once: what a bare program needs from its start to all objects.
"""

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

CONNECTIONS = 32
_NO_TIMEOUT = aiohttp.ClientTimeout()


@dataclass(frozen=True, slots=True)
class Bare:
    """An open *session* to *server*."""

    server: str
    session: aiohttp.ClientSession

    async def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One call; raises on anything but 2xx."""
        headers = {"Content-Type": content_type}
        async with self.session.request(method, self.server + path, json=body, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def events(self, path: str, version: str) -> AsyncIterator[Any]:
        """The events of watches of *path* since *version*: an API server that is behind, or busy, ends one."""
        while True:
            url = f"{self.server}{path}?watch=1&resourceVersion={version}"
            async with self.session.get(url, timeout=_NO_TIMEOUT) as stream:
                rest = b""
                async for chunk in stream.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for event in map(json.loads, lines):
                        if event["type"] != "ERROR":
                            version = event["object"]["metadata"]["resourceVersion"]
                            yield event
            await asyncio.sleep(0.1)

    async def all(self, calls: Iterable[tuple[str, str, Any, str]]) -> float:
        """Send *calls* over 32 connections; the seconds that this takes."""
        return await at_once(self.send(*call) for call in calls)


async def at_once(actions: Iterable[Awaitable[object]]) -> float:
    """Carry out *actions*, 32 at a time; the seconds that this takes."""
    began = time.perf_counter()
    slots = asyncio.Semaphore(CONNECTIONS)

    async def one(action: Awaitable[object]) -> None:
        async with slots:
            await action

    await asyncio.gather(*map(one, actions))
    return time.perf_counter() - began


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Bare]:
    """A bare client for a kubeconfig with client certificates."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Bare(cluster["server"], session)


async def _get(kubeconfig: str, path: str) -> None:
    async with connected(Path(kubeconfig)) as bare:
        await bare.send("GET", path)


if __name__ == "__main__":
    asyncio.run(_get(*sys.argv[1:]))
