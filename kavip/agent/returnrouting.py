"""
Keeps the way back of replies on this node as one group wants it (:mod:`kavip.agent.config.returnroutes`).

Rules of nftables are in tables of the group's own. Routing rules and routes are shared by the groups of the node: the
tables of nftables say which ones each group needs. So what no table needs is removed, by the agent of any group.

* Every :data:`POLL` seconds, and when the network changes, it looks whether all is there, and puts back what others
  have removed. Tables are replaced in one transaction, so no packet is without its rule.
* The end of the pod removes it. A restart of the agent alone does not: keepalived still serves the VIPs.
* What an agent that was killed left is taken over by the next agent of its group. If there is none for
  :data:`ORPHANED` seconds, and the node has no VIP of that group, the agent of another group removes it.

Order keeps packets on a way at any moment: routes and routing rules come before the marks, and go after them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from kavip.agent import network, nftables, policyrouting
from kavip.agent.config.returnroutes import GatewayRoute, ReturnRoutes, removal, ruleset
from kavip.agent.netlinkqueries import ruleset_generation
from kavip.agent.nodesockets import NodeSign, groups_with_agents
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.errors import NftablesFailed

POLL: Final = 5.0
"""Seconds between two looks at what is there."""
ORPHANED: Final = 600.0
"""Seconds without an agent of a group after which others remove its tables: longer than kubelet's longest pause."""
_RETRY: Final = 30.0  # seconds until routes that failed are tried again
_SURVEY: Final = 60.0  # seconds between two looks for what others have left
_PATIENCE: Final = 2.0  # seconds to wait for the agent of another group
_PAUSE: Final = 0.02

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Installed:
    """What was installed: the *routes* without those that failed, and the tables of nftables as they were then."""

    wanted: ReturnRoutes
    routes: tuple[GatewayRoute, ...]
    listing: tuple[str, ...] = ()
    generation: int = 0


