"""
When this node switches to the next configuration.

keepalived can wait for an instant by itself (``reload_time_file``), but it needs the new file in place before: a daemon
that restarts meanwhile would run it too early, alone. So the agent waits. The instant is announced as wall-clock time.
Once the agent has seen it, the monotonic clock counts, so that a jump of the wall clock does not separate a node from
the others.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kavip.agent.config.localize import PASSWORD
from kavip.agent.config.model import LocalizedConfig, MountedConfig, NextConfig
from kavip.api.instant import instant_text, read_instant

LONGEST: Final = 900.0
"""Seconds that an instant may lie ahead; a later one is ignored."""
NEAR: Final = 0.5
"""Seconds before the instant in which the agent starts nothing else."""

_AUTH_PASS: Final = re.compile(r"^ +auth_pass (\S+)$", re.MULTILINE)
_PASSWORD_NAME: Final = re.compile(r"# kavip: localised for [^\n]*; password (\S+ \d+)")


class SwitchTimer:
    """The announced instant, if there is one; *now* is the wall clock, *clock* the monotonic one."""

    def __init__(self, now: Callable[[], float], clock: Callable[[], float]) -> None:
        self._now, self._clock = now, clock
        self._at = ""
        self._due = 0.0

    def update(self, following: NextConfig | None) -> float | None:
        """Follow the announcement of *following*; the seconds until its instant, then 0; None: there is none."""
        text = following.at if following and isinstance(following.mounted, MountedConfig) else ""
        if text != self._at:
            instant = read_instant(text)
            ahead = instant.timestamp() - self._now() if instant is not None else LONGEST + 1
            if ahead > LONGEST:
                self._at = ""
                return None
            self._at, self._due = text, self._clock() + ahead
        return max(0.0, self._due - self._clock()) if text else None


def config_to_run(mounted: MountedConfig, left: float | None, installed: LocalizedConfig | None) -> MountedConfig:
    """
    *mounted* until the instant, then the next configuration; *left* is what :meth:`SwitchTimer.update` returns.

    Until then the password that runs is kept, whatever content is mounted: a node that changed it alone would be a
    second master.
    """
    following = mounted.next
    if following is not None and isinstance(following.mounted, MountedConfig) and left is not None and left <= 0:
        return following.mounted
    running = running_password(installed)
    return replace(mounted, password=running) if running and is_renewed(mounted, installed) else mounted


def is_renewed(mounted: MountedConfig, installed: LocalizedConfig | None) -> bool:
    """
    Whether the Secret's key holds another valid password than the one that runs.

    If *mounted* names another key or a later content than the one that runs, this is False: all other nodes have
    switched while this one was away.
    """
    running = running_password(installed)
    if not installed or not running or _password_name(installed) not in ("", mounted.password_name):
        return False
    given = mounted.password if mounted.authentication else None
    return bool(given and given != running and PASSWORD.fullmatch(given))


def _password_name(installed: LocalizedConfig) -> str:
    """The name of the password in *installed*; "" if an earlier agent, which did not write it, installed it."""
    found = _PASSWORD_NAME.match(installed.text)
    return found[1] if found else ""


def running_password(installed: LocalizedConfig | None) -> str:
    """The password in *installed*; "" if there is none."""
    found = _AUTH_PASS.search(installed.text) if installed else None
    return found[1] if found else ""


def timestamp(seconds: float) -> str:
    """The instant *seconds* after the epoch, as RFC 3339."""
    return instant_text(datetime.fromtimestamp(seconds, UTC))
