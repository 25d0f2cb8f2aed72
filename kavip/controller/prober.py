"""
The eye on the agents: reads ``/state`` of every node of every group and keeps the last answer of each.

One watcher per node and group: it looks often while the node does not yet run the wanted configuration, or claims what
another one claims too, ever less often as time goes by, and else at the ordinary interval, or as rarely as so many
nodes demand. Few requests are in flight at a time, none outlives its timeout, no answer is read beyond its limit, and
one that says what the last one said is not even decoded. What changes is told once for a group in :data:`FOLD` seconds,
after the others were asked as well: a fail-over is two answers. A node that does not answer keeps its last state; that
it has been silent for :data:`SILENCE` seconds is news.
"""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

import aiohttp
import msgspec
import structlog

from kavip import names
from kavip.api.agent import decode_state
from kavip.reconcile.migration import exporter
from kavip.reconcile.observed import collisions
from kavip.reconcile.observed.agent import counts_of, node_state, resumed
from kavip.reconcile.observed.collisions import Tally
from kavip.reconcile.observed.nodes import EVER, MASTER, AgentStates, Contact, NodeState
from kavip.reconcile.plan import ProbeTarget
from kavip.telemetry import AGENT_LOOKS

log = structlog.get_logger()

_ANSWERED, _UNANSWERED, _UNREADABLE = map(AGENT_LOOKS.labels, ("answered", "unanswered", "unreadable"))

FOLD: Final = 0.2
"""Seconds for which the answers of a group are gathered before they are told."""
SILENCE: Final = 5.0
"""Seconds without an answer after which a node counts as silent."""
RESTART: Final = 5.0
"""Seconds that a keepalived which has ended is given to be started again, before its node runs nothing."""
QUICK: Final = 0.2  # seconds; a new configuration is in a pod's mount after 0.4 to 0.9 s
_STEADY_LOOKS: Final = 15  # quick looks before they become rarer
_SLOWER: Final = 1.5
_TIMEOUT: Final = 2.0
_IN_FLIGHT: Final = 32
_RATE: Final = 400  # looks per second over all nodes of all groups, when nothing is awaited
_NEIGHBOURS: Final = 64  # nodes that are asked at once because another one says something new
_LAG: Final = 0.2  # seconds by which what an agent says may be old (agent.witness.FRESH)
_LARGEST: Final = 2 * 2**20  # bytes; 20,000 VIPs in 510 instances are one megabyte


def _is_there(state: NodeState, target: ProbeTarget) -> bool:
    """Whether *state* is what is awaited."""
    wanted = (target.config_hash, target.prepared, target.switch_at)
    return (state.config_hash, state.prepared, state.switch_at) == wanted


