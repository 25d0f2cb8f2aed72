"""
What the LAN answered about each VIP, when to ask again, and which VIPs may be loaded. PURE.

A *probe* of another machine is no claim: both ask for the address before they use it (RFC 5227, 2.1.1). It is asked for
again a moment later, when that machine has claimed it or given it up. Nodes that probe at the same time, and do not
know each other's hardware address yet, would wait for each other for ever: after :data:`ROUNDS` such answers the
address counts as free.

A VIP that a *node* claims is announced by the group already. So it may be loaded, whatever else claims it.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from kavip.agent.config.model import InstanceFault
from kavip.agent.config.withhold import Withheld
from kavip.api.agent import MOST_CONFLICTS, ConflictKind, ConflictReport, ProblemCode
from kavip.vrrp.virtualips import VirtualIP

AGAIN: Final = 30.0
"""Seconds after which a VIP is asked for again that another machine claims."""
RETRY: Final = 5.0
"""Seconds after which an interface is tried again that cannot send now."""
SETTLE: Final = 2.0
"""Seconds after which silence on an interface that could not send before is verified: its switch may forward late."""
FRESH: Final = 10.0
"""Seconds for which silence counts; a VIP that is not loaded by then is asked for again."""
ROUNDS: Final = 3
DEFEND: Final = 10.0
"""Seconds between two defences of a VIP (RFC 5227, 2.4), and between two questions whether it is still claimed."""
QUIET: Final = 20.0
"""Seconds without a claim after which the conflict about a VIP that is held is over."""


class Answer(Enum):
    """What the LAN answers."""

    SILENT = 1
    NODE = 2
    """A node has the VIP: it is announced already."""
    CLAIMED = 3
    """Another machine has it."""
    CONTENDED = 4
    """Another machine asks for it too."""
    DOWN = 5
    """The interface does not send now."""
    UNABLE = 6
    """Nothing can be asked here: the interface has no ARP, or the agent no right to send."""


class Finding(NamedTuple):
    """The *answer* about one VIP; *hardware*: which machine claims it."""

    answer: Answer
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """
    The last *finding* about a VIP; *due*: when it is asked for again. *since*: the first claim in a row.

    *rounds*: how often in a row other machines asked for it too, or the LAN was silent where nothing was sent before.
    """

    finding: Finding
    due: float
    since: str = ""
    rounds: int = 0

    @property
    def answer(self) -> Answer:
        return self.finding.answer


class Verdicts:
    """The answers about VIPs that this node must not load unasked. Times are monotonic."""

    def __init__(self) -> None:
        """Start without answers."""
        self._verdicts: dict[VirtualIP, _Verdict] = {}

    def retain(self, wanted: Collection[VirtualIP]) -> None:
        """Forget all but *wanted*."""
        self._verdicts = {vip: each for vip, each in self._verdicts.items() if vip in wanted}

    def accept(self, nodes: Container[str]) -> None:
        """Take over that these hardware addresses are nodes': their claims are no conflict."""
        for vip, each in self._verdicts.items():
            if each.answer is Answer.CLAIMED and each.finding.hardware in nodes:
                self._verdicts[vip] = replace(each, finding=Finding(Answer.NODE), since="")

    def expire(self) -> None:
        """Ask for everything again that cannot be loaded, because the node has changed."""
        for vip, each in self._verdicts.items():
            if each.answer is Answer.DOWN and not each.rounds:
                self._verdicts[vip] = replace(each, due=0.0)

    def due(self, wanted: Iterable[VirtualIP], *, now: float) -> tuple[VirtualIP, ...]:
        """Those of *wanted* to ask for now, sorted: first those that were never asked for."""
        found = [vip for vip in wanted if (known := self._verdicts.get(vip)) is None or known.due <= now]
        return tuple(sorted(found, key=lambda vip: (vip in self._verdicts, vip)))

    def next_due(self) -> float:
        """When the next VIP is asked for again."""
        return min((each.due for each in self._verdicts.values()), default=inf)

    def record(self, vip: VirtualIP, finding: Finding, *, now: float, time: str, jitter: float) -> None:
        """Enter the *finding* about *vip*; *time*: the wall clock. *jitter*: a random number from 0 to 1."""
        before = self._verdicts.get(vip)
        rounds, pause = 0, _pause(finding.answer, jitter)
        if finding.answer is Answer.CONTENDED:
            rounds = (before.rounds if before and before.answer is Answer.CONTENDED else 0) + 1
            finding = finding if rounds < ROUNDS else Finding(Answer.SILENT)
        elif finding.answer is Answer.SILENT and before and before.answer is Answer.DOWN and not before.rounds:
            rounds, pause, finding = 1, SETTLE, before.finding
        since = ""
        if finding.answer is Answer.CLAIMED:
            since = before.since if before and before.since else time
        self._verdicts[vip] = _Verdict(finding, now + pause, since, rounds)

    def withheld(self, wanted: Iterable[VirtualIP], *, now: float) -> Withheld:
        """Which of *wanted* may not be loaded, and why."""
        found: dict[VirtualIP, InstanceFault | None] = {}
        for vip in sorted(wanted):
            known = self._verdicts.get(vip)
            if known is not None and known.answer is Answer.CLAIMED:
                found[vip] = _fault(vip, known.finding.hardware)
            elif known is None or known.answer in (Answer.CONTENDED, Answer.DOWN) or known.due <= now:
                found[vip] = None
        return found

    def reports(self) -> tuple[ConflictReport, ...]:
        """The VIPs that other machines claim."""
        return tuple(
            _report(vip, each.finding.hardware, each.since, ConflictKind.WITHHELD)
            for vip, each in sorted(self._verdicts.items())
            if each.answer is Answer.CLAIMED
        )

    @property
    def is_unable(self) -> bool:
        """Whether something cannot be asked here at all."""
        return any(each.answer is Answer.UNABLE for each in self._verdicts.values())


