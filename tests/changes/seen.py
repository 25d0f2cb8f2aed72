"""What a client, the wire and the daemons' own counters say of a change."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final

from tests.changes import wire
from tests.changes.client import RESET, TIMEOUT, UNANSWERED, Row
from tests.changes.rig import Rig
from tests.changes.wire import Advert, Double
from tests.vrrp.livedaemons import BEFORE_OTHERS

FEWEST: Final = 5
"""Requests that a client must have sent to a VIP for its silence to mean anything."""

_LINES: Final = 80
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
    instances: dict[str, str] = field(default_factory=dict)
    """By VIP; those of IPv6 bear the name of the whole."""

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

    @property
    def pause(self) -> float:
        """Seconds for which the machine kept the client, and so maybe others, from doing anything, at most."""
        pauses = (then - sent for rows in self.rows.values() for (sent, *_), (then, *_) in pairwise(rows))
        return max(pauses, default=0.0)

    def is_kept(self, vip: str, *, moves: int, since: float = 0.0) -> bool:
        """
        Whether *vip* moved no more than so often since then, each time from a master that lived, and lost nothing else.

        keepalived says that it is master before it has the address, and the other one lets go at once; a busy machine
        may take its time for that. So their order is judged: no master said goodbye before another spoke, and what is
        lost was sent before a new one spoke again, and not before one that the old one answered.
        """
        heard = self.reigns(vip)
        rises = [(old, new) for old, new in pairwise(heard) if new.node != old.node and new.began >= since]
        lost = [(sent, why) for sent, took, why in self.rows[vip] if sent >= since and took is None and why != RESET]
        return (
            len(rises) <= moves
            and all(each.goodbye is None or each.goodbye < since for each in heard)
            and all(any(self._cost(vip, *each, sent, why) for each in rises) for sent, why in lost)
        )

    def _cost(self, vip: str, old: wire.Reign, new: wire.Reign, sent: float, why: str) -> bool:
        """Whether the change from *old* to *new* is why a request was lost: one gone, or the other not there yet."""
        if why == UNANSWERED and sent <= new.began <= sent + TIMEOUT:
            return True
        if new.began <= sent <= new.stood:
            return True
        later = {who for asked, took, who in self.rows[vip] if sent < asked <= new.stood and took is not None}
        return new.began - new.interval <= sent < new.began and old.node not in later  # it waited in a queue

    def reigns(self, vip: str) -> list[wire.Reign]:
        """Who was heard as master of the instance that *vip* belongs to, by their beginning."""
        family, name = (6 if ":" in vip else 4), self.instances[vip]
        mine = {number for number, each in self.router_ids.items() if each == name}
        return wire.reigns(each for each in self.adverts if each.family == family and each.router_id in mine)

    def story(self) -> str:
        """For the log of a test that fails: who was master, and who answered or why nobody, on one clock."""
        told = []
        for (router_id, family), adverts in wire.by_router(self.adverts).items():
            name = f"{self.router_ids.get(router_id, router_id)} of IPv{family}"
            for each in wire.reigns(adverts):
                told.append((each.began, f"{name}: {each.node} is master, priority {each.adverts[0].priority}"))
                end = "is heard last" if each.goodbye is None else "says goodbye"
                told.append((each.goodbye or each.ended, f"{name}: {each.node} {end}"))
        for vip, rows in self.rows.items():
            for who, found in groupby(rows, key=lambda row: row[2]):
                asked = list(found)
                slowest = max(took or 0.0 for _, took, _ in asked)
                lasted = f"{asked[-1][0] - asked[0][0]:.3f} s, {len(asked)} requests"
                told.append((asked[0][0], f"{vip}: {who} for {lasted}" + (f", up to {slowest:.3f} s" * (slowest > 0))))
        told.sort()
        lines = [f"  +{moment - told[0][0]:.3f} {what}" for moment, what in told]
        more = [f"  ... and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
        return "\n".join(
            [f"{self.transitions}; the client paused for up to {self.pause:.3f} s", *lines[:_LINES], *more]
        )

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
    """
    Ask *vips* every 10 ms, hear the wire and compare the daemons' counters as long as the block lasts.

    It begins when the masters stay as they are. What fails in the block tells the story until then.
    """
    seen = Seen()
    seen.router_ids, seen.instances = router_ids(rig.text), instances(rig.text, vips)
    before = rig.rest()
    command = [*BEFORE_OTHERS, sys.executable, "-m"]
    ears = _Worker(rig.lan.bridge.command(*command, "tests.changes.wire", str(len(rig.leaders()))))
    mouth = _Worker(rig.lan.client.command(*command, "tests.changes.client", *vips))

    def end() -> None:
        rows, adverts = mouth.end(), ears.end()
        seen.rows = {vip: [(sent, took, node) for sent, took, node in found] for vip, found in rows.items()}
        seen.adverts = [Advert(*each) for each in adverts]

    try:
        yield seen
    except BaseException as error:
        end()
        error.add_note(seen.story())
        raise
    end()
    seen.transitions = changes(before, rig.transitions())
    seen.router_ids |= router_ids(rig.text)
    seen.instances |= instances(rig.text, vips)
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


def instances(text: str, vips: Iterable[str]) -> dict[str, str]:
    """The instances of *text* that have *vips*, by VIP; those of IPv6 bear the name of the whole."""
    blocks = [(block.split()[0], block) for block in re.split(r"^vrrp_instance ", text, flags=re.MULTILINE)[1:]]
    held = {vip: re.compile(rf"^ +{re.escape(vip)}[/ \n]", re.MULTILINE) for vip in vips}
    found = ((vip, name) for name, block in blocks for vip, line in held.items() if line.search(block))
    return {vip: name.removesuffix("/v6") for vip, name in found}


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
