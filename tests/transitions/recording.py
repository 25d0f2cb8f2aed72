"""Records a change: the requests of a client, the adverts on the segment, and the daemons' own counters."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final, Protocol

from hack.testbed.machine import Machine
from hack.testbed.segment import Host
from tests.transitions.adverts import Advert, DoubleMaster, MasterPeriod, by_router, double_masters, master_periods
from tests.transitions.livegroup import LiveGroup
from tests.transitions.vipclient import RESET, TIMEOUT, UNANSWERED, Row
from tests.vrrp.livedaemons import BEFORE_OTHERS

FEWEST: Final = 5
"""The number of requests to a VIP below which a recording proves nothing."""

_LINES: Final = 80
_IDENTITY: Final = re.compile(r"^vrrp_instance (\S+) \{$|^    virtual_router_id (\d+)$", re.MULTILINE)
_PATIENCE: Final = 120.0

Changes = dict[str, dict[str, tuple[int, int]]]
"""How often each instance became master and stopped being master, by instance and node."""


@dataclass
class Recording:
    """What was recorded in a ``with record(...)`` block. It is empty until the block ends."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    adverts: list[Advert] = field(default_factory=list)
    transitions: Changes = field(default_factory=dict)
    router_ids: dict[int, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """By VIP; an IPv6 instance has the name of its unit."""

    @property
    def failures(self) -> dict[str, int]:
        """The number of unanswered requests by VIP; VIPs without one are absent."""
        return _sums({vip: [why for why in each if why != RESET] for vip, each in self.reasons.items()})

    @property
    def resets(self) -> dict[str, int]:
        """How many established connections were reset, by VIP: the VIP moved, and the connection did not."""
        return _sums({vip: [why for why in each if why == RESET] for vip, each in self.reasons.items()})

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The reasons of unanswered requests, by VIP."""
        return {vip: [answerer for _, took, answerer in rows if took is None] for vip, rows in self.rows.items()}

    @property
    def longest_silence(self) -> float:
        """The longest time in seconds between two answered requests with unanswered ones between them."""
        found = (_silences([(sent, took is not None) for sent, took, _ in rows]) for rows in self.rows.values())
        return max((each for silences in found for each in silences), default=0.0)

    @property
    def pause(self) -> float:
        """The longest time in seconds for which the machine stopped the client, and so perhaps other programs."""
        pauses = (then - sent for rows in self.rows.values() for (sent, *_), (then, *_) in pairwise(rows))
        return max(pauses, default=0.0)

    def moved_cleanly(self, vip: str, *, moves: int, since: float = 0.0) -> bool:
        """
        Whether *vip* moved at most *moves* times after *since*, from live masters, and no other request was lost.

        keepalived reports master before it has the address, and the old master gives it up at once. On a busy machine
        that takes time, so only the order counts. No master sent priority 0 before another sent adverts. Each lost
        request was sent before the new master's second advert, and not before a request that the old master answered.
        """
        received = self.master_periods(vip)
        rises = [(old, new) for old, new in pairwise(received) if new.node != old.node and new.began >= since]
        lost = [(sent, why) for sent, took, why in self.rows[vip] if sent >= since and took is None and why != RESET]
        return (
            len(rises) <= moves
            and all(each.resigned is None or each.resigned < since for each in received)
            and all(any(self._explains_loss(vip, *each, sent, why) for each in rises) for sent, why in lost)
        )

    def _explains_loss(self, vip: str, old: MasterPeriod, new: MasterPeriod, sent: float, why: str) -> bool:
        """Whether the change from *old* to *new* explains the loss: in between, no node has the address."""
        if why == UNANSWERED and sent <= new.began <= sent + TIMEOUT:
            return True
        if new.began <= sent <= new.established:
            return True
        later = {
            answerer
            for sent_at, took, answerer in self.rows[vip]
            if sent < sent_at <= new.established and took is not None
        }
        return new.began - new.interval <= sent < new.began and old.node not in later  # it waited in a queue

    def master_periods(self, vip: str) -> list[MasterPeriod]:
        """The periods in which nodes were master of the instance of *vip*, sorted by their beginning."""
        family, name = (6 if ":" in vip else 4), self.instances[vip]
        mine = {number for number, each in self.router_ids.items() if each == name}
        return master_periods(each for each in self.adverts if each.family == family and each.router_id in mine)

    def timeline(self) -> str:
        """Masters, answers and losses on one clock, for the log of a failed test."""
        events = []
        for (router_id, family), adverts in by_router(self.adverts).items():
            name = f"{self.router_ids.get(router_id, router_id)} of IPv{family}"
            for each in master_periods(adverts):
                events.append((each.began, f"{name}: {each.node} is master, priority {each.adverts[0].priority}"))
                end = "sends its last advert" if each.resigned is None else "sends priority 0"
                events.append((each.resigned or each.ended, f"{name}: {each.node} {end}"))
        for vip, rows in self.rows.items():
            for answerer, found in groupby(rows, key=lambda row: row[2]):
                group = list(found)
                slowest = max(took or 0.0 for _, took, _ in group)
                lasted = f"{group[-1][0] - group[0][0]:.3f} s, {len(group)} requests"
                events.append(
                    (group[0][0], f"{vip}: {answerer} for {lasted}" + (f", up to {slowest:.3f} s" * (slowest > 0)))
                )
        events.sort()
        lines = [f"  +{moment - events[0][0]:.3f} {what}" for moment, what in events]
        more = [f"  ... and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
        return "\n".join(
            [f"{self.transitions}; the client paused for up to {self.pause:.3f} s", *lines[:_LINES], *more]
        )

    @property
    def double_masters(self) -> tuple[DoubleMaster, ...]:
        """Every time that two nodes were masters of one VRID, and for how long."""
        return double_masters(self.adverts)

    @property
    def masters(self) -> dict[str, list[str]]:
        """The nodes that were master of each instance, in order."""
        found: dict[str, list[str]] = {}
        for (router_id, family), adverts in by_router(self.adverts).items():
            name = self.router_ids.get(router_id, str(router_id))
            found[f"{name}/v6" if family == 6 else name] = _in_turn(period.node for period in master_periods(adverts))
        return found

    def answering(self, vip: str) -> list[str]:
        """The nodes that answered for *vip*, in order."""
        return _in_turn(node for _, took, node in self.rows[vip] if took is not None)

    def first_answer(self, vip: str, node: str) -> float:
        """The moment (monotonic) at which *node* first answered a request for *vip*."""
        return min(sent + took for sent, took, answerer in self.rows[vip] if took is not None and answerer == node)


@contextmanager
def record(live: LiveGroup, vips: Sequence[str]) -> Iterator[Recording]:
    """
    Request *vips* every 10 ms, capture adverts, and compare the daemons' counters before and after the block.

    It begins when the masters are stable. A failure in the block gets the timeline as a note.
    """
    recorded = Recording()
    recorded.router_ids, recorded.instances = router_ids(live.text), instances(live.text, vips)
    before = live.wait_until_stable()
    with requested(live.lan, vips, recorded, masters=len(live.preferred_nodes())):
        yield recorded
    recorded.transitions = changes(before, live.transitions())
    recorded.router_ids |= router_ids(live.text)
    recorded.instances |= instances(live.text, vips)
    assert recorded.adverts or not recorded.router_ids, "no advert was captured"


class Lan(Protocol):
    """Where a client requests VIPs, and the bridge that all adverts pass."""

    bridge: Machine
    client: Host


@contextmanager
def requested(lan: Lan, vips: Sequence[str], recorded: Recording, *, masters: int) -> Iterator[None]:
    """Fill *recorded* with requests to *vips* every 10 ms and the adverts of so many *masters*, for the block."""
    command = [*BEFORE_OTHERS, sys.executable, "-m"]
    capture = BackgroundProgram(lan.bridge.command(*command, "tests.transitions.adverts", str(masters)))
    client = BackgroundProgram(lan.client.command(*command, "tests.transitions.vipclient", *vips))

    def end() -> None:
        rows, adverts = client.end(), capture.end()
        recorded.rows = {vip: [(sent, took, node) for sent, took, node in found] for vip, found in rows.items()}
        recorded.adverts = [Advert(*each) for each in adverts]

    try:
        yield
    except BaseException as error:
        end()
        error.add_note(recorded.timeline())
        raise
    end()
    silent = [vip for vip in vips if len(recorded.rows[vip]) < FEWEST]
    assert not silent, f"too few requests to {silent}"


def changes(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Changes:
    """The transitions between two readings (node -> instance -> counts). A new daemon counts from zero."""
    found: Changes = {}
    for node, instances in sorted(after.items()):
        for name, counts in sorted(instances.items()):
            old = before.get(node, {}).get(name, (0, 0))
            base = old if all(now >= was for now, was in zip(counts, old, strict=True)) else (0, 0)
            gained, lost = (now - was for now, was in zip(counts, base, strict=True))
            if gained or lost:
                found.setdefault(name, {})[node] = gained, lost
    return found


def _sums(lost: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {vip: len(each) for vip, each in lost.items() if each}


def _silences(sent_at: Iterable[tuple[float, bool]]) -> list[float]:
    """
    The seconds between two answered requests with unanswered ones between them; at the end, until the last request.
    """
    found, good, last = [], None, None
    for sent, is_answered in sent_at:
        if is_answered and good is not None and last != good:
            found.append(sent - good)
        good, last = sent if is_answered else good, sent
    return [*found, last - good] if good is not None and last is not None and last != good else found


def _in_turn(nodes: Iterable[str]) -> list[str]:
    return [node for node, _ in groupby(nodes)]


def count_moves(transitions: Changes) -> Counter[str]:
    """How often each instance got a new master."""
    return Counter({name: sum(gained for gained, _ in nodes.values()) for name, nodes in transitions.items()})


def router_ids(text: str) -> dict[int, str]:
    """The instances of *text* by VRID; an IPv6 instance has the name of its unit."""
    found: dict[int, str] = {}
    name = ""
    for match in _IDENTITY.finditer(text):
        name = match[1] or name
        if match[2]:
            found.setdefault(int(match[2]), name.removesuffix("/v6"))
    return found


def instances(text: str, vips: Iterable[str]) -> dict[str, str]:
    """The instances of *text* that have *vips*, by VIP; an IPv6 instance has the name of its unit."""
    blocks = [(block.split()[0], block) for block in re.split(r"^vrrp_instance ", text, flags=re.MULTILINE)[1:]]
    held = {vip: re.compile(rf"^ +{re.escape(vip)}[/ \n]", re.MULTILINE) for vip in vips}
    found = ((vip, name) for name, block in blocks for vip, line in held.items() if line.search(block))
    return {vip: name.removesuffix("/v6") for vip, name in found}


class BackgroundProgram:
    """A program that runs until its standard input closes, and then prints its result as JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n", command

    def end(self) -> Any:
        """Close its input; return its result."""
        output, _ = self._process.communicate(timeout=_PATIENCE)
        return json.loads(output)
