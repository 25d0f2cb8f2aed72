"""
One more Service while thousands have addresses: the time from its creation to its address in a watch.

The bare client creates the same Service with a class of another controller, and PATCHes its status itself. One watch
sees both. They take turns, so that other load on the machine affects both. No webhooks are registered.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

from bench.bare import Bare
from bench.goal import row
from bench.site import BARE, NAMESPACE, STRATEGIC, Site, notes, path, service, status
from kavip import names

GOAL = 1.25  # times the bare client
PAIRS = 7
WARMING = 2  # pairs to warm up, which do not count
PAUSE = 1.5  # seconds between measurements, for the work after an address, for example the text of a group
PATIENCE = 60.0
NO_CLASS: dict[str, Any] = {"loadBalancerClass": "bench.example/none"}  # of the bare client's Services

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "externalTrafficPolicy: Local": {"externalTrafficPolicy": "Local"},
    "with a sharing key": {},
}


class Watch:
    """A watch that notes when a Service gets an address; *also* takes each event."""

    def __init__(self, also: Callable[[Any], None] = lambda _: None) -> None:
        self._waiting: dict[str, asyncio.Future[float]] = {}
        self._also = also

    def expect(self, name: str) -> asyncio.Future[float]:
        """A future for the time (``time.perf_counter``) at which the Service *name* has an address."""
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return self._waiting[name]

    async def run(self, bare: Bare, version: str) -> None:
        """Read watches until cancelled."""
        async for event in bare.events("/api/v1/services", version):
            self._take(event["object"])
            self._also(event)

    def _take(self, found: Any) -> None:
        waiter = self._waiting.get(found["metadata"]["name"])
        if waiter is not None and not waiter.done() and found["status"]["loadBalancer"].get("ingress"):
            waiter.set_result(time.perf_counter())


@asynccontextmanager
async def watching(bare: Bare, also: Callable[[Any], None] = lambda _: None) -> AsyncIterator[Watch]:
    """A watch of all Services from now on; *also* takes each event."""
    listed = await bare.send("GET", "/api/v1/services?limit=1")
    watch = Watch(also)
    task = asyncio.create_task(watch.run(bare, listed["metadata"]["resourceVersion"]))
    await asyncio.sleep(1)
    try:
        yield watch
    finally:
        task.cancel()


async def measure(site: Site) -> None:
    """Print the rows; kavip must be running and idle."""
    async with watching(site.bare) as watch:
        for number, (kind, spec) in enumerate(KINDS.items()):
            pairs = [await _pair(site.bare, watch, f"m{number}x{turn}", spec, turn) for turn in range(WARMING + PAIRS)]
            bare, kavip = zip(*pairs[WARMING:], strict=True)
            print(f"  {kind}: bare client {1000 * median(bare):.1f} ms, kavip {1000 * median(kavip):.1f} ms")
            ratio = median(ours / theirs for theirs, ours in pairs[WARMING:])
            row(f"one more, {kind}: to the bare client", f"{ratio:.2f}", goal=f"at most {GOAL}", met=ratio <= GOAL)


async def _pair(bare: Bare, watch: Watch, name: str, spec: dict[str, Any], turn: int) -> tuple[float, float]:
    """The seconds of the bare client and of kavip for one Service each."""
    more = {**spec, "port": 1000 + turn}
    shared = {names.SHARING_KEY_ANNOTATION: "bench"} if name.startswith("m2") else {}
    plain = partial(by_hand, bare, watch, service(BARE, f"{name}bare", annotations=shared, **NO_CLASS, **more), turn)
    ours = partial(served, bare, watch, service(NAMESPACE, f"{name}kavip", annotations={**notes(0), **shared}, **more))
    result = {}
    for act in (plain, ours) if turn % 2 else (ours, plain):
        await asyncio.sleep(PAUSE)
        result[act] = await act()
    return result[plain], result[ours]


async def by_hand(bare: Bare, watch: Watch, body: dict[str, Any], number: int) -> float:
    """Create a Service as the bare client and write its status; the seconds until the address is in *watch*."""
    seen, began = watch.expect(body["metadata"]["name"]), time.perf_counter()
    await complete(bare, body, number)
    return await until(seen) - began


async def complete(bare: Bare, body: dict[str, Any], number: int) -> None:
    """Create a Service as the bare client, and write its status; *number* selects the address."""
    made = (await bare.send("POST", path(BARE), body))["metadata"]
    new_status = status(number, made["resourceVersion"])
    await bare.send("PATCH", path(BARE, made["name"], "status"), new_status, STRATEGIC)


async def served(bare: Bare, watch: Watch, body: dict[str, Any]) -> float:
    """Create a Service; the seconds until a controller has given it an address, which *watch* sees."""
    seen, began = watch.expect(body["metadata"]["name"]), time.perf_counter()
    await bare.send("POST", path(body["metadata"]["namespace"]), body)
    return await until(seen) - began


async def until(seen: asyncio.Future[float]) -> float:
    """The time of *seen*, which must come within a minute."""
    async with asyncio.timeout(PATIENCE):
        return await seen