class Probe:
    """Keeps :attr:`agents` up to date and tells *changed* the group whose answers differ from before."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        changed: Callable[[str], None],
        interval: float = 1.0,
        began: datetime = EVER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look every *interval* seconds when nothing is awaited; *began*: when that is."""
        self._states = AgentStates(asked_from=began, since=clock())
        self._session, self._changed, self._interval, self._clock = session, changed, interval, clock
        self._targets: dict[str, ProbeTarget] = {}
        self._watchers: dict[_Place, _Watcher] = {}
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._lost = asyncio.Semaphore(_IN_FLIGHT)  # for silent nodes, so that those that answer do not wait for them
        self._tasks: asyncio.TaskGroup | None = None
        self._telling: dict[str, asyncio.TimerHandle] = {}
        self._contested: dict[str, frozenset[str]] = {}  # by group, instances that two nodes claim

    @property
    def agents(self) -> AgentStates:
        """The agents' last answers, as of now."""
        return replace(self._states, at=self._clock())

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
            for handle in self._telling.values():
                handle.cancel()

    def aim(self, group: str, target: ProbeTarget | None) -> None:
        """Look at the nodes of *target* from now on; None: *group* is gone."""
        before = self._targets.get(group)
        if target == before:
            return
        if target is None:
            del self._targets[group]
            self._contested.pop(group, None)
        else:
            self._targets[group] = target
        hosts = target.hosts if target else {}
        self._states = self._states.with_nodes(group, sorted(hosts))
        self._wake(group, {*hosts, *(before.hosts if before else ())})
        self._watch(group, hosts)

    def _wake(self, group: str, nodes: Iterable[str]) -> None:
        for node in nodes:
            if watcher := self._watchers.get((group, node)):
                watcher.waker.set()

    def _watch(self, group: str, nodes: Iterable[str]) -> None:
        for node in sorted(nodes):
            if self._tasks is not None and (group, node) not in self._watchers:
                watcher = self._watchers[group, node] = _Watcher(group, node, heard=self._clock())
                self._tasks.create_task(self._follow(watcher), name=f"probe {group} {node}")

    async def _follow(self, watcher: "_Watcher") -> None:
        looks = 0
        while (target := self._targets.get(watcher.group)) and (host := target.hosts.get(watcher.node)):
            if watcher.node in target.old:
                state = await self._look_back(watcher, f"http://{host}:{exporter.PORT}{names.METRICS_PATH}")
            else:
                state = await self._look(watcher, f"http://{host}:{target.port}{names.STATE_PATH}")
            looks += 1
            contested = watcher.masters & self._contested.get(watcher.group, frozenset())
            is_calm = state is not None and _is_there(state, target) and not contested
            delay = self._pause if is_calm else self._quick(looks)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await watcher.waker.wait()
                looks = 0
            watcher.waker.clear()
        self._watchers.pop((watcher.group, watcher.node), None)

    @property
    def _pause(self) -> float:
        return max(self._interval, len(self._watchers) / _RATE)

    def _quick(self, looks: int) -> float:
        return min(self._pause, QUICK * _SLOWER ** max(0, looks - _STEADY_LOOKS))

    def _count(self, group: str) -> None:
        """See which instances more than one node claims that answers; those nodes are asked again soon."""
        watchers = [each for key, each in self._watchers.items() if key[0] == group and not each.is_silent]
        claims = Counter(name for each in watchers for name in each.masters)
        contested = frozenset(name for name, times in claims.items() if times > 1)
        fresh, self._contested[group] = contested - self._contested.get(group, frozenset()), contested
        for each in watchers if fresh else ():
            if each.masters & fresh:
                each.waker.set()

    async def _look(self, watcher: "_Watcher", url: str) -> NodeState | None:
        group, node, sent = watcher.group, watcher.node, self._clock()
        try:
            async with self._lost if watcher.is_silent else self._slots:
                sent, asked = self._clock(), datetime.now(UTC)
                body = await self._ask(url)
            digest = blake2b(body, digest_size=16).digest()
            known = self._states.states_of(group).get(node) if digest == watcher.digest else None
            fresh = known or self._read(watcher, body, asked=asked)
            state = collisions.noted(fresh, watcher.tally, at=self._clock())
            state = self._borne(watcher, state)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("agent does not answer", group=group, node=node, error=type(error).__name__)
            _UNANSWERED.inc()
            self._miss(watcher)
            return None
        except (msgspec.MsgspecError, ValueError) as error:
            if not watcher.is_unreadable:
                log.warning("agent's state cannot be read", group=group, node=node, error=str(error))
            self._distrust(watcher)
            return None
        except Exception:  # the edge: what one node says must not stop those who look at the others
            if not watcher.is_unreadable:
                log.exception("agent's state cannot be judged", group=group, node=node)
            self._distrust(watcher)
            return None
        watcher.is_unreadable = False
        _ANSWERED.inc()
        if state is None:
            self._miss(watcher)
            return None
        watcher.digest = digest if watcher.gone is None else b""
        self._hear(watcher, state, sent=sent)
        return state

    def _borne(self, watcher: "_Watcher", state: NodeState | None) -> NodeState | None:
        """*state*, with what ran a moment ago where keepalived has only just gone: kubelet starts it again."""
        if state is None or state.running:
            watcher.gone = None
            return state
        watcher.gone = self._clock() if watcher.gone is None else watcher.gone
        before = self._states.states_of(watcher.group).get(watcher.node)
        return resumed(state, before) if before and self._clock() - watcher.gone < RESTART else state

    async def _look_back(self, watcher: "_Watcher", url: str) -> NodeState | None:
        """Ask a pod of keepalived-operator's; silence is an answer, for nothing waits for a better one."""
        sent = self._clock()
        try:
            async with self._slots:
                sent = self._clock()
                body = (await self._ask(url)).decode(errors="replace")
                target = self._targets.get(watcher.group)
                state = exporter.state_of(body, target.instances if target else ())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.debug("exporter does not answer", group=watcher.group, node=watcher.node, error=type(error).__name__)
            state = exporter.SILENT
        target = self._targets.get(watcher.group)
        if target is not None and watcher.node in target.old:
            watcher.digest = b""
            self._hear(watcher, state, sent=sent)
        return state

    def _read(self, watcher: "_Watcher", body: bytes, *, asked: datetime) -> NodeState | None:
        """What *body* says; None: the port is another group's agent's, or the node has left while it answered."""
        report = decode_state(body)
        target = self._targets.get(watcher.group)
        if report.group != watcher.group or target is None or watcher.node not in target.hosts:
            return None
        watcher.tally = collisions.follow(watcher.tally, counts_of(report), at=self._clock())
        return node_state(report, asked=asked, answered=datetime.now(UTC))

    def _hear(self, watcher: "_Watcher", state: NodeState, *, sent: float) -> None:
        group, node = watcher.group, watcher.node
        before, known = self._states.states_of(group).get(node), self._states.contacts_of(group).get(node)
        contact = Contact(last=sent - _LAG, since=known.since if known else {})
        if state != before:
            contact = replace(contact, since=since(before, state, contact, at=self._clock()))
            self._states = self._states.with_state(group, node, state=self._alike(group, state))
        self._states = self._states.with_contact(group, node, contact=contact)
        masters = frozenset(sight.name for sight in state.instances if sight.state == MASTER)
        is_news, is_moved = state != before or watcher.is_silent, masters != watcher.masters or watcher.is_silent
        watcher.masters, watcher.heard, watcher.is_silent = masters, self._clock(), False
        if is_moved:
            self._count(group)
        if is_moved and before and len(self._targets[group].hosts) <= _NEIGHBOURS:
            self._wake(group, (each for each in self._targets[group].hosts if each != node))
        if is_news:
            self._tell(group)

    def _alike(self, group: str, state: NodeState) -> NodeState:
        """The same *state*, sharing with another node's what the two have in common: all nodes run the same VIPs."""
        for other in self._states.states_of(group).values():
            if other.instance_of == state.instance_of:
                return replace(state, runs=other.runs, instance_of=other.instance_of)
        return state

    def _distrust(self, watcher: "_Watcher") -> None:
        watcher.is_unreadable = True
        _UNREADABLE.inc()
        self._miss(watcher)

    def _miss(self, watcher: "_Watcher") -> None:
        group, node = watcher.group, watcher.node
        if watcher.is_silent or self._clock() - watcher.heard < SILENCE:
            return
        watcher.is_silent = True
        self._count(group)
        if contact := self._states.contacts_of(group).get(node):
            self._states = self._states.with_contact(group, node, contact=replace(contact, is_silent=True))
        self._tell(group)

    def _tell(self, group: str) -> None:
        if group not in self._telling:
            self._telling[group] = asyncio.get_running_loop().call_later(FOLD, self._told, group)

    def _told(self, group: str) -> None:
        del self._telling[group]
        self._changed(group)

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


_Place = tuple[str, str]


@dataclass(slots=True)
class _Watcher:
    """Who looks at one *node* of one *group*; *masters*: instances that it claims, *heard*: when it last answered."""

    group: str
    node: str
    heard: float
    waker: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    digest: bytes = b""
    masters: frozenset[str] = frozenset()
    tally: Tally = dataclasses.field(default_factory=Tally)
    gone: float | None = None  # since when its keepalived does not run
    is_silent: bool = False
    is_unreadable: bool = False  # told once


def since(before: NodeState | None, state: NodeState, contact: Contact, *, at: float) -> Mapping[str, float]:
    """From when on each instance of *state* is known to be in its state without a break."""
    same = {(sight.name, sight.state, sight.since) for sight in before.instances} if before else set()
    return {
        sight.name: contact.since.get(sight.name, at) if (sight.name, sight.state, sight.since) in same else at
        for sight in state.instances
    }
