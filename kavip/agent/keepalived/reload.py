"""
Makes keepalived run a configuration, and goes back to the last good one if that fails.

*installed* is what keepalived reads at its next start or reload; *good* is the last configuration that a dump showed.
"""

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog

from kavip.agent.config.localize import empty, same_for_keepalived
from kavip.agent.config.model import LocalizedConfig, ParsedConfig
from kavip.agent.config.switchover import running_password
from kavip.agent.keepalived import process
from kavip.agent.keepalived.monitor import CONFIRM, Monitor
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.agent.network import NodeNetwork
from kavip.api.agent import NodeProblem, ProblemCode

RECHECK: Final = 30.0
"""Seconds until the node is examined completely, even if nothing seems to change: interfaces come and go."""
RETRY: Final = 5.0
"""Seconds until the next attempt after a refusal or a missing answer."""
BACKOFF: Final = (60.0, 300.0, 1500.0, 7500.0)
"""Seconds for which a configuration that failed stays away, by the number of failures."""
GRACE: Final = 30.0
"""Seconds in which a killed keepalived must come back with the new configuration: more than kubelet's first pause."""

_KILLED: Final = NodeProblem(
    ProblemCode.KEEPALIVED_KILLED, "keepalived was killed while it read this configuration, and has not come back"
)
_EXITED: Final = NodeProblem(ProblemCode.KEEPALIVED_EXITED, "keepalived exited when it read this configuration")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str
    problem: NodeProblem
    count: int
    until: float


class FailedConfigs:
    """
    The configuration that keepalived did not survive or did not confirm, with a growing back-off.

    There is at most one, the mounted one. All times are monotonic.
    """

    def __init__(self) -> None:
        self._failure: _Failure | None = None

    def add(self, text: str, problem: NodeProblem, *, now: float) -> None:
        """Record that *text* failed; it stays away longer each time."""
        count = self._failure.count + 1 if self._failure and self._failure.text == text else 1
        self._failure = _Failure(text, problem, count, now + BACKOFF[min(count, len(BACKOFF)) - 1])

    def problem(self, text: str) -> NodeProblem | None:
        """Why *text* failed when it was last tried; None if it did not."""
        return self._failure.problem if self._failure and self._failure.text == text else None

    def is_backing_off(self, text: str, *, now: float) -> bool:
        """Whether *text* must not be tried yet."""
        return self._failure is not None and self._failure.text == text and now < self._failure.until

    def forget(self, text: str) -> bool:
        """Forget that *text* failed; return whether it had."""
        had = self.problem(text) is not None
        self._failure = None if had else self._failure
        return had


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """*pause* is the seconds until the next step. If *is_news*, the configuration has this *problem* now, or none."""

    pause: float
    problem: NodeProblem | None = None
    is_news: bool = False


