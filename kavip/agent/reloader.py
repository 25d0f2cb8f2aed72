"""
Keeps one node's keepalived on the configuration in the mount.

What it promises:

* the daemon never sees a configuration that was not localised, read by :mod:`~kavip.agent.grammar` and accepted by
  ``keepalived --config-test``; an instance that is refused is left out, and its neighbours run; where the fault is
  nobody's own, the last good configuration runs on; the state says why;
* a new configuration counts as running only when the daemon was seen to have read it;
* a daemon that dies of a configuration finds the last good one at its next start, and is shown the other one again only
  after a growing pause;
* addresses that a dead daemon left on the node go at once.

Everything that blocks runs in threads; :meth:`Reloader.step` is called by one task only.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kavip.agent import daemon as daemons
from kavip.agent import mount, network, witness
from kavip.agent.configuration import Configuration, Localized, Refused
from kavip.agent.daemon import Daemon
from kavip.agent.dump import Dump
from kavip.agent.facts import Facts
from kavip.agent.files import RunDirectory
from kavip.agent.localize import Mounted, empty, localize
from kavip.agent.penalty import Penalties
from kavip.agent.prune import spares_of
from kavip.agent.sieve import Sieve
from kavip.agent.state import Moments, Status
from kavip.agent.sweeper import Sweeper
from kavip.agent.trial import Trial
from kavip.agent.witness import Witness
from kavip.api.address import Address

RECHECK: Final = 30.0
"""Seconds after which a node is looked at again although nothing seems to have changed: interfaces come and go."""
LONGEST_WAIT: Final = 900.0
"""Seconds that an announced switch may lie ahead; a later one is not waited for."""

_RETRY: Final = 5.0  # seconds until what was refused, or was not answered, is tried again

Outcome = Localized | Refused
log = structlog.get_logger()


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
        self._node, self._now = node, now
        self._config_dir, self._password_file = config_dir, password_file
        self._files, self._trial = run_directory, trial
        self._sieve, self._sweeper = Sieve(trial.judge), Sweeper(node, node_ip, run_directory)
        self._witness, self._penalties = Witness(run_directory), Penalties()
        self._status = Status(node=node)
        self._installed: Localized | None = None  # what keepalived reads at its next start or reload
        self._good: Localized | None = None
        self._running: tuple[Daemon, str] | None = None
        self._seen: tuple[Daemon | None, Mounted | Refused] | None = None
        self._due = 0.0

    @property
    def status(self) -> Status:
        """What it has come to."""
        return replace(self._status, removed_addresses=self._sweeper.removed)

    @property
    def moments(self) -> Moments:
        """When each instance of the last dump came into its state."""
        return self._witness.moments

    async def start(self) -> None:
        """Read what an earlier agent of this pod left, and ask the program who it is."""
        self._witness.program = await asyncio.to_thread(self._trial.program)
        self._installed = await asyncio.to_thread(self._files.load)
        self._good = await asyncio.to_thread(self._files.load_good)
        self._update(version=self._witness.program.version)

    async def prepare(self) -> None:
        """
        Give keepalived a configuration to start with: the mounted one, else the last good one, else an empty one.

        Kubernetes may run an init container again beside the others: a keepalived that runs is left alone.
        """
        await self.start()
        if await self._witness.daemon():
            return
        try:
            await self._settle(None, await self._read())
        except Exception:  # the edge: whatever goes wrong, the pod must start
            log.exception("first configuration failed")
        if self._installed is None:
            await self._install(self._good or empty(self._node))

    async def step(self) -> None:
        """Do what is to be done now, if anything is."""
        daemon = await self._witness.daemon()
        mounted = await self._read()
        if (daemon, mounted) == self._seen and time.monotonic() < self._due:
            return
        pause = await self._settle(daemon, mounted)
        if self._installed is None:
            await self._install(self._good or empty(self._node))
        if daemon and self._installed and self._running != (daemon, self._installed.text):
            pause = min(pause, await self._reload(daemon, self._installed))
        self._seen = daemon, mounted
        self._due = time.monotonic() + pause

    async def dump(self) -> Dump | None:
        """The daemon's instances, fresh; None when it does not answer."""
        return await self._witness.dump(self._installed.configuration if self._installed else Configuration())

    async def _settle(self, daemon: Daemon | None, mounted: Mounted | Refused) -> float:
        """
        Install the wanted configuration, unless it is refused; with no *daemon*, take away what one left.

        Returns the seconds after which to look again.
        """
        if daemon is None:
            self._running = None
            self._update(config_hash="")
            await asyncio.to_thread(daemons.remove_stale_pid_files, self._files.path)
        facts = await self._sweeper.facts()
        # In a thread: 20,000 VIPs take more than 100 ms, in which the probes want an answer.
        outcome = await asyncio.to_thread(self._outcome, mounted, facts)
        if daemon is None:
            wanted = outcome.configuration.virtual_ips if isinstance(outcome, Localized) else frozenset()
            await self._sweeper.sweep(facts, wanted=wanted)
        wait = 0.0
        if isinstance(outcome, Localized) and not self._is_installed(outcome):
            wait = self._wait(mounted) if daemon and isinstance(mounted, Mounted) else 0.0
            if not wait:
                await self._install(outcome)
        warning = await asyncio.to_thread(network.arp_warning, facts.interfaces)
        self._say(mounted, outcome, notes=(warning, "waits for the announced moment" if wait else ""))
        unsettled = isinstance(outcome, Refused) or outcome.note
        return min(wait or RECHECK, _RETRY if unsettled else RECHECK)

    def _outcome(self, mounted: Mounted | Refused, facts: Facts) -> Outcome:
        """What this node is to run, or why it is refused."""
        if isinstance(mounted, Refused):
            return mounted
        outcome = localize(mounted, facts, self._good)
        if isinstance(outcome, Refused) or self._is_installed(outcome):
            return outcome
        sifted = self._sieve.sift(outcome, spares_of(self._good, facts))
        if isinstance(sifted, Localized) and not self._is_installed(sifted) and self._penalties.bars(sifted.text):
            return Refused(self._penalties.reason(sifted.text), sifted.left_out)
        return sifted

    def _is_installed(self, localized: Localized) -> bool:
        return self._installed is not None and self._installed.text == localized.text

    async def _install(self, localized: Localized) -> None:
        """Make *localized* what keepalived reads next; its VIPs are recorded before it can put them anywhere."""
        await self._sweeper.expect(localized.configuration.virtual_ips)
        await asyncio.to_thread(self._files.install, localized)
        self._installed = localized

    async def _reload(self, daemon: Daemon, localized: Localized) -> float:
        """Make *daemon* read *localized*; if that fails, go back. Returns the seconds after which to look again."""
        began = time.monotonic()
        if not await self._witness.takes(daemon):
            return 0.0  # it is just starting
        self._running = None
        if not await self._witness.obeyed(daemon, localized.configuration):
            await self._fall_back(daemon, localized)
            return _RETRY
        self._running = daemon, localized.text
        self._good = localized
        await asyncio.to_thread(self._files.keep_good, localized)
        await self._sweeper.settle(localized.configuration.virtual_ips)
        if self._penalties.lift(localized.text):
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
        within = f"keepalived did not confirm it within {witness.CONFIRM:g} s"
        reason = within if alive else "keepalived exited when it read it"
        log.error("reload failed", config_hash=failed.config_hash, reason=reason)
        self._update(refused=reason, failed_reloads=self._status.failed_reloads + 1, config_hash="")
        self._penalties.impose(failed.text, reason=reason)
        good = self._good or (None if alive else empty(self._node))
        if good is None or good.text == failed.text:
            return
        await self._install(good)
        if alive and await self._witness.obeyed(daemon, good.configuration):
            self._running = daemon, good.text
            self._update(config_hash=good.config_hash)

    async def _read(self) -> Mounted | Refused:
        return await asyncio.to_thread(mount.read, self._config_dir, self._password_file)

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
        # What is installed again, or still, is in order only when the daemon was seen to run it.
        refused = outcome.reason if isinstance(outcome, Refused) else self._penalties.reason(outcome.text)
        if refused and refused != self._status.refused:
            self._update(refusals=self._status.refusals + 1)
            log.error("configuration refused", reason=refused)
        if isinstance(outcome, Localized) or outcome.left_out:  # else what was left out is left out still
            for each in outcome.left_out:
                if each not in self._status.left_out:
                    log.error("instance left out", instance=each.name, reason=each.fault.reason, kept=each.kept)
            self._update(left_out=outcome.left_out)
        if isinstance(mounted, Mounted):
            self._update(wanted_hash=mounted.config_hash, group=mounted.group)
        own = outcome.note if isinstance(outcome, Localized) else ""
        self._update(refused=refused, note="; ".join(each for each in (own, *notes) if each))

    def _update(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
