"""
Makes a mounted configuration ready for keepalived.

It is localised, VIPs that other machines have are left out, it is tested, and faulty instances are excluded.

Everything here blocks, and runs in a thread: 20,000 VIPs take more than 100 ms, and kubelet's probes must not wait.
"""

import time
from collections.abc import Collection
from typing import NamedTuple

from kavip.agent.config.exclude import previous_instances
from kavip.agent.config.facts import NodeFacts, missing_interfaces
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig, MountedConfig, NextConfig, RefusedConfig
from kavip.agent.config.sources import new_source_problem
from kavip.agent.config.withhold import NOTHING_WITHHELD, Withheld, withhold
from kavip.agent.keepalived.bisect import Bisector, Check
from kavip.agent.keepalived.reload import ConfigReloader
from kavip.api.agent import NodeProblem

Outcome = LocalizedConfig | RefusedConfig


class Rehearsal(NamedTuple):
    """Why the node cannot switch to the next configuration, and the interfaces of it that the node is *missing*."""

    problem: NodeProblem | None = None
    missing: frozenset[str] = frozenset()


class Preparation:
    """
    Prepares configurations for *reloader*, and tests them with *check*.

    The next configuration has a bisector of its own: each one keeps only the results for its last text.
    """

    def __init__(self, check: Check, reloader: ConfigReloader) -> None:
        self._reloader = reloader
        self._current, self._next = Bisector(check), Bisector(check)
        self._localized: tuple[tuple[MountedConfig, NodeFacts, LocalizedConfig | None], Outcome] | None = None

    def retest(self) -> None:
        """Test refused instances again, because the node has changed."""
        for each in (self._current, self._next):
            each.retest()

    def prepare(
        self, mounted: MountedConfig | RefusedConfig, facts: NodeFacts, *, withheld: Withheld = NOTHING_WITHHELD
    ) -> Outcome:
        """The configuration that this node runs for *mounted*, without the VIPs *withheld*; or why it is refused."""
        is_next = isinstance(mounted, MountedConfig) and mounted.is_next
        return self._prepare(mounted, facts, self._next if is_next else self._current, withheld)

    def rehearse(self, following: NextConfig, facts: NodeFacts, *, excluded: Collection[str]) -> Rehearsal:
        """Find out whether this node can switch to *following*; what is *excluded* now may be excluded then."""
        mounted, outcome = following.mounted, self._prepare(following.mounted, facts, self._next)
        missing = missing_interfaces(outcome.excluded, facts)
        if isinstance(outcome, RefusedConfig) or isinstance(mounted, RefusedConfig):
            return Rehearsal(outcome.problem if isinstance(outcome, RefusedConfig) else None, missing)
        if problem := new_source_problem(outcome, self._reloader.good, facts):
            return Rehearsal(problem, missing)
        found = (each for each in outcome.excluded if each.name not in excluded and not mounted.is_left_out(each.fault))
        newly_excluded = next(found, None)
        problem = newly_excluded.fault.of_instance(newly_excluded.name) if newly_excluded else None
        return Rehearsal(problem, missing)

    def _prepare(
        self,
        mounted: MountedConfig | RefusedConfig,
        facts: NodeFacts,
        bisector: Bisector,
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> Outcome:
        if isinstance(mounted, RefusedConfig):
            return mounted
        reloader = self._reloader
        outcome = self._localize(mounted, facts, reloader.good)
        if isinstance(outcome, LocalizedConfig):
            outcome = withhold(outcome, withheld)
        if isinstance(outcome, RefusedConfig) or reloader.is_installed(outcome):
            return outcome
        tested = bisector.exclude_refused(outcome, previous_instances(reloader.good, facts))
        if isinstance(tested, RefusedConfig) or reloader.is_installed(tested):
            return tested
        failure = reloader.failures.problem(tested.text)
        if failure and reloader.failures.is_backing_off(tested.text, now=time.monotonic()):
            return RefusedConfig(failure.code, failure.message, tested.excluded)
        return tested

    def _localize(self, mounted: MountedConfig, facts: NodeFacts, good: LocalizedConfig | None) -> Outcome:
        """The result of :func:`localize`, kept for the same input: the node is examined often, and rarely changes."""
        inputs = mounted, facts, good
        if self._localized is None or self._localized[0] != inputs:
            self._localized = inputs, localize(mounted, facts, good)
        return self._localized[1]