class ReturnRouting:
    """The way back of replies for one group. *pools*: those whose replies are routed."""

    def __init__(self) -> None:
        self.pools: tuple[str, ...] = ()
        self._invalid: tuple[NodeProblem, ...] = ()
        self._failed: tuple[NodeProblem, ...] = ()
        self._wanted = ReturnRoutes()
        self._woken = asyncio.Event()
        self._sign: NodeSign | None = None
        self._installed: _Installed | None = None
        self._broken: ReturnRoutes | None = None
        self._absent: dict[str, float] = {}  # groups without an agent, since when
        self._retry_at = self._survey_at = 0.0

    @property
    def problems(self) -> tuple[NodeProblem, ...]:
        """Why replies are not routed as wanted."""
        return (*self._invalid, *self._failed)

    def configure(self, wanted: ReturnRoutes, problems: tuple[NodeProblem, ...]) -> None:
        """Route replies as *wanted* from now on; *problems*: what of it is invalid."""
        self._invalid = problems
        if wanted != self._wanted:
            self._wanted, self._survey_at = wanted, 0.0
            self.wake()

    def wake(self) -> None:
        """Look at once, because something has changed; what failed is tried again."""
        self._retry_at = 0.0
        self._woken.set()

    async def run(self) -> None:
        """Keep the way back as it is wanted, for ever."""
        while True:
            await self.step()
            try:
                async with asyncio.timeout(POLL):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def step(self) -> None:
        """Do what has to be done now; a failure is reported, and the next step tries again."""
        wanted = self._wanted
        if not wanted.group or self._is_backing_off(wanted):
            return
        if not self._is_ours(wanted.group):
            why = "replies are not routed: another process has the sign of this agent, or that of an earlier pod"
            self._report([NodeProblem(ProblemCode.RETURN_ROUTE_FAILED, why)] if wanted.routes else [])
            return
        is_due = time.monotonic() >= self._survey_at
        if self._installed is None and not wanted.routes and not is_due:
            return  # of most groups no reply is routed
        try:
            if not await self._is_settled(wanted):
                await self._locked(self._replace, wanted)
            if is_due:
                self._survey_at = time.monotonic() + _SURVEY
                await self._survey(wanted)
        except NftablesFailed as error:
            self._record_failure(wanted, str(error))
        except Exception as error:  # the edge: keepalived and the VIPs do not depend on this
            log.exception("return routing failed")
            self._record_failure(wanted, type(error).__name__)

    async def remove(self) -> None:
        """The pod ends: remove everything that no other group needs."""
        self.configure(ReturnRoutes(self._wanted.group), ())
        await self.step()
        if self._sign is not None:
            self._sign.release()

    def _is_ours(self, group: str) -> bool:
        """Whether no other agent of *group* lives on this node: one of a pod that ends may remove what it has."""
        if self._sign is None:
            self._sign = NodeSign.of_agent(group)
        return self._sign.take()

    def _is_backing_off(self, wanted: ReturnRoutes) -> bool:
        """Whether what is *wanted* failed a moment ago."""
        return self._broken == wanted and time.monotonic() < self._retry_at

    def _record_failure(self, wanted: ReturnRoutes, why: str) -> None:
        self._installed, self.pools = None, ()
        self._broken, self._retry_at = wanted, time.monotonic() + _RETRY
        self._report([NodeProblem(ProblemCode.RETURN_ROUTE_FAILED, f"replies are not routed: {why}")])

    async def _is_settled(self, wanted: ReturnRoutes) -> bool:
        """Whether everything is as *wanted*."""
        installed = self._installed
        if installed is None:
            return not wanted.routes and not await policyrouting.tables_in_use()
        if installed.wanted != wanted or (self._failed and time.monotonic() >= self._retry_at):
            return False
        generation = await asyncio.to_thread(ruleset_generation)
        if generation != installed.generation:
            if await asyncio.to_thread(nftables.listing, wanted.group) != installed.listing:
                log.warning("nftables changed by another program", table=wanted.table_name)
                return False
            self._installed = replace(installed, generation=generation)
        if await policyrouting.is_intact(installed.routes):
            return True
        log.warning("routes or routing rules changed by another program")
        return False

    async def _locked(self, work: Callable[[ReturnRoutes], Awaitable[None]], wanted: ReturnRoutes) -> None:
        """Do *work* while no agent of another group does; one that hangs is not waited for."""
        lock, until = NodeSign.lock(), time.monotonic() + _PATIENCE
        while not lock.take() and time.monotonic() < until:
            await asyncio.sleep(_PAUSE)
        try:
            await work(wanted)
        finally:
            lock.release()

    async def _replace(self, wanted: ReturnRoutes) -> None:
        """Install what is *wanted* in place of what is there."""
        self._retry_at = time.monotonic() + _RETRY  # first: a wake-up meanwhile must not be lost
        failed = await policyrouting.add_missing(wanted.routes)
        routes = tuple(each for each in wanted.routes if each not in failed)
        installed = replace(wanted, routes=routes)
        await asyncio.to_thread(nftables.apply, ruleset(installed))
        generation = await asyncio.to_thread(ruleset_generation)
        listing = await asyncio.to_thread(nftables.listing, wanted.group)
        await self._remove_unused(installed)
        self._installed = _Installed(wanted, routes, listing, generation)
        self.pools = tuple(pool for pool, table in wanted.pools if table not in {each.table for each in failed})
        self._broken = None
        self._report(failed.values())
        log.info("return routes installed", pools=self.pools, tables=sorted({each.table for each in routes}))

    async def _remove_unused(self, wanted: ReturnRoutes) -> None:
        """Remove the routing rules and routes that no tables of nftables need."""
        others = await asyncio.to_thread(nftables.other_groups, wanted.group)
        needed = {(each.family, each.table) for each in wanted.routes}
        for group in sorted(others):
            needed |= (await asyncio.to_thread(nftables.sets_of, group)).keys()
        await policyrouting.remove_all_but(needed)

    async def _survey(self, wanted: ReturnRoutes) -> None:
        """Look for what agents of other groups have left."""
        own = {(each.family, each.table) for each in wanted.routes}
        if await policyrouting.tables_in_use() <= own:
            self._absent.clear()
            return
        others = await asyncio.to_thread(nftables.other_groups, wanted.group)
        alive, now = await asyncio.to_thread(groups_with_agents), time.monotonic()
        self._absent = {group: self._absent.get(group, now) for group in others - alive}
        for group in sorted(self._absent):
            if now - self._absent[group] >= ORPHANED and not await _has_vips(group):
                log.warning("return routes of a group without an agent removed", group=group)
                await asyncio.to_thread(nftables.apply, removal(group))
        await self._locked(self._remove_unused, wanted)

    def _report(self, problems: Iterable[NodeProblem]) -> None:
        found = tuple(dict.fromkeys(problems))
        for each in found:
            if each not in self._failed:
                log.error("return routes not installed", code=each.code.value, reason=each.message)
        self._failed = found


async def _has_vips(group: str) -> bool:
    """Whether this node has an address for which *group* routes replies."""
    sets = await asyncio.to_thread(nftables.sets_of, group)
    held = (await network.read()).held
    spans = [span for some in sets.values() for span in some]
    return any(span.first <= each.address <= span.last for each in held for span in spans)
