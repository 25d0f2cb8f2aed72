"""
Hands the node's VIPs over before keepalived stops, when the pod ends.

kubelet ends all containers of a pod at once. The agent gets SIGTERM. The preStop hook of keepalived's container
requests :data:`~kavip.names.HANDOVER_PATH`, and keepalived gets SIGTERM after the answer. Neither signal alone means
the end of the pod: the agent gets SIGTERM also if only its own container restarts, and the hook runs also if only
keepalived's does. So priorities are lowered only after both, within :data:`WINDOW` of each other.

* SIGTERM alone: the agent ends after :data:`WINDOW`, and nothing is lowered. The request alone: it is answered after
  :data:`WINDOW`. The answer is 200, because kubelet ends keepalived in any case; to more than
  :data:`MOST` requests at a time it is 503.
* SIGQUIT means both. Units of systemd send it, because they run no hook: it tells the stop of a unit from a restart.
* After both, keepalived runs the installed configuration with the lowest priority, until it is master of nothing that
  others can take over. That takes at most :data:`LIMIT`, well below the 30 s of ``terminationGracePeriodSeconds``.
* The lowered text is never recorded as a good one, and it is in the run directory only, which a new pod does not have.
  If the pod does not end after all, the next agent reads the mount, and installs its text at its first step.
* The page acts on nothing. It is served on loopback only, on connections of its own, to at most :data:`MOST` at a time,
  so no other machine reaches it, and nothing delays the answers to kubelet's probes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import structlog

from kavip.agent.config.lowest import lowered
from kavip.agent.config.model import LocalizedConfig
from kavip.agent.http.server import PageContent
from kavip.agent.keepalived.bisect import Check
from kavip.agent.keepalived.monitor import Monitor
from kavip.agent.keepalived.rundir import RunDirectory

WINDOW: Final = 2.0
"""Seconds between SIGTERM and the request: kubelet causes both at once, but through different programs."""
LIMIT: Final = 10.0
"""Seconds for a hand-over."""
MOST: Final = 4
"""Requests that wait at a time; others are answered with 503 at once."""
LINGER: Final = 0.2
"""Seconds for which the agent still runs, so that the answer is sent."""

_MARGIN: Final = 2.0  # seconds for reload and signals
_PAUSE: Final = 0.05

log = structlog.get_logger()


class PodEnd:
    """The end of one agent, and perhaps of its pod; *stopped* is set by SIGTERM and by SIGQUIT."""

    def __init__(self, stopped: asyncio.Event) -> None:
        self.stopped, self._asked, self._done = stopped, asyncio.Event(), asyncio.Event()
        self._waiting = 0

    def end_pod(self) -> None:
        """Handle SIGQUIT: the agent stops, and keepalived stops after it."""
        self._asked.set()
        self.stopped.set()

    async def page(self) -> PageContent:
        """The answer to the preStop hook of keepalived's container, once VIPs are handed over or there is no need."""
        if self._waiting >= MOST:
            return PageContent(b"too many requests wait\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        self._waiting += 1
        try:
            if await _is_set(self.stopped, within=WINDOW):
                self._asked.set()
                await _is_set(self._done, within=WINDOW + LIMIT)
        finally:
            self._waiting -= 1
        return PageContent(b"ok\n")

    async def run(self, hand_over: Callable[[], Awaitable[None]]) -> bool:
        """
        Wait for the request, then for *hand_over*; return whether there was a request, so that the pod ends.

        Whatever *hand_over* raises is logged: the pod ends in any case.
        """
        try:
            if not await _is_set(self._asked, within=WINDOW):
                return False
            async with asyncio.timeout(LIMIT):
                await hand_over()
        except TimeoutError:
            log.warning("hand-over not complete", seconds=LIMIT)
        except Exception:  # the edge: keepalived must get its SIGTERM
            log.exception("hand-over failed")
        finally:
            self._done.set()
        await asyncio.sleep(LINGER)
        return True


async def hand_over(installed: LocalizedConfig | None, *, check: Check, files: RunDirectory, monitor: Monitor) -> None:
    """
    Make keepalived run *installed* with the lowest priority, and wait until others are master.

    Returns at once if keepalived does not run or answer, or is master of no instance that another node may take over.
    Raises OSError if the run directory cannot be written.
    """
    daemon = await monitor.daemon()
    if daemon is None or installed is None:
        return
    lower = lowered(installed)
    held = await _held(lower.names, monitor, installed)
    if not held:
        return
    if failed := await asyncio.to_thread(check, lower.localized.text):
        log.warning("hand-over not possible", reason=failed.message)
        return
    await asyncio.to_thread(files.install, lower.localized)
    if not await monitor.send_reload_and_confirm(daemon, lower.localized.configuration):
        return
    log.info("hands over", instances=len(held))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + lower.seconds + _MARGIN  # later there is no node that takes over
    while held and loop.time() < deadline:
        await asyncio.sleep(_PAUSE)
        held = await _held(lower.names, monitor, lower.localized)
    log.info("handed over", left=sorted(held))


async def _held(names: frozenset[str], monitor: Monitor, configuration: LocalizedConfig) -> frozenset[str]:
    """Those of *names* of which this node is master; none if keepalived does not answer."""
    dump = await monitor.dump(configuration.configuration) or ()
    return frozenset(each.data.iname for each in dump if each.data.state_name == "MASTER") & names


async def _is_set(event: asyncio.Event, *, within: float) -> bool:
    """Whether *event* is set after at most *within* seconds."""
    try:
        async with asyncio.timeout(within):
            return await event.wait()
    except TimeoutError:
        return False
