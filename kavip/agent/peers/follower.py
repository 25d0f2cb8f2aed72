"""
Keeps the nodes of a static group current on one node.

:meth:`PeerFollower.run` lists Nodes and asks the other agents, each at its own pace. :meth:`PeerFollower.configure`
puts the nodes that follow from it into the group's text. The text is the one that the controller would render for these
nodes, so the same nodes give the same bytes.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kavip import names
from kavip.agent.config.localize import hash_of, virtual_ip_of
from kavip.agent.config.model import LocalizedConfig, MountedConfig, RefusedConfig
from kavip.agent.config.sources import running_addresses
from kavip.agent.config.switchover import timestamp
from kavip.agent.peers import store
from kavip.agent.peers.client import Server, get
from kavip.agent.peers.kubeconfig import read_server
from kavip.agent.peers.membership import (
    NO_NODES,
    Answer,
    Contact,
    Nodes,
    Record,
    Self,
    followed,
    listed,
    next_sources,
    peers_of,
)
from kavip.agent.peers.modeswitch import runs_multicast, switch_time
from kavip.agent.peers.nodelist import list_nodes
from kavip.agent.report.state import Standings
from kavip.api.address import Address, read_address
from kavip.api.agent import SEPARATOR, AgentState, NodeProblem, ProblemCode, Standing, decode_state, short_line
from kavip.api.agentconfig import FollowedNodes
from kavip.api.instant import read_instant
from kavip.errors import BadInput, NoAnswer
from kavip.vrrp.instances import NO_SOURCE
from kavip.vrrp.members import Peer
from kavip.vrrp.nodelines import with_nodes
from kavip.vrrp.running import running_nodes

LIST_EVERY: Final = 5.0
"""Seconds between two lists of the Nodes."""
ASK_EVERY: Final = 2.0
"""Seconds between two rounds of questions to the other agents."""
ASK_SOON: Final = 0.5
"""The same while this node joins or leaves."""
LONELY: Final = 60.0
"""
Seconds for which a node that restarts waits for a list, or for an answer of a node that takes part: others may have
joined meanwhile.

