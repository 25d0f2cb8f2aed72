"""
When this node switches to what is next.

keepalived can wait for a moment by itself (``reload_time_file``), but wants the new file in place before: a daemon that
is started again meanwhile would run it too early, alone. So the agent does the waiting. The instant is announced in
terms of the wall clock; from when it is first seen the monotonic one counts, so that a clock that jumps takes no node
away from the others.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from kavip.agent.config.localize import PASSWORD, Mounted, Next
from kavip.agent.config.model import Localized
from kavip.api.instant import instant_text, read_instant

LONGEST: Final = 900.0
"""Seconds that an instant may lie ahead; a later one is not believed."""
NEAR: Final = 0.5
"""Seconds before the instant in which nothing else is begun."""

_RUNNING: Final = re.compile(r"^ +auth_pass (\S+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"# kavip: localised for [^\n]*; password (\S+ \d+)")


class Appointment:
    """The instant that is announced, if any is."""

    def __init__(self, now: Callable[[], float], clock: Callable[[], float]) -> None:
        self._now, self._clock = now, clock
        self._at = ""
        self._due = 0.0

    def left(self, following: Next | None) -> float | None:
        """Seconds until *following* is switched to, 0 from then on; None: nothing is announced."""
        text = following.at if following and isinstance(following.mounted, Mounted) else ""
        if text != self._at:
            instant = read_instant(text)
            ahead = instant.timestamp() - self._now() if instant is not None else LONGEST + 1
            if ahead > LONGEST:
                self._at = ""
                return None
            self._at, self._due = text, self._clock() + ahead
        return max(0.0, self._due - self._clock()) if text else None


def target(mounted: Mounted, left: float | None, installed: Localized | None) -> Mounted:
    """
    What is to run: what is next once its instant has come.

    Until then the password that runs stays, whatever is mounted: a node that changed it alone would be a second master.
    """
    following = mounted.next
    if following is not None and isinstance(following.mounted, Mounted) and left is not None and left <= 0:
        return following.mounted
    running = running_password(installed)
    return replace(mounted, password=running) if running and is_renewed(mounted, installed) else mounted


def is_renewed(mounted: Mounted, installed: Localized | None) -> bool:
    """
    Whether the password that runs was given another content, which is one.

    Where another is named than the one that runs, all other nodes have switched to it: this one was away meanwhile.
    """
    running = running_password(installed)
    if not installed or not running or _password_name(installed) not in ("", mounted.password_name):
        return False
    given = mounted.password if mounted.authentication else None
    return bool(given and given != running and PASSWORD.fullmatch(given))


def _password_name(installed: Localized) -> str:
    """Which password is *installed*; "" where an earlier agent has not said it."""
    found = _NAMED.match(installed.text)
    return found[1] if found else ""


def running_password(installed: Localized | None) -> str:
    """The password of the configuration that is *installed*; "" where it has none."""
    found = _RUNNING.search(installed.text) if installed else None
    return found[1] if found else ""


def timestamp(seconds: float) -> str:
    """The instant *seconds* after the epoch."""
    return instant_text(datetime.fromtimestamp(seconds, UTC))
