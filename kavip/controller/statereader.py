"""
Reads ``/state`` of the agents: what an agent has sent before is not sent again, nor are known lists of VIPs.

An agent sends no answer that is equal to its last one, and hashes instead of long lists of VIPs. Only if a hash is
unknown, the whole answer is read; mostly one node is asked for it, and the hashes of the others are known then. An
agent of 0.1.0 sends everything each time. A large answer is decoded in a thread, so that the leader goes on meanwhile,
and of the VIPs in it only those of the group are read.
"""

import asyncio
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

import aiohttp

from kavip.api.agent import AgentState, by_hash, decode_state
from kavip.controller import agentclient
from kavip.controller.agentclient import Page
from kavip.controller.viplists import VIPLists, hashes_in, lists_in
from kavip.controller.viptexts import Parts, VIPTexts
from kavip.reconcile.observed.agent import NO_LISTS, KnownLists, Placement, WantedVIPs, counts_of, node_state
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.observed.collisions import Trace
from kavip.reconcile.plan import ProbeTarget

_SMALL: Final = 16 * 2**10  # bytes; a smaller answer is decoded within a millisecond
_AT_ONCE: Final = 4  # nodes of a group that are asked for a whole answer: a slow one must not hold up the others

T = TypeVar("T")


class StateAnswer(NamedTuple):
    """
    The answer of an agent of *group*: its *state*, and its *counts* of adverts from outside.

    *size*: the bytes that were read. *is_current*: False if the state has changed while it was read in two requests.
    """

    group: str
    state: NodeState
    counts: Mapping[Trace, int]
    size: int
    is_current: bool = True


@dataclass
class _GroupVIPs:
    """The VIPs of a group: the wanted *texts*, and the *lists* that agents report; *used*: their hashes, by node."""

    texts: VIPTexts = field(default_factory=VIPTexts)
    lists: VIPLists = field(default_factory=VIPLists)
    used: dict[str, set[str]] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def want(self, parts: Parts) -> None:
        """Want the VIPs of *parts* from now on."""
        if changed := self.texts.update(parts):
            self.lists.forget_addresses(changed)

    @property
    def wanted(self) -> WantedVIPs:
        """The wanted VIPs."""
        return self.texts.found


class StateReader:
    """Reads with *session*; use it as a context."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Know no VIPs."""
        self._session = session
        self._groups: dict[str, _GroupVIPs] = {}
        self._decoder: ThreadPoolExecutor | None = None  # one thread: several would take the loop's time

    def __enter__(self) -> "StateReader":
        """Start the thread."""
        self._decoder = ThreadPoolExecutor(1, "decode agent state")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it."""
        if self._decoder is not None:
            self._decoder.shutdown(wait=False, cancel_futures=True)

    def forget(self, group: str) -> None:
        """*group* is gone."""
        self._groups.pop(group, None)

    async def get(self, url: str, *, tag: str, target: ProbeTarget | None) -> Page:
        """
        The answer at *url*; without its body if it still has the entity tag *tag*.

        Raises the errors of :func:`kavip.controller.agentclient.get`.
        """
        return await agentclient.get(self._session, url, tag=tag, by_hash=bool(target and target.vips))

    async def read(
        self, body: bytes, group: str, node: str, *, target: ProbeTarget | None, url: str, asked: datetime
    ) -> StateAnswer:
        """
        The state in *body*, which *node* of *group* has sent; it was *asked* then at *url*.

        Raises :class:`msgspec.MsgspecError` for an unreadable answer, and the errors of :meth:`get`.
        """
        vips = None
        if target is not None and target.vips is not None:
            vips = self._groups.setdefault(group, _GroupVIPs())
            vips.want(target.vips)
        received = await self._decoded(body, asked)
        report = received.report
        if target is None or vips is None or report.group != group:
            return await self._answer(received, {} if target is None else None)
        if not vips.lists.knows(report):
            async with vips.slots:
                if not vips.lists.knows(report):  # no other node has sent them meanwhile
                    return await self._whole(received, vips, node, hosts=target.hosts, url=url)
        vips.used[node] = hashes_in(report)
        placement = vips.lists.placement(report, vips.wanted)
        lists = NO_LISTS if placement else vips.lists.addresses(report, vips.wanted)
        return await self._answer(received, vips.wanted, lists, placement)

    async def _whole(
        self, before: "_Received", vips: _GroupVIPs, node: str, *, hosts: Container[str], url: str
    ) -> StateAnswer:
        """The state with all lists, of a node that has sent hashes *before*."""
        asked = datetime.now(UTC)
        body = (await agentclient.get(self._session, url)).body or b""
        received = await self._decoded(body, asked)
        lists, short = await self._run(lambda: (lists_in(received.report), by_hash(received.report)), len(body))
        vips.used = {name: each for name, each in vips.used.items() if name in hosts} | {node: set(lists)}
        vips.lists.add(lists, vips.wanted, used=set[str]().union(*vips.used.values()))
        placement = vips.lists.placement(short, vips.wanted) if vips.lists.knows(short) else None
        answer = await self._answer(received, vips.wanted, placement=placement)
        return answer._replace(size=before.size + received.size, is_current=short == before.report)

    async def _decoded(self, body: bytes, asked: datetime) -> "_Received":
        answered = datetime.now(UTC)
        return _Received(await self._run(partial(decode_state, body), len(body)), len(body), asked, answered)

    async def _answer(
        self,
        received: "_Received",
        wanted: WantedVIPs | None,
        lists: KnownLists = NO_LISTS,
        placement: Placement | None = None,
    ) -> StateAnswer:
        report = received.report
        state = await self._run(
            partial(
                node_state,
                report,
                wanted=wanted,
                lists=lists,
                placement=placement,
                asked=received.asked,
                answered=received.answered,
            ),
            received.size,
        )
        return StateAnswer(report.group, state, counts_of(report), received.size)

    async def _run(self, function: Callable[[], T], size: int) -> T:
        """The result of *function*, which is pure and reads *size* bytes."""
        if size <= _SMALL or self._decoder is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._decoder, function)


class _Received(NamedTuple):
    """A *report* of *size* bytes; the agent was *asked* and *answered* at these times of the controller's clock."""

    report: AgentState
    size: int
    asked: datetime
    answered: datetime
