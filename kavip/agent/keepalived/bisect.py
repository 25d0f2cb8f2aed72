"""
Finds the instances that keepalived refuses, so that it is given all others.

keepalived mostly names the line or the instance. Where it does not, the instance is searched by halving: the shortest
beginning of the text that is refused ends with it. The search is bounded in runs and in time; what was found is
remembered, so that the next one goes on from there, and a refused instance costs its neighbours' changes nothing.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kavip.agent.config.blocks import Block, at, joined, split
from kavip.agent.config.exclude import Spares, without
from kavip.agent.config.model import Fault, Judge, Localized, Refused
from kavip.agent.keepalived.configtest import Finding

MOST_RUNS: Final = 64
SECONDS: Final = 10.0
"""What one search may cost; a run takes some 40 ms, halving 510 instances takes ten."""
AGAIN: Final = 300.0
"""Seconds after which a refused instance is tried again, alone, though the node seems to be what it was."""

Judgement = Callable[[str], Finding | None]


class _ExhaustedError(Exception):
    """The search has cost what it may."""


class Sieve:
    """Asks *judge*, and remembers what it said."""

    def __init__(self, judge: Judgement, *, now: Callable[[], float] = time.monotonic) -> None:
        self._judge, self._now = judge, now
        self._bad: dict[str, tuple[Fault, float, int]] = {}  # by the text of an instance: until when, and in which age
        self._age = 0  # of the node; a verdict is that of the age in which its search began
        self._passed = ""

    def doubt(self) -> None:
        """Know that the node has changed: what was refused may be in order now, and is tried again. From any thread."""
        self._age += 1

    def sift(self, wanted: Localized, spares: Spares) -> Localized | Refused:
        """*wanted* without the instances that are refused, or why all of it is."""
        search, age = _Search(self._judge, self._now), self._age
        reason = ""
        try:
            known = self._known(wanted, search, spares, age)
            current = without(wanted, known, self._usable(spares))
            while isinstance(current, Localized) and current.text != self._passed:
                finding = search.run(current.text)
                if finding is None:
                    self._passed = current.text
                    break
                reason = finding.reason
                guilty = located(current.text, finding) or search.culprit(current.text, finding)
                if not guilty:
                    return Refused(reason)
                self._remember(split(current.text), guilty, age)
                current = without(current, guilty, self._usable(spares))
        except _ExhaustedError:
            return Refused(f"{reason}; which instance is at fault was not found yet")
        return current

    def _usable(self, spares: Spares) -> Spares:
        return {name: each for name, each in spares.items() if each.block.text not in self._bad}

    def _known(self, wanted: Localized, search: "_Search", spares: Spares, age: int) -> dict[str, Fault]:
        """The instances of *wanted* that were refused before; what is not there any more is forgotten."""
        parts = split(wanted.text)
        there = {each.text for each in (*parts, *(spare.block for spare in spares.values()))}
        self._bad = {text: known for text, known in self._bad.items() if text in there}
        found: dict[str, Fault] = {}
        for block in parts:
            if (known := self._bad.get(block.text)) is None:
                continue
            fault, until, then = known
            if (then != age or self._now() >= until) and search.is_young:
                if search.run(joined(each for each in parts if not each.name or each is block)) is None:
                    del self._bad[block.text]
                    continue
                self._remember((block,), {block.name: fault}, age)
            found[block.name] = fault
        return found

    def _remember(self, parts: Iterable[Block], guilty: Mapping[str, Fault], age: int) -> None:
        until = self._now() + AGAIN
        self._bad |= {each.text: (guilty[each.name], until, age) for each in parts if each.name in guilty}


class _Search:
    """One search with its bounds."""

    def __init__(self, judge: Judgement, now: Callable[[], float]) -> None:
        self._judge, self._now = judge, now
        self._left, self._ends = MOST_RUNS, now() + SECONDS

    @property
    def goes_on(self) -> bool:
        """Whether there is anything left to spend."""
        return self._left > 0 and self._now() < self._ends

    @property
    def is_young(self) -> bool:
        """Whether enough is left for what is not known yet."""
        return self._left > MOST_RUNS / 2 and self._now() < self._ends - SECONDS / 2

    def run(self, text: str) -> Finding | None:
        """Ask once; raises where that would be once too often."""
        if not self.goes_on:
            raise _ExhaustedError
        self._left -= 1
        return self._judge(text)

    def culprit(self, text: str, finding: Finding) -> dict[str, Fault]:
        """The instance with which *text*, of which *finding* tells, begins to be refused; none where it is without."""
        parts = split(text)
        names = [each.name for each in parts if each.name]
        passes, fails = 0, len(names)
        if not finding.about or not names or self.run(_beginning(parts, ())) is not None:
            return {}
        while fails - passes > 1:
            middle = (passes + fails) // 2
            found = self.run(_beginning(parts, names[:middle]))
            if found is None:
                passes = middle
            elif found.about:
                fails, finding = middle, found
            else:
                return {}
        return {names[passes]: Fault(finding.how, Judge.KEEPALIVED)}


def located(text: str, finding: Finding) -> dict[str, Fault]:
    """The instances that *finding* names, by a line or by name; lines are counted from an instance's own first."""
    parts = split(text)
    found: dict[str, Fault] = {}
    for number in finding.lines:
        if (block := at(parts, number)) and block.name:
            reason = f"{finding.how}, line {number - block.first + 1} of the instance"
            found.setdefault(block.name, Fault(reason, Judge.KEEPALIVED))
    for name in finding.names:
        if any(each.name == name for each in parts):
            found.setdefault(name, Fault(finding.how, Judge.KEEPALIVED))
    return found


def _beginning(parts: Iterable[Block], names: Iterable[str]) -> str:
    """The text with no other instances than *names*."""
    wanted = {"", *names}
    return joined(each for each in parts if each.name in wanted)
