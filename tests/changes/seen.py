"""What a client, the wire and the daemons' own counters say of a change."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from tests.changes import wire
from tests.changes.client import EVERY, RESET, Row
from tests.changes.rig import Rig
from tests.changes.wire import Advert, Double
from tests.vrrp.lab import BEFORE_OTHERS

MOMENT: Final = 0.1
"""
Seconds for which a VIP may be unanswered where one that lives hands it to another: keepalived says that it is master
before it has the address, and the other one lets go at once. Nobody waits for an election meanwhile.
"""

FEWEST: Final = 5
"""Requests that a client must have sent to a VIP for its silence to mean anything."""

_IDENTITY: Final = re.compile(r"^vrrp_instance (\S+) \{$|^    virtual_router_id (\d+)$", re.MULTILINE)
_PATIENCE: Final = 30.0

Changes = dict[str, dict[str, tuple[int, int]]]
"""By instance and node: how often it became master, and how often it stopped being one."""


@dataclass
class Seen:
    """What was seen between the beginning and the end of a ``with watching(...)``; nothing before its end."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    adverts: list[Advert] = field(default_factory=list)
    transitions: Changes = field(default_factory=dict)
    router_ids: dict[int, str] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, int]:
        """How many requests to each VIP were not answered; a VIP that has none is not there."""
        return _sums({vip: [why for why in each if why != RESET] for vip, each in self.reasons.items()})

    @property
    def resets(self) -> dict[str, int]:
        """How many connections to each VIP stood and were reset: it moved meanwhile, and they did not."""
        return _sums({vip: [why for why in each if why == RESET] for vip, each in self.reasons.items()})

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why requests to each VIP were not answered."""
        return {vip: [who for _, took, who in rows if took is None] for vip, rows in self.rows.items()}

    @property
    def longest_silence(self) -> float:
        """Seconds between an answered request and the next that was, where some between them were not."""
        found = (_silences([(sent, took is not None) for sent, took, _ in rows]) for rows in self.rows.values())
        return max((each for silences in found for each in silences), default=0.0)

    def silences(self, vip: str, *, since: float = 0.0) -> list[float]:
        """How long *vip* was unanswered, each time; connections that stood and were reset do not count."""
        rows = [(sent, took is not None) for sent, took, who in self.rows[vip] if who != RESET]
        return _silences(row for row in rows if row[0] >= since)

    def is_kept(self, vip: str, *, moves: int, since: float = 0.0) -> bool:
        """Whether *vip* lost no more requests than a moment has for each time that it moved, and never more at once."""
        lost = [sent for sent, took, who in self.rows[vip] if sent >= since and took is None and who != RESET]
        found = self.silences(vip, since=since)
        return len(lost) * EVERY <= moves * MOMENT and all(each <= MOMENT for each in found)

    @property
    def double_masters(self) -> tuple[Double, ...]:
        """Every time that two nodes were heard as masters of one VRID, and for how long."""
        return wire.doubles(self.adverts)

    @property
    def masters(self) -> dict[str, list[str]]:
        """The nodes that were heard as master of each instance, one after the other."""
        found: dict[str, list[str]] = {}
        for (router_id, family), adverts in wire.by_router(self.adverts).items():
            name = self.router_ids.get(router_id, str(router_id))
            found[f"{name}/v6" if family == 6 else name] = _in_turn(reign.node for reign in wire.reigns(adverts))
        return found

    def answering(self, vip: str) -> list[str]:
        """The nodes that answered for *vip*, one after the other."""
        return _in_turn(node for _, took, node in self.rows[vip] if took is not None)

    def first_answer(self, vip: str, node: str) -> float:
        """When (monotonic) *node* first answered a request for *vip*: the moment of the answer."""
        return min(sent + took for sent, took, who in self.rows[vip] if took is not None and who == node)


@contextmanager
def watching(rig: Rig, vips: Sequence[str]) -> Iterator[Seen]:
    """Ask *vips* every 10 ms, hear the wire and compare the daemons' counters as long as the block lasts."""
    seen = Seen()
    seen.router_ids = router_ids(rig.text)
    before = rig.transitions()
    command = [*BEFORE_OTHERS, sys.executable, "-m"]
    ears = _Worker(rig.lan.bridge.command(*command, "tests.changes.wire", str(len(rig.leaders()))))
    mouth = _Worker(rig.lan.client.command(*command, "tests.changes.client", *vips))
    try:
        yield seen
    finally:
        rows, adverts = mouth.end(), ears.end()
    seen.rows = {vip: [(sent, took, node) for sent, took, node in found] for vip, found in rows.items()}
    seen.adverts = [Advert(*each) for each in adverts]
    seen.transitions = changes(before, rig.transitions())
    seen.router_ids |= router_ids(rig.text)
    silent = [vip for vip in vips if len(seen.rows[vip]) < FEWEST]
    assert not silent, f"nobody asked {silent}"
    assert seen.adverts or not seen.router_ids, "the wire was not heard"


def changes(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Changes:
    """The transitions between two readings (node -> instance -> counts); a daemon that is new counts from nothing."""
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


def _silences(asked: Iterable[tuple[float, bool]]) -> list[float]:
    """Seconds from each answered request, before some that were not, to the next that was, or to the last of all."""
    found, good, last = [], None, None
    for sent, is_answered in asked:
        if is_answered and good is not None and last != good:
            found.append(sent - good)
        good, last = sent if is_answered else good, sent
    return [*found, last - good] if good is not None and last is not None and last != good else found


def _in_turn(nodes: Iterable[str]) -> list[str]:
    return [node for node, _ in groupby(nodes)]


def moves(transitions: Changes) -> Counter[str]:
    """How often each instance came to a new master."""
    return Counter({name: sum(gained for gained, _ in nodes.values()) for name, nodes in transitions.items()})


def router_ids(text: str) -> dict[int, str]:
    """The instances of *text* by VRID; those of IPv6 bear the name of the whole."""
    found: dict[int, str] = {}
    name = ""
    for match in _IDENTITY.finditer(text):
        name = match[1] or name
        if match[2]:
            found.setdefault(int(match[2]), name.removesuffix("/v6"))
    return found


class _Worker:
    """A program that works until its standard input closes, and then says what it has found."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n", command

    def end(self) -> Any:
        said, _ = self._process.communicate(timeout=_PATIENCE)
        return json.loads(said)
