"""
The prober of the agents: reads ``/state`` of every node of every group and keeps the last answer of each.

One task per node and group. It asks often while the node does not run the wanted configuration yet, or is master of
what another node is master of too, and less often as time goes by. Otherwise it asks at the ordinary interval; where
there are many nodes, each is asked less often (:mod:`kavip.controller.probeintervals`). Few requests are in flight at a
time, each has a timeout, and no answer is read beyond its limit. An answer that is equal to the last one is not
decoded, and the others cost little (:mod:`kavip.controller.statereader`). A node whose answers cost much is asked less
often (:mod:`kavip.controller.probebudget`).

A change is reported once for a group in :data:`FOLD` seconds, after the other nodes were asked as well: a fail-over is
two answers. A node that does not answer keeps its last state; :data:`SILENCE` seconds of silence are a change.
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
from kavip.controller import agentclient, probeintervals
from kavip.controller.agentclient import Page
from kavip.controller.probebudget import ProbeBudget
from kavip.controller.statereader import StateReader
from kavip.reconcile.observed import collisions, exporter
from kavip.reconcile.observed.agent import resumed
from kavip.reconcile.observed.agentstates import EVER, MASTER, AgentStates, Contact, NodeState
from kavip.reconcile.observed.collisions import Tally
from kavip.reconcile.plan import ProbeTarget
from kavip.telemetry import AGENT_PROBES

log = structlog.get_logger()

_ANSWERED, _UNANSWERED, _UNREADABLE = map(AGENT_PROBES.labels, ("answered", "unanswered", "unreadable"))

FOLD: Final = 0.2
"""Seconds for which the answers of a group are gathered before they are reported."""
SILENCE: Final = 5.0
"""Seconds without an answer after which a node counts as silent."""
RESTART: Final = 5.0
"""Seconds in which a keepalived that has ended may be started again, before its node counts as running nothing."""
_IN_FLIGHT: Final = 32
_PEERS_AT_ONCE: Final = 64  # nodes of a group that are asked at once because another one has changed
_LAG: Final = 0.2  # seconds for which an agent may reuse what it read from keepalived (agent.keepalived.monitor.FRESH)


class AgentProber:
    """Keeps :attr:`agents` up to date and calls *changed* with each group whose answers have changed."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        changed: Callable[[str], None],
        interval: float = 1.0,
        probed_from: datetime = EVER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask every *interval* seconds when no change is awaited, from the time *probed_from* on."""
        self._states = AgentStates(probed_from=probed_from, since=clock())
        self._session, self._changed, self._interval, self._clock = session, changed, interval, clock
        self._targets: dict[str, ProbeTarget] = {}
        self._probes: dict[tuple[str, str], _NodeProbe] = {}
        self._awaited: set[tuple[str, str]] = set()  # nodes from which another answer is expected soon
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._silent_slots = asyncio.Semaphore(_IN_FLIGHT)  # nodes that answer do not wait for silent ones
        self._tasks: asyncio.TaskGroup | None = None
        self._notifying: dict[str, asyncio.TimerHandle] = {}
        self._bursts: dict[str, _Burst] = {}
        self._contested: dict[str, frozenset[str]] = {}  # by group, instances with several masters
        self._reader = StateReader(session)

    @property
    def agents(self) -> AgentStates:
        """The agents' last answers, as of now."""
        return replace(self._states, at=self._clock())

    async def run(self) -> None:
        """Probe until cancelled."""
        try:
            with self._reader:
                async with asyncio.TaskGroup() as self._tasks:
                    for group, target in self._targets.items():
                        self._start_probes(group, target.hosts)
                    await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._probes.clear()
            self._awaited.clear()
            for handle in (*self._notifying.values(), *(each.timer for each in self._bursts.values() if each.timer)):
                handle.cancel()

    def set_target(self, group: str, target: ProbeTarget | None) -> None:
        """Ask the nodes of *target* from now on; None: *group* is gone."""
        before = self._targets.get(group)
        if target == before:
            return
        if target is None:
            del self._targets[group]
            self._reader.forget(group)
            self._contested.pop(group, None)
            if (burst := self._bursts.pop(group, None)) and burst.timer:
                burst.timer.cancel()
        else:
            self._targets[group] = target
        hosts = target.hosts if target else {}
        if not before or not target or before.vips != target.vips:
            self._forget_digests(group)  # those of a group that is gone too: its last probes may still be under way
        self._states = self._states.with_nodes(group, sorted(hosts))
        self._probe_now(group, {*hosts, *(before.hosts if before else ())})
        self._start_probes(group, hosts)

    # --- when a node is asked -----------------------------------------------------------------------------------------
    def _probe_now(self, group: str, nodes: Iterable[str]) -> None:
        for node in nodes:
            if probe := self._probes.get((group, node)):
                probe.wake.set()

    def _probe_soon(self, group: str, nodes: Iterable[str]) -> None:
        """Ask *nodes* for what another one has lost or taken: at once, but nodes that lie do not cause it often."""
        burst = self._bursts.setdefault(group, _Burst())
        burst.nodes.update(nodes)
        if burst.timer is None:
            wait = max(0.0, burst.not_before - self._clock())
            burst.timer = asyncio.get_running_loop().call_later(wait, self._probe_burst, group, burst)

    def _probe_burst(self, group: str, burst: "_Burst") -> None:
        self._probe_now(group, sorted(burst.nodes))
        pause = probeintervals.between_bursts(self._interval, nodes=len(self._probes))
        burst.not_before = self._clock() + pause
        burst.nodes, burst.timer = set(), None

    def _forget_digests(self, group: str) -> None:
        """Decode the next answers of *group*, even equal ones: they may have VIPs that were not wanted before."""
        for key, probe in self._probes.items():
            if key[0] == group:
                probe.digest, probe.repeats = b"", probe.repeats + 1

    def _start_probes(self, group: str, nodes: Iterable[str]) -> None:
        for node in sorted(nodes):
            if self._tasks is not None and (group, node) not in self._probes:
                now = self._clock()
                probe = self._probes[group, node] = _NodeProbe(group, node, answered=now, budget=ProbeBudget(now))
                self._tasks.create_task(self._run_probe(probe), name=f"probe {group} {node}")

    async def _run_probe(self, probe: "_NodeProbe") -> None:
        times = 0
        while (target := self._targets.get(probe.group)) and (host := target.hosts.get(probe.node)):
            if probe.node in target.old:
                state = await self._probe_exporter(probe, f"http://{host}:{exporter.PORT}{names.METRICS_PATH}")
            else:
                state = await self._probe_agent(probe, f"http://{host}:{target.port}{names.STATE_PATH}")
            times += 1
            contested = probe.masters & self._contested.get(probe.group, frozenset())
            is_calm = state is not None and _is_expected(state, target) and not contested
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_of(probe, times, is_calm=is_calm)):
                    await probe.wake.wait()
                times = 0
            while (delay := probe.budget.delay(at=self._clock(), nodes=len(self._probes))) > 0:
                await asyncio.sleep(delay)
            probe.wake.clear()
        self._probes.pop((probe.group, probe.node), None)
        self._awaited.discard((probe.group, probe.node))

    def _interval_of(self, probe: "_NodeProbe", times: int, *, is_calm: bool) -> float:
        """The seconds until *probe*, which was made *times* times in a row, is repeated."""
        nodes, key = len(self._probes), (probe.group, probe.node)
        if is_calm:
            self._awaited.discard(key)
            return probeintervals.ordinary(self._interval, nodes=nodes)
        self._awaited.add(key)
        return probeintervals.awaited(self._interval, nodes=nodes, waiting=len(self._awaited), times=times)

    def _update_contested(self, group: str) -> None:
        """Find the instances with several masters among the nodes that answer, and ask those nodes again soon."""
        if group not in self._targets:
            return  # the last answers for a group that is gone
        probes = [each for key, each in self._probes.items() if key[0] == group and not each.is_silent]
        claims = Counter(name for each in probes for name in each.masters)
        contested = frozenset(name for name, times in claims.items() if times > 1)
        fresh, self._contested[group] = contested - self._contested.get(group, frozenset()), contested
        if fresh:
            self._probe_soon(group, (each.node for each in probes if each.masters & fresh))

    # --- one request --------------------------------------------------------------------------------------------------
    async def _probe_agent(self, probe: "_NodeProbe", url: str) -> NodeState | None:
        """Ask kavip's agent; None if it does not answer for this group."""
        group, node, sent, changes = probe.group, probe.node, self._clock(), probe.repeats
        try:
            async with self._silent_slots if probe.is_silent else self._slots:
                sent, asked = self._clock(), datetime.now(UTC)
                page = await self._get_changed(probe, url)
            digest = probe.digest if page.body is None else blake2b(page.body, digest_size=16).digest()
            known = self._known(probe) if digest == probe.digest else None
            fresh = known or await self._read(probe, page.body or b"", url=url, asked=asked)
            state = collisions.noted(fresh, probe.tally, at=self._clock())
            state = self._bridge_restart(probe, state)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("agent does not answer", group=group, node=node, error=type(error).__name__)
            _UNANSWERED.inc()
            self._record_silence(probe)
            return None
        except (msgspec.MsgspecError, ValueError) as error:
            if not probe.is_unreadable:
                log.warning("agent state unreadable", group=group, node=node, error=str(error))
            self._record_unreadable(probe)
            return None
        except Exception:  # the edge: an answer of one node must not stop the probes of the others
            if not probe.is_unreadable:
                log.exception("agent state not evaluated", group=group, node=node)
            self._record_unreadable(probe)
            return None
        probe.is_unreadable = False
        _ANSWERED.inc()
        if state is None:
            self._record_silence(probe)
            return None
        probe.digest = digest if probe.stopped_at is None and changes == probe.repeats else b""
        probe.tag = page.tag
        self._record_answer(probe, state, sent=sent)
        return state

    async def _probe_exporter(self, probe: "_NodeProbe", url: str) -> NodeState | None:
        """Ask a pod of keepalived-operator. Silence counts as an answer: no other answer will come."""
        sent = self._clock()
        try:
            async with self._slots:
                sent = self._clock()
                body = (await agentclient.get(self._session, url)).body or b""
                target = self._targets.get(probe.group)
                state = exporter.node_state(body.decode(errors="replace"), target.instances if target else ())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.debug("exporter does not answer", group=probe.group, node=probe.node, error=type(error).__name__)
            state = exporter.SILENT
        target = self._targets.get(probe.group)
        if target is not None and probe.node in target.old:
            probe.digest = b""
            self._record_answer(probe, state, sent=sent)
        return state

    def _known(self, probe: "_NodeProbe") -> NodeState | None:
        """The state in the last answer, if an equal one would say the same."""
        return self._states.states_of(probe.group).get(probe.node) if probe.digest else None

    async def _get_changed(self, probe: "_NodeProbe", url: str) -> Page:
        """The answer; without its body if it is equal to the last one, which is known."""
        target = self._targets.get(probe.group)
        page = await self._reader.get(url, tag=probe.tag if self._known(probe) else "", target=target)
        if page.body is None and self._known(probe) is None:  # forgotten meanwhile
            page = await self._reader.get(url, tag="", target=target)
        return page

    async def _read(self, probe: "_NodeProbe", body: bytes, *, url: str, asked: datetime) -> NodeState | None:
        """
        The state in *body*; None: it is of another group's agent, which has the port, or of another node.

        A machine that was installed again under another name has the address of the Node that it was before. Also None
        if the node has left the group meanwhile.
        """
        target = self._targets.get(probe.group)

        def spend(size: int) -> None:
            probe.budget.spend(size, at=self._clock(), nodes=len(self._probes))

        answer = await self._reader.read(
            body, probe.group, probe.node, target=target, url=url, asked=asked, spend=spend
        )
        now = self._targets.get(probe.group)
        is_ours = answer.group == probe.group and answer.node in ("", probe.node)
        if not is_ours or now is None or probe.node not in now.hosts:
            return None
        probe.tally = collisions.follow(probe.tally, answer.counts, at=self._clock())
        probe.repeats += not answer.is_current
        return answer.state

    def _bridge_restart(self, probe: "_NodeProbe", state: NodeState | None) -> NodeState | None:
        """*state*; while keepalived has only just ended, with what it ran before: kubelet starts it again."""
        if state is None or state.running:
            probe.stopped_at = None
            return state
        probe.stopped_at = self._clock() if probe.stopped_at is None else probe.stopped_at
        before = self._states.states_of(probe.group).get(probe.node)
        return resumed(state, before) if before and self._clock() - probe.stopped_at < RESTART else state

    # --- what is recorded ---------------------------------------------------------------------------------------------
    def _record_answer(self, probe: "_NodeProbe", state: NodeState, *, sent: float) -> None:
        group, node = probe.group, probe.node
        before, known = self._states.states_of(group).get(node), self._states.contacts_of(group).get(node)
        contact = Contact(last=sent - _LAG, since=known.since if known else {})
        if state != before:
            contact = replace(contact, since=steady_since(before, state, contact, at=self._clock()))
            self._states = self._states.with_state(group, node, state=self._share_vips(group, state))
        self._states = self._states.with_contact(group, node, contact=contact)
        masters = frozenset(each.name for each in state.instances if each.state == MASTER)
        is_changed, is_moved = state != before or probe.is_silent, masters != probe.masters or probe.is_silent
        probe.masters, probe.answered, probe.is_silent = masters, self._clock(), False
        if is_moved:
            self._update_contested(group)
        if is_moved and before and len(self._targets[group].hosts) <= _PEERS_AT_ONCE:
            self._probe_soon(group, (each for each in self._targets[group].hosts if each != node))
        if is_changed:
            self._notify_later(group)

    def _share_vips(self, group: str, state: NodeState) -> NodeState:
        """The same *state*, sharing its VIPs with an equal state of another node: that saves memory."""
        others = self._states.states_of(group).values()
        if any(other.instance_of is state.instance_of for other in others):
            return state
        for other in others:
            if hash(other.runs) == hash(state.runs) and other.instance_of == state.instance_of:  # sets keep their hash
                return replace(state, runs=other.runs, instance_of=other.instance_of)
        return state

    def _record_unreadable(self, probe: "_NodeProbe") -> None:
        probe.is_unreadable = True
        _UNREADABLE.inc()
        self._record_silence(probe)

    def _record_silence(self, probe: "_NodeProbe") -> None:
        group, node = probe.group, probe.node
        if probe.is_silent or self._clock() - probe.answered < SILENCE:
            return
        probe.is_silent = True
        self._update_contested(group)
        if contact := self._states.contacts_of(group).get(node):
            self._states = self._states.with_contact(group, node, contact=replace(contact, is_silent=True))
        self._notify_later(group)

    def _notify_later(self, group: str) -> None:
        if group not in self._notifying:
            self._notifying[group] = asyncio.get_running_loop().call_later(FOLD, self._notify, group)

    def _notify(self, group: str) -> None:
        del self._notifying[group]
        self._changed(group)