@dataclass(frozen=True, slots=True)
class _Claim:
    """Another machine claims a VIP that this node holds: first, last, and when the LAN was asked last."""

    hardware: str
    since: str
    last: float
    asked: float


class HeldClaims:
    """The claims of other machines on VIPs that this node holds. Times are monotonic."""

    def __init__(self) -> None:
        """Start without claims."""
        self._claims: dict[VirtualIP, _Claim] = {}
        self._defended: dict[VirtualIP, float] = {}

    def __bool__(self) -> bool:
        """Whether another machine claims any VIP."""
        return bool(self._claims)

    def __contains__(self, vip: VirtualIP) -> bool:
        """Whether another machine claims *vip*."""
        return vip in self._claims

    def heard(self, vip: VirtualIP, hardware: str, *, now: float, time: str) -> bool:
        """Enter a claim; *time*: the wall clock. Returns whether it is news."""
        before = self._claims.get(vip)
        if before is None and len(self._claims) >= MOST_CONFLICTS:
            return False
        since = before.since if before else time
        self._claims[vip] = _Claim(hardware, since, now, now)
        return before is None or before.hardware != hardware

    def due(self, *, now: float) -> tuple[VirtualIP, ...]:
        """The VIPs to ask for again now, sorted."""
        return tuple(sorted(vip for vip, each in self._claims.items() if each.asked + DEFEND <= now))

    def asked(self, vips: Iterable[VirtualIP], *, now: float) -> None:
        """Record that the LAN was asked for *vips*."""
        for vip in vips:
            if known := self._claims.get(vip):
                self._claims[vip] = replace(known, asked=now)

    def next_due(self) -> float:
        """When the next VIP is asked for again."""
        return min((each.asked + DEFEND for each in self._claims.values()), default=inf)

    def take_defences(self, vips: Iterable[VirtualIP], *, now: float) -> tuple[VirtualIP, ...]:
        """
        Those of *vips* that may be defended now, and record that they are.

        A VIP that moves away and comes back is no exception.
        """
        self._defended = {vip: last for vip, last in self._defended.items() if last + DEFEND > now}
        found = tuple(vip for vip in sorted(vips) if vip in self._claims and vip not in self._defended)
        self._defended |= dict.fromkeys(found, now)
        return found

    def end(self, *, held: Collection[VirtualIP], nodes: Container[str], now: float) -> bool:
        """Forget claims of nodes, on VIPs that are not *held* any more, and those that ended; whether there are any."""
        kept = {
            vip: each
            for vip, each in self._claims.items()
            if vip in held and each.hardware not in nodes and each.last + QUIET > now
        }
        ended, self._claims = len(kept) < len(self._claims), kept
        return ended

    def reports(self) -> tuple[ConflictReport, ...]:
        """The VIPs that other machines claim."""
        return tuple(
            _report(vip, each.hardware, each.since, ConflictKind.HELD) for vip, each in sorted(self._claims.items())
        )


def first_reports(*several: Iterable[ConflictReport]) -> tuple[ConflictReport, ...]:
    """The first of the reports, as many as ``/state`` holds."""
    return tuple(each for some in several for each in some)[:MOST_CONFLICTS]


def _pause(answer: Answer, jitter: float) -> float:
    """The seconds until a VIP is asked for again."""
    match answer:
        case Answer.CLAIMED:
            return AGAIN
        case Answer.DOWN:
            return RETRY
        case Answer.CONTENDED:
            return 0.2 + jitter  # another machine claims an address within a second or two after its probes
        case Answer.UNABLE:
            return inf
    return FRESH


def _fault(vip: VirtualIP, hardware: str) -> InstanceFault:
    message = (
        f"{vip.address} is not announced, because {hardware} on {vip.interface}, no node as far as this node knows, "
        "has it already"
    )
    return InstanceFault(ProblemCode.ADDRESS_CONFLICT, message)


def _report(vip: VirtualIP, hardware: str, since: str, kind: ConflictKind) -> ConflictReport:
    return ConflictReport(
        address=str(vip.address), hardware_address=hardware, interface=vip.interface, since=since, kind=kind
    )
