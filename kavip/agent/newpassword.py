"""
Whether a pod that has just started has the password that the other nodes use.

The pod has only the mounted password. While a password is replaced in place, the other nodes use the previous one
until all switch at one instant. A pod that starts in this time would accept no advert and become a second master.

It becomes master after three intervals at the earliest. Until then its keepalived counts the adverts of the others as
unauthenticated. If it accepts no other advert, the pod runs nothing until all switch. It does so for a limited time,
because the adverts may come from another router.
"""

import re
from collections.abc import Callable
from math import inf
from typing import Final

from kavip.agent.config.blocks import Block, split
from kavip.agent.config.model import LocalizedConfig, MountedConfig
from kavip.agent.config.switchover import running_password, timestamp
from kavip.agent.report.dump import Dump
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.vrrp.instances import NO_SOURCE

_REJECTED: Final = (
    "password: the other nodes use another one than the Secret holds; no VIP runs here until all switch, at most until "
    "{}; if the adverts are another router's, see blacklistRouterIDs"
)
"""At most 200 characters, because a controller cuts the message there."""
PAUSE: Final = 0.3
"""Seconds between two reads of keepalived's counters."""
WAIT: Final = 240.0
"""
The longest time in seconds for which the node runs nothing.

Nodes wait half as long for a new password before they switch.
"""

_ELECTION: Final = 5  # intervals in which every other master has sent an advert
_INTERVAL: Final = re.compile(r"^    advert_int (\S+)$", re.MULTILINE)
_RANKED: Final = re.compile(r"^    @(\S+) priority ", re.MULTILINE)
_AUTHENTICATED: Final = "\n    authentication {"
_SOURCE: Final = re.compile(r"^    unicast_src_ip (\S+)$", re.MULTILINE)


class JoiningPod:
    """
    Decides whether a pod that has just started may use its password; a pod that has used it before may.

    *clock* is the monotonic clock, *now* the wall clock.
    """

    def __init__(self, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._clock, self._now = clock, now
        self._until: float | None = None  # end of listening or of holding back; None: neither
        self._rejected = ""  # the password with which no advert was accepted
        self._held_until = 0.0  # the end of holding back, by the wall clock

    @property
    def is_listening(self) -> bool:
        """Whether the decision is still open."""
        return self._until is not None and not self._rejected

    @property
    def is_held_back(self) -> bool:
        """Whether the node must run nothing."""
        return bool(self._rejected)

    @property
    def is_unproven(self) -> bool:
        """Whether the others may not accept the password, as far as is known."""
        return self.is_listening or self.is_held_back

    @property
    def problem(self) -> NodeProblem:
        """Why the node runs nothing, and until when."""
        return NodeProblem(ProblemCode.PASSWORD_NOT_ACCEPTED, _REJECTED.format(timestamp(self._held_until)))

    def start(self, good: LocalizedConfig | None, *, is_unproven: bool = False) -> None:
        """
        Start to listen unless *good*, the configuration that ran last, has a password.

        *is_unproven*: it ran for so short a time that an earlier agent could not decide.
        """
        self._until = None if running_password(good) and not is_unproven else inf

    def stop_listening(self) -> None:
        """Decide that the node needs no password: its configuration has none."""
        self._until = None

    def observe(self, installed: LocalizedConfig, dump: Dump) -> None:
        """Decide from the counters in *dump*; keepalived runs *installed*."""
        password, now = running_password(installed), self._clock()
        authenticated = [each for each in split(installed.text) if _AUTHENTICATED in each.text]
        with_peers = {each.name for each in authenticated if _sources(each) != [str(NO_SOURCE[4])]}
        if authenticated and not with_peers:
            return  # the node is new: the others send it no advert before it is one of their peers
        if self._until == inf:
            slowest = max(map(float, _INTERVAL.findall(installed.text)), default=0.0)
            self._until = now + _ELECTION * slowest
        counts = [each.stats for each in dump if each.data.iname in with_peers]
        if any(each.advert_rcvd for each in counts):
            self._until = None
        elif any(each.unauthenticated for each in counts):
            self._rejected, self._until, self._held_until = password, now + WAIT, self._now() + WAIT
        elif self._until is not None and now > self._until:
            self._until = None

    def update(self, mounted: MountedConfig) -> bool:
        """End or restart the hold if *mounted* requires it; return whether the node must run nothing."""
        if not self._rejected:
            return False
        is_alone = mounted.is_static or len(set(_RANKED.findall(mounted.text))) < 2  # no other node to switch with
        if mounted.is_next or is_alone or self._until is None or self._clock() > self._until:
            self._rejected, self._until = "", None
        elif mounted.password != self._rejected:  # another password may be accepted
            self._rejected, self._until = "", inf
        return self.is_held_back


def _sources(block: Block) -> list[str]:
    """The source addresses of an instance; only NO_SOURCE if this node is not a peer of the others yet."""
    return _SOURCE.findall(block.text)
