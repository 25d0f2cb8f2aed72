"""
Keeps one node's keepalived on the configuration in the mount.

What it promises:

* the daemon never sees a configuration that was not localised, read by :mod:`~kavip.agent.grammar` and accepted by
  ``keepalived --config-test``; a bad one leaves the last good one running, and the state says why;
* a new configuration counts as running only when the daemon was seen to have read it;
* a daemon that dies of a configuration finds the last good one at its next start, and is shown the other one again only
  after a growing pause;
* addresses that a dead daemon left on the node go at once.

Everything that blocks runs in threads; :meth:`Reloader.step` is called by one task only.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kavip.agent import daemon as daemons
from kavip.agent import dump as dumps
from kavip.agent import mount, network
from kavip.agent.daemon import Daemon
from kavip.agent.dump import Dump
from kavip.agent.files import RunDirectory
from kavip.agent.grammar import Refused
from kavip.agent.localize import Facts, Localized, Mounted, empty, leftovers, localize
from kavip.agent.state import Moments, Status, moments_of
from kavip.agent.trial import Program, Trial
from kavip.api.address import Address
from kavip.vrrp.virtualips import VirtualIP

RECHECK: Final = 30.0
"""Seconds after which a node is looked at again although nothing seems to have changed: interfaces come and go."""
CONFIRM: Final = 10.0
"""Seconds within which a daemon must be seen to run what it was told to."""
LONGEST_WAIT: Final = 900.0
"""Seconds that an announced switch may lie ahead; a later one is not waited for."""
FRESH: Final = 0.2
"""Seconds for which a dump is good enough for another question."""

_RELOAD: Final = signal.SIGHUP
_CONFIRM_PAUSE: Final = 0.05
_RETRY: Final = 5.0  # seconds until what was refused, or was not answered, is tried again
_PENALTY: Final = (60.0, 300.0, 1500.0, 7500.0)  # seconds for which a configuration that failed stays away

Outcome = Localized | Refused
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Failure:
    """A configuration that the daemon did not survive, or never showed: there is at most one, that in the mount."""

    text: str
    reason: str
    count: int
    until: float


class Reloader:
    """One group on one node."""

    def __init__(
        self,
        *,
        node: str,
        node_ip: Address | None,
        config_dir: Path,
        password_file: Path | None,
        run_directory: RunDirectory,
        trial: Trial,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._node_ip, self._now = node, node_ip, now
        self._config_dir, self._password_file = config_dir, password_file
        self._files, self._trial = run_directory, trial
        self._program = Program("", 0)
        self._status = Status(node=node)
        self._installed: Localized | None = None  # what keepalived reads at its next start or reload
        self._good: Localized | None = None
        self._running: tuple[Daemon, Localized] | None = None
        self._failure: _Failure | None = None
        self._seen: tuple[Daemon | None, Mounted | Refused] | None = None
        self._due = 0.0
        self._dump: tuple[float, Dump | None] = (0.0, None)
        self._moments: Moments = {}
        self._asking = asyncio.Lock()

    @property
    def status(self) -> Status:
        """What it has come to."""
        return self._status

    @property
    def moments(self) -> Moments:
        """When each instance of the last dump came into its state."""
        return self._moments

    async def start(self) -> None:
        """Read what an earlier agent of this pod left, and ask the program who it is."""
        self._program = await asyncio.to_thread(self._trial.program)
        self._installed = await asyncio.to_thread(self._files.load)
        self._good = await asyncio.to_thread(self._files.load_good)
        self._update(version=self._program.version)

    async def prepare(self) -> None:
        """
        Give keepalived a configuration to start with: the mounted one, else the last good one, else an empty one.

        Kubernetes may run an init container again beside the others: a keepalived that runs is left alone.
        """
        await self.start()
        if await self._daemon():
            return
        try:
            await self._settle(None, await self._read())
        except Exception:  # the edge: whatever goes wrong, the pod must start
            log.exception("first configuration failed")
        if self._installed is None:
            await self._install(self._good or empty(self._node))

    async def step(self) -> None:
        """Do what is to be done now, if anything is."""
        daemon = await self._daemon()
        mounted = await self._read()
        if (daemon, mounted) == self._seen and time.monotonic() < self._due:
            return
        pause = await self._settle(daemon, mounted)
        if self._installed is None:
            await self._install(self._good or empty(self._node))
        if daemon and self._installed and self._running != (daemon, self._installed):
            pause = min(pause, await self._reload(daemon, self._installed))
        self._seen = daemon, mounted
        self._due = time.monotonic() + pause

    async def dump(self) -> Dump | None:
        """The daemon's instances, at most :data:`FRESH` seconds old; None when it does not answer."""
        async with self._asking:
            taken, found = self._dump
            if found is not None and time.monotonic() - taken < FRESH:
                return found
            found = None
            deadline = time.monotonic() + daemons.BUDGET
            while found is None and time.monotonic() < deadline and (daemon := await self._daemon()):
                found = await self._ask(daemon, self._installed or empty(self._node))
            self._keep(found)
            return found

    async def _settle(self, daemon: Daemon | None, mounted: Mounted | Refused) -> float:
        """
        Install the wanted configuration, unless it is refused; with no *daemon*, take away what one left.

        Returns the seconds after which to look again.
        """
        if daemon is None:
            self._running = None
            self._update(config_hash="")
            await asyncio.to_thread(daemons.remove_stale_pid_files, self._files.path)
        facts = await self._facts()
        outcome = await _localized(mounted, facts)
        if daemon is None:
            wanted = outcome.configuration.virtual_ips if isinstance(outcome, Localized) else frozenset()
            await self._remove(leftovers(facts, wanted=wanted, running=frozenset()))
        wait = 0.0
        if isinstance(outcome, Localized) and outcome.text != (self._installed.text if self._installed else None):
            outcome = await self._tried(outcome)
            wait = self._wait(mounted) if daemon and isinstance(mounted, Mounted) else 0.0
            if isinstance(outcome, Localized) and not wait:
                await self._install(outcome)
        warning = await asyncio.to_thread(network.arp_warning, facts.interfaces)
        self._say(mounted, outcome, notes=(warning, "waits for the announced moment" if wait else ""))
        unsettled = isinstance(outcome, Refused) or outcome.note
        return min(wait or RECHECK, _RETRY if unsettled else RECHECK)

    async def _tried(self, localized: Localized) -> Outcome:
        """*localized*, or why it is refused."""
        failure = self._failure
        if failure and failure.text == localized.text and time.monotonic() < failure.until:
            return Refused(failure.reason)
        fault = await asyncio.to_thread(self._trial.fault, localized)
        return Refused(fault) if fault else localized

    async def _install(self, localized: Localized) -> None:
        """Make *localized* what keepalived reads next; its VIPs are recorded before it can put them anywhere."""
        record = await asyncio.to_thread(self._files.load_record)
        await asyncio.to_thread(self._files.save_record, record | localized.configuration.virtual_ips)
        await asyncio.to_thread(self._files.install, localized)
        self._installed = localized

    async def _reload(self, daemon: Daemon, localized: Localized) -> float:
        """Make *daemon* read *localized*; if that fails, go back. Returns the seconds after which to look again."""
        began = time.monotonic()
        if not await asyncio.to_thread(daemon.takes, _RELOAD, self._program.json_signal):
            return 0.0  # it is just starting
        self._running = None
        if not await self._obeyed(daemon, localized):
            await self._fall_back(daemon, localized)
            return _RETRY
        self._running = daemon, localized
        self._good = localized
        await asyncio.to_thread(self._files.keep_good, localized)
        await self._forget(localized)
        if self._failure and self._failure.text == localized.text:
            self._failure = None
            self._update(refused="")
        seconds = time.monotonic() - began
        self._update(config_hash=localized.config_hash, reloads=self._status.reloads + 1, reload_seconds=seconds)
        log.info(
            "configuration runs", config_hash=localized.config_hash, instances=len(localized.configuration.instances)
        )
        return RECHECK

    async def _fall_back(self, daemon: Daemon, failed: Localized) -> None:
        """
        Put the last good configuration back.

        One that ran before stays: then it is the daemon that is in trouble. So does one that merely was not confirmed,
        when there is nothing to go back to; one that killed the daemon gives way to an empty one.
        """
        alive = await asyncio.to_thread(daemon.alive)
        reason = f"keepalived did not confirm it within {CONFIRM:g} s" if alive else "keepalived exited when it read it"
        log.error("reload failed", config_hash=failed.config_hash, reason=reason)
        self._update(refused=reason, failed_reloads=self._status.failed_reloads + 1, config_hash="")
        count = self._failure.count + 1 if self._failure and self._failure.text == failed.text else 1
        until = time.monotonic() + _PENALTY[min(count, len(_PENALTY)) - 1]
        self._failure = _Failure(failed.text, reason, count, until)
        good = self._good or (None if alive else empty(self._node))
        if good is None or good.text == failed.text:
            return
        await self._install(good)
        if alive and await self._obeyed(daemon, good):
            self._running = daemon, good
            self._update(config_hash=good.config_hash)

    async def _obeyed(self, daemon: Daemon, localized: Localized) -> bool:
        """
        Send SIGHUP, and say whether the daemon was seen to run *localized* afterwards.

        A dump counts from the second on: the first answer proves that the parent has taken the SIGHUP that was sent
        before it, and the parent passes that on before it takes another signal. A question that was not answered in
        time may be answered later, so each puts that off by one; many are lost, for a child that reloads hears nothing.
        """
        if not await asyncio.to_thread(daemon.signal, _RELOAD):
            return False
        deadline = time.monotonic() + CONFIRM
        awaited = 2
        while time.monotonic() < deadline:
            async with self._asking:
                found = await self._ask(daemon, localized)
                self._keep(found)
            awaited += 1 if found is None else -1
            if found is not None and awaited <= 0 and dumps.shows(found, localized.configuration):
                return True
            if not await asyncio.to_thread(daemon.alive):
                return False
            await asyncio.sleep(_CONFIRM_PAUSE if awaited <= 0 else 0)
        return False

    async def _ask(self, daemon: Daemon, localized: Localized) -> Dump | None:
        """Ask once for the daemon's instances; one that should have none can only be asked whether it is there."""
        deadline = time.monotonic() + daemons.PATIENCE
        if localized.configuration.instances:
            number = self._program.json_signal
            return await asyncio.to_thread(
                daemons.take_dump, daemon, self._files.path, number=number, deadline=deadline
            )
        answers = await asyncio.to_thread(daemons.answers, daemon, self._files.path, deadline=deadline)
        return () if answers else None

    async def _forget(self, localized: Localized) -> None:
        """Take away recorded VIPs that are not in the running configuration, and shorten the record."""
        running = localized.configuration.virtual_ips
        facts = await self._facts()
        if facts.ours - running:
            await self._remove(leftovers(facts, wanted=frozenset(), running=running))
            await asyncio.to_thread(self._files.save_record, running)

    async def _remove(self, found: tuple[VirtualIP, ...]) -> None:
        for virtual_ip in found:
            await network.remove(virtual_ip)
            log.warning("removed an address left behind", address=str(virtual_ip), interface=virtual_ip.interface)
        self._update(removed_addresses=self._status.removed_addresses + len(found))

    async def _facts(self) -> Facts:
        interfaces, held = await network.look()
        ours = await asyncio.to_thread(self._files.load_record)
        return Facts(self._node, self._node_ip, interfaces, held, ours)

    async def _daemon(self) -> Daemon | None:
        return await asyncio.to_thread(daemons.find, self._files.path, config=self._files.config)

    async def _read(self) -> Mounted | Refused:
        return await asyncio.to_thread(mount.read, self._config_dir, self._password_file)

    def _keep(self, found: Dump | None) -> None:
        """Remember a dump, so that the next question is never answered with an older one."""
        self._dump = time.monotonic(), found
        self._moments = moments_of(found, self._moments) if found is not None else {}

    def _wait(self, mounted: Mounted) -> float:
        """Seconds until the announced moment at which all nodes switch; 0 when there is none to wait for."""
        try:
            moment = datetime.fromisoformat(mounted.switch_at)
        except ValueError:
            return 0.0
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        ahead = moment.timestamp() - self._now()
        return ahead if 0 < ahead <= LONGEST_WAIT else 0.0

    def _say(self, mounted: Mounted | Refused, outcome: Outcome, *, notes: tuple[str, ...]) -> None:
        """Bring the status up to date, and log a refusal once."""
        failure = self._failure
        if isinstance(outcome, Refused):
            refused = outcome.reason
        else:  # what is installed again, or still, is in order only when the daemon was seen to run it
            refused = failure.reason if failure and failure.text == outcome.text else ""
        if refused and refused != self._status.refused:
            self._update(refusals=self._status.refusals + 1)
            log.error("configuration refused", reason=refused)
        if isinstance(mounted, Mounted):
            self._update(wanted_hash=mounted.config_hash, group=mounted.group)
        own = outcome.note if isinstance(outcome, Localized) else ""
        self._update(refused=refused, note="; ".join(each for each in (own, *notes) if each))

    def _update(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]


async def _localized(mounted: Mounted | Refused, facts: Facts) -> Outcome:
    """In a thread: 20,000 VIPs take more than 100 ms, in which the probes want an answer."""
    return await asyncio.to_thread(localize, mounted, facts) if isinstance(mounted, Mounted) else mounted