@dataclass(slots=True)
class _NodeProbe:
    """
    The probe of one *node* of one *group*.

    *answered*: when the node last answered. *budget*: what further answers may cost. *repeats*: how often an
    equal answer had to be read again. *digest* and *tag*: of the last answer, b"" if it is to be read again. *masters*:
    the instances that it is master of. *stopped_at*: since when its keepalived does not run. *is_unreadable*: that was
    logged.
    """

    group: str
    node: str
    answered: float
    budget: ProbeBudget
    repeats: int = 0
    wake: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    digest: bytes = b""
    tag: str = ""
    masters: frozenset[str] = frozenset()
    tally: Tally = dataclasses.field(default_factory=Tally)
    stopped_at: float | None = None
    is_silent: bool = False
    is_unreadable: bool = False


@dataclass(slots=True)
class _Burst:
    """The *nodes* of a group that are asked because another one has changed, *not_before* a time."""

    nodes: set[str] = dataclasses.field(default_factory=set)
    not_before: float = 0.0
    timer: asyncio.TimerHandle | None = None


def _is_expected(state: NodeState, target: ProbeTarget) -> bool:
    """Whether *state* is the one that *target* awaits."""
    wanted = (target.config_hash, target.prepared, target.switch_at)
    return (state.config_hash, state.prepared, state.switch_at) == wanted


def steady_since(before: NodeState | None, state: NodeState, contact: Contact, *, at: float) -> Mapping[str, float]:
    """From when on each instance of *state* has been in its state without a break."""
    same = {(each.name, each.state, each.since) for each in before.instances} if before else set()
    return {
        each.name: contact.since.get(each.name, at) if (each.name, each.state, each.since) in same else at
        for each in state.instances
    }
