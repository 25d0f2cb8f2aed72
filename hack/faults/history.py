"""Simulated users: many connections, each with one write after the other; none waits for kavip."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from hack.endurance.writer import Access
from hack.faults.demand import NAMESPACES, Demand
from kavip import names

WRITERS: Final = 12
_POOLS: Final = "/apis/kavip.io/v1alpha1/vippools"
_GROUPS: Final = f"/apis/{names.REDHATCOP_GROUP}/{names.VERSION}/namespaces/{NAMESPACES[0]}/keepalivedgroups"
_PAUSE: Final = 1.5  # seconds between two edits of pools
_NEW: Final = 0.4  # the probability of a creation while fewer than half of all Services exist
_OLD: Final = 0.2  # the odds of a deletion, while more are there than this share of that half:
_KEPT: Final = 0.6
_BREATH: Final = 0.2  # seconds between two writes of one connection, at most


@dataclass(slots=True)
class History:
    """The users of one API server, and *counts* of what they did."""

    access: Access
    demand: Demand
    counts: Counter[str] = field(default_factory=Counter)
    _alive: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _session: aiohttp.ClientSession = field(init=False)

    async def __aenter__(self) -> "History":
        """Connect, and create the objects of a history: namespaces, pools, a default group without nodes."""
        connector = aiohttp.TCPConnector(ssl=self.access.tls, limit=WRITERS + 2)
        self._session = aiohttp.ClientSession(self.access.server, connector=connector, headers={"User-Agent": "users"})
        for name in (*NAMESPACES, "kavip"):
            await self._write("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        group = {
            "apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}",
            "kind": names.KEEPALIVED_GROUP,
            "metadata": {"name": "edge", "labels": {names.DEFAULT_GROUP_LABEL: "true"}},
            "spec": {"interface": "eth0", "nodeSelector": {"faults": "nowhere"}, "instances": {"mode": "Shared"}},
        }
        await self._write("POST", _GROUPS, group)
        for name, spec in self.demand.pools().items():
            await self._write("POST", _POOLS, _pool(name, spec))
        self.counts.clear()  # on a control plane with an earlier history, all these objects exist
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._session.close()

    async def run(self, *, seconds: float) -> None:
        """
        Create half of the Services as fast as possible; then create, edit and delete at random for *seconds*.

        Services that are not created by then are created at the end.
        """
        await self.rush(self.demand.services // 2)
        asyncio.get_running_loop().call_later(seconds, self._over.set)
        await asyncio.gather(self._all(self._mix), self._edit_pools())
        await self.rush(self.demand.services)

    async def rush(self, services: int) -> None:
        """Create until there have been *services*."""
        await self._all(lambda: self._until(services))

    async def _all(self, work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.gather(*(work() for _ in range(WRITERS)))

    async def _until(self, services: int) -> None:
        while self.counts["created"] < services:
            await self._create()

    async def _mix(self) -> None:
        rng = self.demand.rng
        while not self._over.is_set():
            alive, wanted = len(self._alive), self.demand.services // 2
            if alive < wanted and self.counts["created"] < self.demand.services and rng.random() < _NEW:
                await self._create()
            elif alive > wanted * _KEPT and rng.random() < _OLD:
                await self._delete(rng.choice(list(self._alive)))
            elif alive:
                await self._edit(rng.choice(list(self._alive)))
            await asyncio.sleep(rng.random() * _BREATH)

    # --- Services -------------------------------------------------------------------------------------------------
    async def _create(self) -> None:
        self.counts["created"] += 1
        body = self.demand.service(next(self._numbers))
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/services"
        if await self._write("POST", path, body):
            self._alive[f"{path}/{name}"] = body

    async def _edit(self, path: str) -> None:
        if await self._write("PATCH", path, self.demand.service_edit(self._alive[path])):
            self.counts["edited"] += 1

    async def _delete(self, path: str) -> None:
        del self._alive[path]
        if await self._write("DELETE", path):
            self.counts["deleted"] += 1

    # --- pools ----------------------------------------------------------------------------------------------------
    async def _edit_pools(self) -> None:
        while not self._over.is_set():
            name, spec = self.demand.pool_edit()
            path = f"{_POOLS}/{name}"
            if spec is not None:
                await self._write("PATCH", path, {"spec": spec})
            elif not await self._write("DELETE", path):
                await self._write("POST", _POOLS, _pool(name, self.demand.extra()))
            self.counts["pools edited"] += 1
            await asyncio.sleep(_PAUSE)

    async def _write(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
        """Whether the write succeeded; writes that the API server refuses are counted, and are no fault."""
        headers = {"Content-Type": "application/merge-patch+json"} if verb == "PATCH" else {}
        async with self._session.request(verb, path, json=body, headers=headers) as answer:
            if answer.status >= 300:
                self.counts[f"{verb} answered {answer.status}"] += 1
            await answer.read()
            return answer.status < 300


def _pool(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    version = f"{names.KAVIP_GROUP}/{names.VERSION}"
    return {"apiVersion": version, "kind": names.VIP_POOL, "metadata": {"name": name}, "spec": spec}
