"""
Whether a pod that has just started knows the password that the others run.

It knows the mounted one only. While a password is replaced in place the others run the one before until all switch: a
pod that starts meanwhile would accept nobody's adverts, and be a second master. But it hears them before it can be
master, for that takes three intervals: keepalived counts them as unauthenticated. Where it accepts none beside them,
such a pod gives way until all switch. It does so for a while only: who is heard may be a stranger.
"""

import re
from collections.abc import Callable
from math import inf
from typing import Final

from kavip.agent.config.blocks import Block, split
from kavip.agent.config.localize import Mounted
from kavip.agent.config.model import Localized
from kavip.agent.config.switchover import running_password, timestamp
from kavip.agent.keepalived.dump import Dump
from kavip.vrrp.instances import NO_SOURCE

OUTVOTED: Final = (
    "password: nobody it hears has the one in the Secret: nodes, until all switch to it, or a stranger: then see "
    "blacklistRouterIDs; it holds nothing till then, at most until {}"
)
"""A controller passes on 200 letters of it."""
PAUSE: Final = 0.3
"""Seconds between two looks at what keepalived has counted."""
WAIT: Final = 240.0
"""Seconds after which a node no longer gives way: nodes wait for a new password for half as long, then they switch."""

_ELECTION: Final = 5  # intervals in which every other master is heard
_INTERVAL: Final = re.compile(r"^    advert_int (\S+)$", re.MULTILINE)
_RANKED: Final = re.compile(r"^    @(\S+) priority ", re.MULTILINE)
_AUTHENTICATED: Final = "\n    authentication {"
_SOURCE: Final = re.compile(r"^    unicast_src_ip (\S+)$", re.MULTILINE)


class Newcomer:
    """What a pod finds out when it starts; one that ran before knows its password."""

    def __init__(self, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._clock, self._now = clock, now
        self._until: float | None = None  # how long it listens, or gives way; None: neither
        self._outvoted = ""  # the password with which it is not heard
        self._ends = 0.0  # by the wall clock

    @property
    def listens(self) -> bool:
        """Whether it has still to find out."""
        return self._until is not None and not self._outvoted

    @property
    def is_outvoted(self) -> bool:
        """Whether it gives way."""
        return bool(self._outvoted)

    @property
    def why(self) -> str:
        """What it waits for while it gives way, and until when."""
        return OUTVOTED.format(timestamp(self._ends))

    def begin(self, good: Localized | None) -> None:
        """Start, where *good* ran last."""
        self._until = None if running_password(good) else inf

    def settle(self) -> None:
        """Listen no longer: what runs has no password."""
        self._until = None

    def hear(self, installed: Localized, dump: Dump) -> None:
        """Judge by what keepalived, which runs *installed*, has counted."""
        password, now = running_password(installed), self._clock()
        authenticated = [each for each in split(installed.text) if _AUTHENTICATED in each.text]
        concerned = {each.name for each in authenticated if _sources(each) != [str(NO_SOURCE[4])]}
        if authenticated and not concerned:
            return  # it joins: nobody is heard before others know it
        if self._until == inf:
            slowest = max(map(float, _INTERVAL.findall(installed.text)), default=0.0)
            self._until = now + _ELECTION * slowest
        counts = [each.stats for each in dump if each.data.iname in concerned]
        if any(each.advert_rcvd for each in counts):
            self._until = None
        elif any(each.unauthenticated for each in counts):
            self._outvoted, self._until, self._ends = password, now + WAIT, self._now() + WAIT
        elif self._until is not None and now > self._until:
            self._until = None

    def gives_way(self, mounted: Mounted) -> bool:
        """Whether this node runs nothing instead of *mounted*; another password is tried anew."""
        if not self._outvoted:
            return False
        is_alone = mounted.is_static or len(set(_RANKED.findall(mounted.text))) < 2  # nobody to switch with
        if mounted.is_next or is_alone or self._until is None or self._clock() > self._until:
            self._outvoted, self._until = "", None
        elif mounted.password != self._outvoted:
            self._outvoted, self._until = "", inf
        return self.is_outvoted


def _sources(block: Block) -> list[str]:
    """Where an instance speaks from: the last counts, the first is nobody's, for nodes that others do not know yet."""
    return _SOURCE.findall(block.text)
