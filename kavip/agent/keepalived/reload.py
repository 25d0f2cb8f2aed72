"""
Makes the daemon run a configuration, and goes back where it does not.

Installed is what keepalived reads at its next start or reload; good is the last that it was seen to run.
"""

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog

from kavip.agent.config.localize import alike, empty
from kavip.agent.config.model import Configuration, Localized, interfaces_of
from kavip.agent.config.switchover import running_password
from kavip.agent.keepalived import process as daemons
from kavip.agent.keepalived.cleanup import Sweeper
from kavip.agent.keepalived.monitor import CONFIRM, Witness
from kavip.agent.keepalived.penalty import Penalties
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.keepalived.trackfiles import Tracks

RECHECK: Final = 30.0
"""Seconds after which a node is looked at again although nothing seems to have changed: interfaces come and go."""
RETRY: Final = 5.0
"""Seconds until what was refused, or was not answered, is tried again."""

PARDON: Final = 30.0
"""Seconds in which a daemon that was killed must run what it was to read: longer than kubelet's first pause."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reload:
    """What became of one: when to look again, and why it failed; None where it says nothing new about that."""

    pause: float
    refused: str | None = None


class Runner:
    """The configurations of one run directory, and what came of them."""

    def __init__(self, node: str, files: RunDirectory, witness: Witness, sweeper: Sweeper, tracks: Tracks) -> None:
        self.installed: Localized | None = None
        self.good: Localized | None = None
        self.penalties = Penalties()
        self.config_hash = ""  # of the configuration that the daemon runs
        self.reloads = self.failed_reloads = 0
        self.reload_seconds = 0.0
        self._node, self._files, self._witness, self._sweeper, self._tracks = node, files, witness, sweeper, tracks
        self._running: tuple[Daemon, str] | None = None
        self._pardoned: tuple[Localized, float] | None = None  # until when (monotonic)
        self._lacks = False

    @property
    def configuration(self) -> Configuration:
        """What the daemon has read, or will."""
        return self.installed.configuration if self.installed else Configuration()

    @property
    def patience(self) -> float:
        """Seconds for which a pardon lasts."""
        return max(0.0, self._pardoned[1] - time.monotonic()) if self._pardoned else inf

    async def start(self) -> None:
        """Read what an earlier agent of this pod left."""
        self.installed = await asyncio.to_thread(self._files.load)
        self.good = await asyncio.to_thread(self._files.load_good)
        if self.installed:
            await self._tracks.follow(self.installed.configuration)

    def has(self, localized: Localized) -> bool:
        """Whether *localized* is installed."""
        return self.installed is not None and self.installed.text == localized.text

    async def install(self, localized: Localized) -> None:
        """Make *localized* what keepalived reads next; its VIPs are recorded before it can put them anywhere."""
        await self._sweeper.expect(localized.configuration.virtual_ips)
        await self._tracks.follow(localized.configuration)
        await asyncio.to_thread(self._files.install, localized)
        self.installed = localized

    async def ensure(self) -> None:
        """Have something installed, be it nothing; what was pardoned for too long is taken back."""
        if self._pardoned and not self.patience:
            (failed, _), self._pardoned = self._pardoned, None
            self.penalties.impose(failed.text, reason="keepalived was killed when it read it, and has not come back")
            if self.has(failed):
                await self.install(self.good or empty(self._node))
        if self.installed is None:
            await self.install(self.good or empty(self._node))

    def lose(self) -> None:
        """Know that the daemon is gone."""
        self._running, self.config_hash = None, ""

    def find(self, interfaces: frozenset[str]) -> None:
        """Know the node's *interfaces*: on one that has its name back keepalived does nothing until it reloads."""
        lacks = any(not interfaces_of(each) <= interfaces for each in self.configuration.instances)
        if self._lacks and not lacks:
            self._running = None
        self._lacks = lacks

    async def reload(self, daemon: Daemon) -> Reload:
        """Make *daemon* read what is installed, unless it has; if that fails, go back."""
        localized = self.installed
        if localized is None or self._running == (daemon, localized.text):
            return Reload(RECHECK)
        if self._running is not None and self._running[0] == daemon and alike(self._running[1], localized.text):
            return await self._keep(daemon, localized)  # a reload would deafen it for a moment, for nothing
        began = time.monotonic()
        is_new = self.good is not None and running_password(self.good) != running_password(localized)
        if not await self._witness.takes(daemon):
            return Reload(0.0)  # it is just starting
        self._running = None
        if not await self._witness.obeyed(daemon, localized.configuration):
            return Reload(RETRY, await self._fall_back(daemon, localized))
        kept = await self._keep(daemon, localized)
        await self._sweeper.settle(localized.configuration.virtual_ips)
        await self._tracks.settle()
        self.reloads += 1
        self.reload_seconds = time.monotonic() - began
        log.info(
            "configuration runs", config_hash=localized.config_hash, instances=len(localized.configuration.instances)
        )
        if is_new:  # whose text, and so hash, may be the same
            log.info("password changed", config_hash=localized.config_hash)
        return kept

    async def _keep(self, daemon: Daemon, localized: Localized) -> Reload:
        """Know, and remember, that *daemon* runs *localized*."""
        self._running, self.config_hash, self.good = (daemon, localized.text), localized.config_hash, localized
        self._pardoned = None
        try:
            await asyncio.to_thread(self._files.keep_good, localized)
        except OSError as error:  # it runs; what a later start would fall back to is another
            log.error("cannot remember what runs", reason=error.strerror)
        return Reload(RECHECK, "" if self.penalties.lift(localized.text) else None)

    async def _fall_back(self, daemon: Daemon, failed: Localized) -> str:
        """
        Put the last good configuration back, and say why.

        One that ran before stays: then it is the daemon that is in trouble. So does one that merely was not confirmed,
        when there is nothing to go back to; one that killed the daemon gives way to an empty one. A daemon that was
        killed from outside reads it once more: this node would else go on alone with what all others have left.
        """
        alive = await asyncio.to_thread(daemon.alive)
        if (
            not alive
            and self._pardoned is None
            and await asyncio.to_thread(daemons.was_killed, daemon, self._files.path)
        ):
            self._pardoned = failed, time.monotonic() + PARDON
            log.warning("keepalived was killed when it read a configuration", config_hash=failed.config_hash)
            self.config_hash = ""
            return ""
        within = f"keepalived did not confirm it within {CONFIRM:g} s"
        reason = within if alive else "keepalived exited when it read it"
        log.error("reload failed", config_hash=failed.config_hash, reason=reason)
        self.config_hash = ""
        self.failed_reloads += 1
        self.penalties.impose(failed.text, reason=reason)
        good = self.good or (None if alive else empty(self._node))
        if good is not None and good.text != failed.text:
            await self.install(good)
            if alive and await self._witness.obeyed(daemon, good.configuration):
                self._running, self.config_hash = (daemon, good.text), good.config_hash
        return reason
