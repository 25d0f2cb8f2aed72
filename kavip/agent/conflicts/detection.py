"""
Finds out whether another machine on the LAN has a VIP, before this node loads it and while it holds it.

A VIP that no text of the group had before is loaded after the LAN was silent. One that another machine claims is
withheld, and asked for again every 30 s. :mod:`~kavip.agent.conflicts.defence` watches over the VIPs that are loaded.
An inquiry takes less than half a second and runs on the event loop beside everything else.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import inf
from typing import Final

import structlog

from kavip.agent.config.model import ConflictDetection, ParsedConfig
from kavip.agent.config.withhold import Unprobed, Withheld
from kavip.agent.conflicts.defence import VIPDefence
from kavip.agent.conflicts.inquiry import MOST, MOST_ONCE, KnownMachines, held_by_nodes, inquire
from kavip.agent.conflicts.verdicts import Answer, Finding, Verdicts, first_reports
from kavip.agent.network import NodeNetwork
from kavip.api.agent import ConflictReport, NodeProblem, ProblemCode
from kavip.api.instant import instant_text
from kavip.api.spans import AddressSpans
from kavip.vrrp.virtualips import VirtualIP, is_anchor

_UNABLE: Final = NodeProblem(
    ProblemCode.CONFLICTS_UNDETECTED,
    "VIPs are loaded without asking the LAN: the agent lacks the capability NET_RAW, or the interface has no ARP",
)

RECOGNISING: Final = 5.0
"""Seconds for which a node that starts asks which VIPs other nodes have: some 5,000. keepalived waits for it."""
_SOON: Final = 1.0  # seconds after a failure

log = structlog.get_logger()


class AddressConflicts:
    """
    The VIPs of one group on one node.

    *version* changes whenever other VIPs are withheld or claimed. *asked* counts the VIPs that the LAN was asked for.
    """

    def __init__(self, network: NodeNetwork) -> None:
        """Detect nothing yet."""
        self._network, self._verdicts = network, Verdicts()
        self._changed, self._asking = asyncio.Event(), asyncio.Lock()
        self._defence = VIPDefence(network, self._changed.set)
        self._machines = KnownMachines()
        self._wanted: frozenset[VirtualIP] = frozenset()
        self._loading: frozenset[VirtualIP] = frozenset()
        self._watched: tuple[frozenset[VirtualIP], KnownMachines] = frozenset(), self._machines
        self.version = self.asked = 0

    # --- what is wanted -----------------------------------------------------------------------------------------------
    def expect(self, wanted: Unprobed, *, later: Unprobed, nodes: frozenset[str]) -> None:
        """
        Ask for the VIPs that this node is to load, those of the text that is *wanted* now, and those of *later* texts.

        *nodes*: the hardware addresses that the controller knows.
        """
        self._machines = KnownMachines(self._network.hardware.own, nodes, wanted.peers)
        self._loading, self._wanted = wanted.vips, wanted.vips | later.vips
        self._verdicts.retain(self._wanted)
        self._verdicts.accept(nodes)
        self._changed.set()

    def retry(self) -> None:
        """Ask again on interfaces that could not send, because the node has changed."""
        self._verdicts.expire()
        self._changed.set()

    def watch(self, configuration: ParsedConfig, detection: ConflictDetection | None) -> None:
        """Watch over the VIPs of the installed *configuration*, except those that *detection* excludes."""
        found = configuration.virtual_ips if detection else ()
        off = detection.off if detection else AddressSpans()
        vips = frozenset(each for each in found if each.address not in off and not is_anchor(each.address))
        self._watched = vips, self._machines
        self._changed.set()

    # --- before they are loaded ---------------------------------------------------------------------------------------
    async def recognise(self) -> None:
        """
        Find those of the VIPs to load now that other nodes have.

        A node that starts takes instances over at once. It must not take them over without VIPs that are announced.
        """
        async with self._asking:
            began = time.monotonic()
            due = self._verdicts.due(self._loading, now=began)
            if len(due) <= MOST:
                return  # one inquiry is enough for all of them
            found: set[VirtualIP] = set()
            while due and time.monotonic() < began + RECOGNISING:
                found |= await held_by_nodes(due[:MOST_ONCE], self._machines)
                due = due[MOST_ONCE:]
            self._record(dict.fromkeys(found, Finding(Answer.NODE)))  # together, as all are loaded together

    async def ask(self) -> None:
        """Ask for the first VIPs that are to be loaded now; :meth:`run` asks for the others."""
        await self._inquire(lambda: self._loading)

    @property
    def withheld(self) -> Withheld:
        """The VIPs that may not be loaded now."""
        return self._verdicts.withheld(self._loading, now=time.monotonic())

    async def _inquire(self, vips: Callable[[], frozenset[VirtualIP]]) -> None:
        """Ask for the first of *vips* that are due."""
        async with self._asking:
            due = self._verdicts.due(vips(), now=time.monotonic())[:MOST]
            if not due:
                return
            before = self._state()
            clock = self._record(await inquire(due, self._machines))
            self.asked += len(due)
            self._log_news(clock)
            self.version += self._state() != before

    def _record(self, found: Mapping[VirtualIP, Finding]) -> str:
        """Enter what was *found*; returns the time that is entered."""
        now, clock = time.monotonic(), instant_text(datetime.now(UTC))
        for vip in sorted(found.keys() & self._wanted):
            self._verdicts.record(vip, found[vip], now=now, time=clock, jitter=random.random())  # noqa: S311 - no secret
        return clock

    def _log_news(self, clock: str) -> None:
        """Log the claims that were first heard at *clock*."""
        for each in self._verdicts.reports():
            if each.since == clock:
                where = {"address": each.address, "hardware": each.hardware_address, "interface": each.interface}
                log.warning("address in use by another machine", **where)

    def _state(self) -> object:
        return tuple(self.withheld), self._verdicts.reports()

    # --- always -------------------------------------------------------------------------------------------------------
    async def run(self, wake: Callable[[], None]) -> None:
        """Ask for what is due and verify what is heard, for ever; *wake* is called when there is news."""
        version = self.version
        try:
            while True:
                try:
                    await self._wait()
                    self._changed.clear()
                    self._defence.configure(*self._watched)
                    await self._inquire(lambda: self._wanted)
                    if self._defence.next_due <= time.monotonic():
                        is_news = await self._defence.verify()
                        self.version += is_news  # ask() may have counted meanwhile
                except Exception:  # the edge: everything else continues
                    log.exception("detection of address conflicts failed")
                    await asyncio.sleep(_SOON)
                if self.version != version:
                    version = self.version
                    wake()
        finally:
            self._defence.close()

    async def _wait(self) -> None:
        """Wait until something is due, or wanted, or heard."""
        unasked = self._verdicts.due(self._wanted, now=time.monotonic())
        due = -inf if unasked else min(self._verdicts.next_due(), self._defence.next_due)
        left = due - time.monotonic()
        if left <= 0:
            return
        try:
            async with asyncio.timeout(left if left < inf else None):
                await self._changed.wait()
        except TimeoutError:
            return

    # --- what is reported ---------------------------------------------------------------------------------------------
    @property
    def reports(self) -> tuple[ConflictReport, ...]:
        """The VIPs that other machines claim."""
        return first_reports(self._verdicts.reports(), self._defence.reports())

    @property
    def defences(self) -> int:
        """How many announcements defended a VIP."""
        return self._defence.defences

    @property
    def problem(self) -> NodeProblem | None:
        """Why conflicts are not detected; None if they are."""
        return _UNABLE if self._verdicts.is_unable or self._defence.is_forbidden else None