class ConfigReloader:
    """The configurations of one run directory; *config_hash* is that of the one that keepalived runs."""

    def __init__(
        self, node: str, files: RunDirectory, monitor: Monitor, *, network: NodeNetwork, tracks: TrackFiles
    ) -> None:
        self.installed: LocalizedConfig | None = None
        self.good: LocalizedConfig | None = None
        self.failures = FailedConfigs()
        self.config_hash = ""
        self.reloads = self.failed_reloads = 0
        self.reload_seconds = 0.0
        self._node, self._files, self._monitor, self._network, self._tracks = node, files, monitor, network, tracks
        self._running: tuple[Daemon, str] | None = None
        self._grace: tuple[LocalizedConfig, float] | None = None  # after a kill: the configuration, until when
        self._lacks_interface = False

    @property
    def configuration(self) -> ParsedConfig:
        """The instances of the installed configuration."""
        return self.installed.configuration if self.installed else ParsedConfig()

    @property
    def grace_left(self) -> float:
        """Seconds that a killed keepalived has left to come back; inf if none was killed."""
        return max(0.0, self._grace[1] - time.monotonic()) if self._grace else inf

    async def load(self) -> None:
        """Read what an earlier agent of this pod left."""
        self.installed = await asyncio.to_thread(self._files.load)
        self.good = await asyncio.to_thread(self._files.load_good)
        if self.installed:
            await self._tracks.prepare(self.installed.configuration)

    def is_installed(self, localized: LocalizedConfig) -> bool:
        """Whether *localized* is installed."""
        return self.installed is not None and self.installed.text == localized.text

    async def install(self, localized: LocalizedConfig) -> None:
        """Make *localized* what keepalived reads next; its VIPs are recorded before keepalived can add them."""
        await self._network.record(localized.configuration.virtual_ips)
        await self._tracks.prepare(localized.configuration)
        await asyncio.to_thread(self._files.install, localized)
        self.installed = localized

    async def ensure_installed(self) -> None:
        """Install the last good or an empty configuration if there is none, or if the grace after a kill has ended."""
        if self._grace and not self.grace_left:
            (failed, _), self._grace = self._grace, None
            self.failures.add(failed.text, _KILLED, now=time.monotonic())
            if self.is_installed(failed):
                await self.install(self.good or empty(self._node))
        if self.installed is None:
            await self.install(self.good or empty(self._node))

    def forget_daemon(self) -> None:
        """Record that keepalived does not run."""
        self._running, self.config_hash = None, ""

    def update_interfaces(self, interfaces: frozenset[str]) -> None:
        """Take the node's *interfaces*; keepalived serves one that is back under its name only after a reload."""
        lacks = any(not each.interfaces <= interfaces for each in self.configuration.instances)
        if self._lacks_interface and not lacks:
            self._running = None
        self._lacks_interface = lacks

    async def reload(self, daemon: Daemon) -> ReloadResult:
        """Make *daemon* read the installed configuration unless it runs it; fall back if that fails."""
        localized = self.installed
        if localized is None or self._running == (daemon, localized.text):
            return ReloadResult(RECHECK)
        if (
            self._running is not None
            and self._running[0] == daemon
            and same_for_keepalived(self._running[1], localized.text)
        ):
            return await self._confirmed(daemon, localized)  # a reload would stop adverts for a moment, for nothing
        began = time.monotonic()
        has_new_password = self.good is not None and running_password(self.good) != running_password(localized)
        if not await self._monitor.accepts_reload(daemon):
            return ReloadResult(0.0)  # it is just starting
        self._running = None
        if not await self._monitor.send_reload_and_confirm(daemon, localized.configuration):
            return ReloadResult(RETRY, await self._fall_back(daemon, localized), is_news=True)
        result = await self._confirmed(daemon, localized)
        await self._network.remove_all_but(localized.configuration.virtual_ips)
        await self._tracks.remove_unused()
        self.reloads += 1
        self.reload_seconds = time.monotonic() - began
        log.info(
            "configuration runs", config_hash=localized.config_hash, instances=len(localized.configuration.instances)
        )
        if has_new_password:  # the text, and so the hash, may be the same
            log.info("password changed", config_hash=localized.config_hash)
        return result

    async def _confirmed(self, daemon: Daemon, localized: LocalizedConfig) -> ReloadResult:
        """Record that *daemon* runs *localized*."""
        self._running, self.config_hash, self.good = (daemon, localized.text), localized.config_hash, localized
        self._grace = None
        try:
            await asyncio.to_thread(self._files.keep_good, localized)
        except OSError as error:  # it runs; only a later restart would fall back to an older one
            log.error("good configuration not saved", reason=error.strerror)
        return ReloadResult(RECHECK, is_news=self.failures.forget(localized.text))

    async def _fall_back(self, daemon: Daemon, failed: LocalizedConfig) -> NodeProblem | None:
        """
        Install the last good configuration again; return why *failed* failed.

        If *failed* is the good one, it stays: the daemon itself is in trouble. If there is no good one, a configuration
        that was only not confirmed stays, and one that ended the daemon is replaced by an empty one. A daemon that was
        killed from outside gets *failed* once more (None): otherwise this node alone would return to what all other
        nodes have left.
        """
        alive = await asyncio.to_thread(daemon.alive)
        self.config_hash = ""
        if not alive and self._grace is None and await asyncio.to_thread(process.was_killed, daemon, self._files.path):
            self._grace = failed, time.monotonic() + GRACE
            log.warning("keepalived killed during reload", config_hash=failed.config_hash)
            return None
        unconfirmed = f"keepalived did not confirm this configuration within {CONFIRM:g} s"
        problem = NodeProblem(ProblemCode.RELOAD_NOT_CONFIRMED, unconfirmed) if alive else _EXITED
        log.error("reload failed", config_hash=failed.config_hash, reason=problem.message)
        self.failed_reloads += 1
        self.failures.add(failed.text, problem, now=time.monotonic())
        good = self.good or (None if alive else empty(self._node))
        if good is not None and good.text != failed.text:
            await self.install(good)
            if alive and await self._monitor.send_reload_and_confirm(daemon, good.configuration):
                self._running, self.config_hash = (daemon, good.text), good.config_hash
        return problem