It does not wait for ever, because the API server may be reachable by the VIP alone.
"""
GOODBYE: Final = 6.0
"""Seconds for which a node that leaves waits for the others to drop it."""

_SECONDS: Final = 3.0  # an agent on a busy node may be late; silence lets a joining node go on without it
_LARGEST: Final = 1 << 20
_MOST_AT_ONCE: Final = 8
_LIST: Final = "a list of the nodes"  # in the place of a node to wait for: no node has such a name

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Group:
    """What the file says: its *text*, the *nodes* in it, the *families* with unicast peers, and what to *follow*."""

    name: str
    text: str
    nodes: Nodes
    families: frozenset[int]
    vips: frozenset[Address]
    follow: FollowedNodes


class PeerFollower:
    """
    The nodes of one static group, as the node *node* sees them; other agents listen on *port*.

    *kubeconfig*: None: Nodes are not read, and only the file counts. *folder* keeps the last nodes. Until :meth:`run`
    has asked the others, a node takes no part that did not do so before.
    """

    def __init__(
        self,
        node: str,
        folder: Path,
        *,
        port: int = names.AGENT_PORT,
        kubeconfig: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.problems: tuple[NodeProblem, ...] = ()
        self._own, self._folder, self._port, self._kubeconfig, self._clock = Self(node), folder, port, kubeconfig, clock
        self._wall_clock = wall_clock
        self._group: _Group | None = None
        self._record, self._saved = Record(), Record()
        self._contacts: dict[str, Contact] = {}
        self._is_tried = kubeconfig is None  # whether the first list has succeeded or failed
        self._is_listed = False  # whether it has succeeded
        self._lonely_until = 0.0
        self._has_left = False
        self._unread = ""
        self._waits_for = ""
        self._applied: object = None  # what the group's text was made from
        self._file = ""  # the hash of the group's file
        self._switch_at = 0.0  # when the group leaves multicast
        self._is_in_multicast = False
        self._is_configured = asyncio.Event()

    async def start(self, running: LocalizedConfig | None) -> None:
        """Read the last nodes; if keepalived runs *running*, this node continues as it is."""
        self._record = self._saved = await asyncio.to_thread(store.load, self._folder)
        sources = running_addresses(running.text)[0] if running else frozenset()
        self._own = replace(self._own, sends={each.family: each for each in sorted(sources)})
        self._lonely_until = self._clock() + LONELY if self._record.accepted else 0.0

    def configure(self, mounted: MountedConfig, running: LocalizedConfig | None) -> MountedConfig | RefusedConfig:
        """
        *mounted* with the nodes of this moment; unchanged if its nodes are not followed.

        It is refused while keepalived must keep what it runs, *running*, because the group leaves multicast later.
        """
        if self._file != mounted.config_hash:
            self._file, self._switch_at = mounted.config_hash if mounted.is_static else "", 0.0
        if self._group is None or (self._group.text, self._group.follow) != (mounted.text, mounted.follow):
            self._group = _group_of(mounted)
        if self._group is None:
            self._waits_for, self.problems = "", ()
            return mounted
        self._is_configured.set()
        self._is_in_multicast = runs_multicast(running)
        self._decide(self._group)
        if self._is_in_multicast:
            message = f"leaves multicast later: it waits for {self._waits_for}"
            return RefusedConfig(ProblemCode.WAITS_FOR_PEER, message, group=mounted.group)
        peers, first = self._applied = self._wanted(self._group)
        text = with_nodes(mounted.text, mounted.group, peers, first=first)
        return replace(mounted, text=text, config_hash=hash_of(text))

    def standings(self, running: LocalizedConfig | None) -> Standings:
        """
        What to report, if keepalived runs *running*.

        keepalived of a node that takes no part has no peers, so such a node reports those that it will have when it
        joins. Otherwise two nodes would wait for each other. A node that has decided to send reports it at once:
        until keepalived runs that, others would take it for one that sends from no address, and drop it. In multicast
        it reports the file once it can follow it: as soon as all nodes do so, the others announce when they leave.
        """
        if self._group is None:
            return Standings(file=self._file)
        if self._has_left:
            return Standings(Standing.LEFT)
        sources, peers = running_addresses(running.text) if running else (frozenset(), frozenset())
        sends = frozenset(self._own.sends.values())
        if not sources:
            peers = frozenset().union(*(each for name, each in self._record.accepted.items() if name != self._own.name))
        if not sources and not sends:
            switch_at = timestamp(self._switch_at) if self._switch_at else ""
            file = "" if self._is_in_multicast and self._must_read_nodes else self._file
            return Standings(Standing.JOINING, (), _texts(peers), file, switch_at)
        return Standings(Standing.JOINED, _texts(sources | sends), _texts(peers), self._file)

    @property
    def must_say_goodbye(self) -> bool:
        """Whether the others keep this node as a peer until it says goodbye: it has no Node, and is not alone."""
        has_node = self._own.name in (self._record.nodes or NO_NODES)
        answers = (each.answer for each in self._contacts.values() if not each.failures)
        are_others = any(each and each.standing is Standing.JOINED for each in answers)
        return self._group is not None and not has_node and are_others

    async def record_end(self) -> None:
        """Record that the agent of this node was stopped once: it does not rank first any more."""
        if self._group is not None:
            self._record = replace(self._record, has_left=True)
            await self._save()

    async def say_goodbye(self) -> None:
        """Report that this node has left, until no other agent that answers lists it; keepalived must be silent."""
        self._has_left = True
        own = frozenset(self._own.sends.values())
        deadline = self._clock() + GOODBYE
        while self._clock() < deadline and self._group is not None:
            await self._ask_all(self._group)
            answers = [each.answer for each in self._contacts.values() if each.answer and not each.failures]
            if all(own.isdisjoint(each.peers) for each in answers):
                return
            await asyncio.sleep(ASK_SOON)
        log.warning("other nodes still list this one", seconds=GOODBYE)

    async def run(self, wake: Callable[[], None]) -> None:
        """List Nodes and ask agents for ever; call *wake* when the group's text must change."""
        await self._is_configured.wait()
        async with asyncio.TaskGroup() as group:
            if self._kubeconfig is not None:
                group.create_task(self._list_for_ever(self._kubeconfig, wake))
            group.create_task(self._ask_for_ever(wake))

    async def _list_for_ever(self, path: Path, wake: Callable[[], None]) -> None:
        while True:
            if (group := self._group) is not None:
                self._note_list(await self._list(path, group))
                self._is_tried = True
                await self._react(group, wake)
            await asyncio.sleep(LIST_EVERY)

    async def _list(self, path: Path, group: _Group) -> str:
        """Read the Nodes; return why that failed."""
        try:
            server = await asyncio.to_thread(read_server, path)
            found = await list_nodes(server, group.follow.selector, vips=group.vips)
        except (BadInput, NoAnswer) as error:
            return str(error)
        except OSError as error:
            return f"{path.name} or a file that it names cannot be read: {error.strerror}"
        except Exception:  # the edge: the last nodes count
            log.exception("list failed")
            return "the agent failed: see its log"
        families = {name: tuple(each for each in all_ if each.family in group.families) for name, all_ in found.items()}
        was_wanted = self._record.wanted(self._own.name, group.nodes)
        self._record, self._is_listed = listed(self._record, families), True
        if not was_wanted and self._record.wanted(self._own.name, group.nodes):
            self._contacts.clear()  # the others are asked anew: what was silent before may run now
        return ""

    def _note_list(self, problem: str) -> None:
        if problem != self._unread:
            log.info("nodes read") if not problem else log.warning("nodes not read", reason=problem)
        self._unread = problem

    async def _ask_for_ever(self, wake: Callable[[], None]) -> None:
        while True:
            if (group := self._group) is not None and not self._has_left:
                await self._ask_all(group)
                await self._react(group, wake)
            await asyncio.sleep(ASK_SOON if self._waits_for else ASK_EVERY)

    async def _react(self, group: _Group, wake: Callable[[], None]) -> None:
        """Decide again; save what has changed, and wake the agent."""
        if not self._is_in_multicast:
            self._decide(group)
        if self._record != self._saved:
            await self._save()
        if self._is_in_multicast or self._wanted(group) != self._applied:
            wake()

    def _wanted(self, group: _Group) -> tuple[tuple[Peer, ...], str]:
        """What the group's text is made from: the peers, and the node that ranks first."""
        is_over = group.follow.first == self._own.name and self._record.has_left
        return peers_of(self._record, self._own), "" if is_over else group.follow.first

    async def _save(self) -> None:
        record = self._record
        try:
            await asyncio.to_thread(store.save, self._folder, record)
        except OSError as error:
            log.error("nodes not saved", reason=error.strerror)
        self._saved = record

    def _decide(self, group: _Group) -> None:
        """Follow what is known now: the peers of this node, and from where it sends."""
        now = self._clock()
        if self._has_left:
            return
        self._record = followed(self._record, group.nodes, self._contacts, own=self._own, now=now)
        if self._is_in_multicast and self._must_wait_for_switch():
            return
        if self._own.sends or self._may_begin(now):
            sends, waits_for = next_sources(self._record, group.nodes, self._contacts, own=self._own, now=now)
        else:
            sends, waits_for = self._own.sends, f"{_LIST}, or a node that takes part"
        if sends != self._own.sends:
            peers = len(self._record.accepted.keys() - {self._own.name})
            log.info("takes part" if sends else "takes no part", sources=sorted(map(str, sends.values())), peers=peers)
        self._own, self._waits_for = replace(self._own, sends=sends), waits_for
        self.problems = tuple(self._problems(group))

    def _must_wait_for_switch(self) -> bool:
        """
        Whether keepalived must stay in multicast; the instant is decided here, and kept.

        Without a list of the nodes none is announced, but that of another node counts: all others leave then.
        """
        others = {_LIST} if self._must_read_nodes else self._record.accepted.keys() - {self._own.name}
        now = self._wall_clock()
        self._switch_at, name = switch_time(self._switch_at, self._file, others, self._contacts, now=now)
        self._waits_for = name or timestamp(self._switch_at)
        self._is_in_multicast = name != "" or now < self._switch_at
        return self._is_in_multicast

    @property
    def _must_read_nodes(self) -> bool:
        """Whether the Nodes have not been read yet: the file may name the first one alone."""
        return self._kubeconfig is not None and not self._is_listed

    @property
    def seconds_left(self) -> float:
        """The seconds until the group leaves multicast; inf: no instant is known."""
        return max(0.0, self._switch_at - self._wall_clock()) if self._is_in_multicast and self._switch_at else inf

    def _may_begin(self, now: float) -> bool:
        """Whether this node knows enough to decide by itself: what is on disk may be old."""
        answers = any(each.answer and each.answer.standing is Standing.JOINED for each in self._contacts.values())
        is_sure = answers or self._is_listed or bool(self._switch_at) or now > self._lonely_until
        return self._is_tried and is_sure

    def _problems(self, group: _Group) -> Iterator[NodeProblem]:
        if self._unread:
            message = f"the nodes cannot be read, so the last ones count: {short_line(self._unread)}"
            yield NodeProblem(ProblemCode.NODES_UNKNOWN, message.replace(SEPARATOR, ", "))
        if self._waits_for:
            message = f"takes no part yet, or not with its new address: it waits for {self._waits_for}"
            yield NodeProblem(ProblemCode.WAITS_FOR_PEER, message)
        elif not self._own.sends and not self._record.wanted(self._own.name, group.nodes):
            message = f"node {self._own.name} is no node of the group: there is no such Node, nor does the file name it"
            yield NodeProblem(ProblemCode.WAITS_FOR_PEER, message)

    async def _ask_all(self, group: _Group) -> None:
        """Ask every other agent once, a few at a time."""
        every = {**group.nodes, **(self._record.nodes or NO_NODES)}
        every |= {name: tuple(sorted(each)) for name, each in self._record.accepted.items()}
        others = [(name, addresses) for name, addresses in sorted(every.items()) if name != self._own.name]
        self._contacts = {name: each for name, each in self._contacts.items() if name in every}
        turns = asyncio.Semaphore(_MOST_AT_ONCE)

        async def ask(name: str, addresses: tuple[Address, ...]) -> None:
            began = self._clock()
            async with turns:
                answer = await self._ask(group, name, addresses)
            known = self._contacts.get(name) or Contact(began)
            self._contacts[name] = known.answered(answer, now=self._clock()) if answer else known.failed()

        await asyncio.gather(*(ask(*each) for each in others))

    async def _ask(self, group: _Group, name: str, addresses: tuple[Address, ...]) -> Answer | None:
        """What the agent of the node *name* says; None if it does not answer on any of *addresses*."""
        states = await asyncio.gather(*(self._state(address) for address in addresses))
        found = (each for each in states if each and (each.node, each.group) == (name, group.name))
        state = next(found, None)
        if state is None:
            return None
        instant = read_instant(state.switch_at)
        at = instant.timestamp() if instant else 0.0
        return Answer(state.standing, _read(state.sources), _read(state.peers), state.file_hash, at)

    async def _state(self, address: Address) -> AgentState | None:
        try:
            server = Server(str(address), self._port)
            return decode_state(await get(server, names.STATE_PATH, largest=_LARGEST, seconds=_SECONDS))
        except (NoAnswer, msgspec.MsgspecError):
            return None


def _texts(addresses: frozenset[Address]) -> tuple[str, ...]:
    return tuple(map(str, sorted(addresses)))


def _read(texts: tuple[str, ...]) -> frozenset[Address]:
    return frozenset(filter(None, map(read_address, texts)))


def _group_of(mounted: MountedConfig) -> _Group | None:
    """What the file says; None if its nodes are not followed: no unicast instance needs that."""
    families = frozenset(
        family for family, address in NO_SOURCE.items() if f" unicast_src_ip {address}\n" in mounted.text
    )
    if mounted.follow is None or not families:
        return None
    found: dict[str, tuple[Address, ...]] = {}
    for name, address in sorted(running_nodes(mounted.text).accepted):
        found[name] = (*found.get(name, ()), address)
    vips = frozenset(each.address for each in map(virtual_ip_of, mounted.text.split("\n")) if each)
    return _Group(mounted.group, mounted.text, found, families, vips, mounted.follow)
