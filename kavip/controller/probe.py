"""
The eye on the agents: reads ``/state`` of every node of every group and keeps the last answer of each.

One watcher per node and group: it looks often while the node does not yet run the wanted configuration, ever less often
as time goes by, and at the ordinary interval once it does. Few requests are in flight at a time, none outlives its
timeout, no answer is read beyond its limit. A node that does not answer keeps its last state: silence is not news.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

import aiohttp
import msgspec
import structlog

from kavip import names
from kavip.api.address import read_address
from kavip.api.meta import Wire, field
from kavip.controller.news import EVER
from kavip.controller.observed import BY_KEEPALIVED, MASTER, LeftOut, NodeState, Observed, Sight
from kavip.controller.outcome import Target

log = structlog.get_logger()

QUICK: Final = 0.2  # seconds; a new configuration is in a pod's mount after 0.4 to 0.9 s
_STEADY_LOOKS: Final = 15  # quick looks before they become rarer
_SLOWER: Final = 1.5
_TIMEOUT: Final = 2.0
_IN_FLIGHT: Final = 32
_LARGEST: Final = 8 * 2**20  # bytes; 20,000 VIPs in 510 instances are one megabyte


class InstanceReport(Wire, frozen=True):
    """``instances[]`` of ``/state``."""

    name: str
    router_id: int = field(name="routerID", default=0)
    family: int = 4
    state: str = ""
    virtual_ips: list[str] = field(name="virtualIPs", default=[])


class LeftOutReport(Wire, frozen=True):
    """``leftOut[]`` of ``/state``."""

    name: str
    reason: str = ""
    by: str = ""
    kept: bool = False
    virtual_ips: list[str] = field(name="virtualIPs", default=[])


class DaemonReport(Wire, frozen=True):
    """``keepalived`` of ``/state``."""

    version: str = ""
    running: bool = False


class Report(Wire, frozen=True):
    """What an agent says at ``/state``, as far as the controller asks."""

    group: str
    config_hash: str = ""
    refused: str = ""
    note: str = ""
    keepalived: DaemonReport = DaemonReport()
    instances: list[InstanceReport] = []
    left_out: list[LeftOutReport] = []


def state_of(body: bytes) -> Report:
    """Decode an answer; raises :class:`msgspec.MsgspecError`."""
    return msgspec.json.decode(body, type=Report)


def summary(report: Report) -> NodeState:
    """What decisions need of *report*."""
    runs, masters = set(), set()
    for instance in report.instances:
        addresses = {address for text in instance.virtual_ips if (address := read_address(text))}
        runs |= addresses
        if instance.state == MASTER:
            masters |= addresses
    sights = (
        Sight(each.name, each.router_id, each.family, each.state, len(each.virtual_ips)) for each in report.instances
    )
    return NodeState(
        config_hash=report.config_hash,
        refused=_short(report.refused),
        note=_short(report.note),
        running=report.keepalived.running,
        runs=frozenset(runs),
        masters=frozenset(masters),
        instances=tuple(sorted(sights, key=lambda sight: sight.name)),
        left_out=tuple(sorted(map(_left_out, report.left_out), key=lambda left_out: left_out.name)),
    )


def _left_out(told: LeftOutReport) -> LeftOut:
    return LeftOut(
        name=_short(told.name),
        reason=_short(told.reason),
        by_keepalived=told.by == BY_KEEPALIVED,
        kept=told.kept,
        virtual_ips=frozenset(address for text in told.virtual_ips if (address := read_address(text))),
    )


def _short(text: str) -> str:
    """An agent's word goes into conditions: one short line."""
    return " ".join(text.split())[:200]


class Probe:
    """Keeps :attr:`observed` up to date and tells *changed* the group whose answers differ from before."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        changed: Callable[[str], None],
        interval: float = 5.0,
        began: datetime = EVER,
    ) -> None:
        """Look every *interval* seconds when nothing is awaited; *began*: when that is."""
        self.observed = Observed(began=began)
        self._session, self._changed, self._interval = session, changed, interval
        self._targets: dict[str, Target] = {}
        self._watchers: dict[tuple[str, str], asyncio.Event] = {}
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._tasks: asyncio.TaskGroup | None = None
        self._unreadable: set[tuple[str, str]] = set()  # told once

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for group, target in self._targets.items():
                    self._watch(group, target.hosts)
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._watchers.clear()

    def aim(self, group: str, target: Target | None) -> None:
        """Look at the nodes of *target* from now on; None: *group* is gone."""
        before = self._targets.get(group)
        if target == before:
            return
        if target is None:
            del self._targets[group]
        else:
            self._targets[group] = target
        hosts = target.hosts if target else {}
        self.observed = self.observed.with_nodes(group, sorted(hosts))
        for node in {*hosts, *(before.hosts if before else ())}:
            if waker := self._watchers.get((group, node)):
                waker.set()
        self._watch(group, hosts)

    def _watch(self, group: str, nodes: Iterable[str]) -> None:
        for node in sorted(nodes):
            if self._tasks is not None and (group, node) not in self._watchers:
                waker = self._watchers[group, node] = asyncio.Event()
                self._tasks.create_task(self._watcher(group, node, waker), name=f"probe {group} {node}")

    async def _watcher(self, group: str, node: str, waker: asyncio.Event) -> None:
        looks = 0
        while (target := self._targets.get(group)) and (host := target.hosts.get(node)):
            state = await self._look(group, node, f"http://{host}:{target.port}{names.STATE_PATH}")
            looks += 1
            is_there = state is not None and state.config_hash == target.config_hash
            delay = self._interval if is_there else self._quick(looks)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await waker.wait()
                looks = 0
            waker.clear()
        self._watchers.pop((group, node), None)

    def _quick(self, looks: int) -> float:
        return min(self._interval, QUICK * _SLOWER ** max(0, looks - _STEADY_LOOKS))

    async def _look(self, group: str, node: str, url: str) -> NodeState | None:
        try:
            async with self._slots:
                report = state_of(await self._ask(url))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("agent does not answer", group=group, node=node, error=type(error).__name__)
            return None
        except (msgspec.MsgspecError, ValueError) as error:
            if (group, node) not in self._unreadable:
                log.warning("agent's state cannot be read", group=group, node=node, error=str(error))
            self._unreadable.add((group, node))
            return None
        self._unreadable.discard((group, node))
        target = self._targets.get(group)
        if report.group != group or target is None or node not in target.hosts:
            return None  # the port belongs to another group's agent, or the node has left while it answered
        state = summary(report)
        if state != self.observed.of(group).get(node):
            self.observed = self.observed.with_node(group, node, state=state)
            self._changed(group)
        return state

    async def _ask(self, url: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _LARGEST:
                    raise ValueError(f"answer is longer than {_LARGEST} bytes")
            return bytes(body)
