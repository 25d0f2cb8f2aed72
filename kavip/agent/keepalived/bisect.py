"""
Finds the instances that keepalived refuses, so that all others can run.

keepalived mostly reports the line or the instance. Otherwise the instance is found by bisection: the shortest beginning
of the text that is refused ends with it. A search is bounded in test runs and in time. Its results are kept, so that
the next search continues there, and a refused instance does not delay changes of its neighbours.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kavip.agent.config.blocks import Block, block_at, joined, split
from kavip.agent.config.exclude import PreviousInstances, exclude
from kavip.agent.config.model import InstanceFault, LocalizedConfig, RefusedConfig
from kavip.agent.keepalived.configtest import FailedTest
from kavip.api.agent import ProblemCode, RefusedBy

MAX_RUNS: Final = 64
SECONDS: Final = 10.0
"""Bounds of one search. A run takes about 40 ms; a bisection of 510 instances takes ten runs."""
AGAIN: Final = 300.0
"""Seconds after which a refused instance is tested again, alone, even if nothing seems to have changed."""

Check = Callable[[str], FailedTest | None]


class _ExhaustedError(Exception):
    """The search has reached its bounds."""


class Bisector:
    """Tests texts with *check*, and keeps the results by the text of an instance."""

    def __init__(self, check: Check, *, now: Callable[[], float] = time.monotonic) -> None:
        self._check, self._now = check, now
        self._refused: dict[str, tuple[InstanceFault, float, int]] = {}  # until when, and for which node version
        self._node_version = 0  # a result belongs to the version with which its search began
        self._passed = ""

    def retest(self) -> None:
        """Test refused instances again, because the node has changed. From any thread."""
        self._node_version += 1

    def exclude_refused(self, wanted: LocalizedConfig, previous: PreviousInstances) -> LocalizedConfig | RefusedConfig:
        """*wanted* without the instances that keepalived refuses, or why all of it is refused."""
        search, version = _Search(self._check, self._now), self._node_version
        failed: FailedTest | None = None
        try:
            known = self._known(wanted, search, previous, version)
            current = exclude(wanted, known, self._usable(previous))
            while isinstance(current, LocalizedConfig) and current.text != self._passed:
                found = search.run(current.text)
                if found is None:
                    self._passed = current.text
                    break
                failed = found
                guilty = located(current.text, failed) or search.culprit(current.text, failed)
                if not guilty:
                    return RefusedConfig(failed.problem.code, failed.problem.message)
                self._record(split(current.text), guilty, version)
                current = exclude(current, guilty, self._usable(previous))
        except _ExhaustedError:
            return _unfinished(failed)
        return current

    def _usable(self, previous: PreviousInstances) -> PreviousInstances:
        return {name: each for name, each in previous.items() if each.block.text not in self._refused}

    def _known(
        self, wanted: LocalizedConfig, search: "_Search", previous: PreviousInstances, version: int
    ) -> dict[str, InstanceFault]:
        """The instances of *wanted* that were refused before; results for texts that are gone are dropped."""
        parts = split(wanted.text)
        there = {each.text for each in (*parts, *(each.block for each in previous.values()))}
        self._refused = {text: known for text, known in self._refused.items() if text in there}
        found: dict[str, InstanceFault] = {}
        for block in parts:
            if (known := self._refused.get(block.text)) is None:
                continue
            fault, until, then = known
            if (then != version or self._now() >= until) and search.is_early:
                if search.run(joined(each for each in parts if not each.name or each is block)) is None:
                    del self._refused[block.text]
                    continue
                self._record((block,), {block.name: fault}, version)
            found[block.name] = fault
        return found

    def _record(self, parts: Iterable[Block], guilty: Mapping[str, InstanceFault], version: int) -> None:
        until = self._now() + AGAIN
        self._refused |= {each.text: (guilty[each.name], until, version) for each in parts if each.name in guilty}


class _Search:
    """One search with its bounds."""

    def __init__(self, check: Check, now: Callable[[], float]) -> None:
        self._check, self._now = check, now
        self._left, self._ends = MAX_RUNS, now() + SECONDS

    @property
    def is_early(self) -> bool:
        """Whether more than half of the bounds is left, for what is not known yet."""
        return self._left > MAX_RUNS / 2 and self._now() < self._ends - SECONDS / 2

    def run(self, text: str) -> FailedTest | None:
        """Test *text*; raises at the bounds of the search."""
        if self._left <= 0 or self._now() >= self._ends:
            raise _ExhaustedError
        self._left -= 1
        return self._check(text)

    def culprit(self, text: str, failed: FailedTest) -> dict[str, InstanceFault]:
        """The instance with which *text* begins to be refused; none if the text is refused without instances."""
        parts = split(text)
        names = [each.name for each in parts if each.name]
        passes, fails = 0, len(names)
        if not failed.is_refusal or not names or self.run(_beginning(parts, ())) is not None:
            return {}
        while fails - passes > 1:
            middle = (passes + fails) // 2
            found = self.run(_beginning(parts, names[:middle]))
            if found is None:
                passes = middle
            elif found.is_refusal:
                fails, failed = middle, found
            else:
                return {}
        return {names[passes]: _fault(failed, failed.message)}


def located(text: str, failed: FailedTest) -> dict[str, InstanceFault]:
    """The instances that keepalived reported by line or by name; a line is counted from the instance's first one."""
    parts = split(text)
    found: dict[str, InstanceFault] = {}
    for number in failed.lines:
        if (block := block_at(parts, number)) and block.name:
            message = f"{failed.message}, line {number - block.first + 1} of the instance"
            found.setdefault(block.name, _fault(failed, message))
    for name in failed.names:
        if any(each.name == name for each in parts):
            found.setdefault(name, _fault(failed, failed.message))
    return found


def _fault(failed: FailedTest, message: str) -> InstanceFault:
    return InstanceFault(failed.code, message, RefusedBy.KEEPALIVED)


def _unfinished(failed: FailedTest | None) -> RefusedConfig:
    """The refusal until a search finds the instance; *failed* is the last test of the whole text."""
    message = "the instance that keepalived refuses is not found yet"
    message = f"{failed.problem.message}; {message}" if failed else message
    return RefusedConfig(ProblemCode.REFUSED_BY_KEEPALIVED, message)


def _beginning(parts: Iterable[Block], names: Iterable[str]) -> str:
    """The text with no other instances than *names*."""
    wanted = {"", *names}
    return joined(each for each in parts if each.name in wanted)
