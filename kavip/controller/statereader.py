"""
Reads ``/state`` of the agents: what an agent has sent before is not sent again, nor are known lists of VIPs.

An agent sends no answer that is equal to its last one, and hashes instead of long lists of VIPs. Only if a hash is
unknown, the whole answer is read; mostly one node is asked for it, and the hashes of the others are known then. An
agent of 0.1.0 sends everything each time. A large answer is decoded in a thread, so that the leader goes on meanwhile,
and of the VIPs in it only those of the group are read.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

import aiohttp

from kavip.api.agent import AgentState, by_hash, decode_state
from kavip.controller import agentclient
from kavip.controller.agentclient import Page
from kavip.controller.viplists import Lists, VIPLists, hashes_in, lists_in
from kavip.controller.viptexts import Parts, VIPTexts
from kavip.reconcile.observed.agent import Placement, WantedVIPs, counts_of, node_state
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.observed.collisions import Trace
from kavip.reconcile.plan import ProbeTarget

_SMALL: Final = 16 * 2**10  # bytes; a smaller answer is decoded within a millisecond
_AT_ONCE: Final = 4  # nodes of a group that are asked for a whole answer, while the others wait
_MOMENT: Final = 0.5  # seconds for which these wait
_AT_MOST: Final = 16  # nodes that are asked then
_PATIENCE: Final = 3.0  # seconds until a node that cannot be asked counts as one that does not answer
_BYTES: Final = 16  # of an answer, which cost as much as one VIP of a known list

T = TypeVar("T")


class StateAnswer(NamedTuple):
    """
    The answer of an agent of *group* on *node*: its *state*, and its *counts* of adverts from outside.

    *is_current*: False if the state has changed while it was read in two requests.
    """

    group: str
    node: str
    state: NodeState
    counts: Mapping[Trace, int]
    is_current: bool = True


class _GroupVIPs:
    """
    The VIPs of a group: the wanted *texts*, and the *lists* that agents report.

    *used*: the hashes in the last answer, by node. *reading*: how many nodes are asked for a whole answer; *has_read*
    is notified when one ends. *failed*: the nodes whose last whole answer did not come.
    """

    def __init__(self) -> None:
        self.texts, self.lists = VIPTexts(), VIPLists()
        self.used: dict[str, set[str]] = {}
        self.reading, self.has_read = 0, asyncio.Condition()
        self.slots, self.retries = asyncio.Semaphore(_AT_MOST), asyncio.Semaphore(_AT_ONCE)
        self.failed: set[str] = set()

    def want(self, parts: Parts) -> None:
        """Want the VIPs of *parts* from now on."""
        if changed := self.texts.update(parts):
            self.lists.forget_addresses(changed)

    @property
    def wanted(self) -> WantedVIPs:
        """The wanted VIPs."""
        return self.texts.found

    async def wait_for_others(self, report: AgentState) -> None:
        """Wait for a moment until the lists in *report* are known, or few nodes are asked for theirs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT), self.has_read:
                await self.has_read.wait_for(lambda: self.lists.knows(report) or self.reading < _AT_ONCE)

    @asynccontextmanager
    async def slot(self, node: str) -> AsyncIterator[None]:
        """A slot to ask *node*; nodes that have failed have slots of their own. Raises :class:`TimeoutError`."""
        slots = self.retries if node in self.failed else self.slots
        async with asyncio.timeout(_PATIENCE):
            await slots.acquire()
        self.reading += 1
        self.failed.add(node)
        try:
            yield
            self.failed.discard(node)
        finally:
            self.reading -= 1
            slots.release()
            async with self.has_read:
                self.has_read.notify_all()

    def learn(self, node: str, lists: Lists, hosts: Collection[str]) -> None:
        """*node*, one of *hosts*, has these *lists*."""
        self.used[node] = set(lists)
        self._forget_others(hosts)
        self.lists.add(lists, self.wanted, users=Counter(chain.from_iterable(self.used.values())))

    def note(self, node: str, hashes: set[str], hosts: Collection[str]) -> None:
        """*node*, one of *hosts*, has sent these *hashes*."""
        self.used[node] = hashes
        if len(self.used) > 2 * len(hosts):
            self._forget_others(hosts)

    def _forget_others(self, hosts: Collection[str]) -> None:
        """Forget the nodes that are not *hosts* any more."""
        self.failed = {each for each in self.failed if each in hosts}
        self.used = {each: names for each, names in self.used.items() if each in hosts}


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
        self,
        body: bytes,
        group: str,
        node: str,
        *,
        target: ProbeTarget | None,
        url: str,
        asked: datetime,
        spend: Callable[[int], None],
    ) -> StateAnswer:
        """
        The state in *body*, which *node* of *group* has sent; it was *asked* then at *url*.

        *spend* is called with the bytes that are decoded, before. Raises :class:`msgspec.MsgspecError` for an
        unreadable answer, and the errors of :meth:`get`.
        """
        vips = None
        if target is not None and target.vips is not None:
            vips = self._groups.setdefault(group, _GroupVIPs())
            vips.want(target.vips)
        spend(len(body))
        received = await self._decoded(body, asked)
        report = received.report
        if target is None or vips is None or report.group != group:
            return await self._answer(received, {} if target is None else None)
        if not vips.lists.knows(report) and node not in vips.failed:
            await vips.wait_for_others(report)
        if not vips.lists.knows(report):
            async with vips.slot(node):
                if not vips.lists.knows(report):
                    return await self._whole(report, vips, node, hosts=target.hosts, url=url, spend=spend)
        vips.note(node, hashes := hashes_in(report), target.hosts)
        if hashes:
            return await self._answer(received, vips.wanted, await self._placed(report, vips, spend))
        return await self._answer(received, vips.wanted)

    async def _whole(
        self,
        before: AgentState,
        vips: _GroupVIPs,
        node: str,
        *,
        hosts: Collection[str],
        url: str,
        spend: Callable[[int], None],
    ) -> StateAnswer:
        """The state with all lists, of a node that has sent hashes *before*."""
        asked = datetime.now(UTC)
        body = (await agentclient.get(self._session, url)).body or b""
        spend(len(body))
        received = await self._decoded(body, asked)
        lists, short = await self._run(lambda: (lists_in(received.report), by_hash(received.report)), len(body))
        vips.learn(node, lists, hosts)
        placement = await self._placed(short, vips, spend) if vips.lists.knows(short) else None
        answer = await self._answer(received, vips.wanted, placement)
        return answer._replace(is_current=short == before)

    async def _placed(self, report: AgentState, vips: _GroupVIPs, spend: Callable[[int], None]) -> Placement:
        """Where the VIPs of *report* are, whose hashes are known; nodes that report the same share it."""
        if found := vips.lists.placement(report):
            return found
        keep, lists = vips.lists.placing(report), vips.lists.addresses(report, vips.wanted)
        size = _BYTES * sum(map(len, lists.values()))
        spend(size)
        placement = await self._run(partial(Placement.of, report, vips.wanted, lists), size)
        keep(placement)
        return placement

    async def _decoded(self, body: bytes, asked: datetime) -> "_Received":
        answered = datetime.now(UTC)
        return _Received(await self._run(partial(decode_state, body), len(body)), len(body), asked, answered)

    async def _answer(
        self, received: "_Received", wanted: WantedVIPs | None, placement: Placement | None = None
    ) -> StateAnswer:
        report, asked, answered = received.report, received.asked, received.answered
        state = await self._run(
            partial(node_state, report, wanted=wanted, placement=placement, asked=asked, answered=answered),
            received.size,
        )
        return StateAnswer(report.group, report.node, state, counts_of(report))

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
