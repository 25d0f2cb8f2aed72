"""
Runs the group's health checks on this node, and writes their results to the track files.

Each check runs at once and then at its interval, by the monotonic clock. A check that cannot run keeps its result: a CA
that pods receive one after the other, when they restart, must not take every VIP away meanwhile.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kavip.agent.health.probe import HTTPProber, ProbeResult
from kavip.agent.keepalived.trackfiles import CheckResult, TrackFiles, TrackValue
from kavip.agent.report.health import CheckHealth, CheckStatus, next_health
from kavip.api.group import Check
from kavip.api.instant import instant_text
from kavip.errors import BadInput
from kavip.vrrp import targets
from kavip.vrrp.targets import CheckTarget, NodeEndpoints
from kavip.vrrp.tracking import CHECK_NAME, check_track, weight_of

LONGEST_FIRST: Final = 5.0
"""Seconds that a pod waits for the first answers before keepalived starts."""
LONGEST: Final = 3600
"""The largest interval and timeout, in seconds, as in the CRD."""

log = structlog.get_logger()


class HealthChecks:
    """The checks of one group."""

    def __init__(self, tracks: TrackFiles, *, ca_dir: Path, environment: NodeEndpoints) -> None:
        self._tracks, self._ca_dir, self._environment = tracks, ca_dir, environment
        self._prober = HTTPProber()
        self._statuses: dict[str, CheckStatus] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_written = False

    @property
    def statuses(self) -> tuple[CheckStatus, ...]:
        """The status of each check, by name."""
        return tuple(self._statuses[name] for name in sorted(self._statuses))

    async def configure(self, checks: Iterable[Check]) -> None:
        """Run exactly *checks* from now on; a check that changes keeps its result if it keeps its name."""
        wanted = _valid(checks)
        if self._is_written and wanted == {name: each.check for name, each in self._statuses.items()}:
            return  # an empty list is written once as well: the track files of policy Local wait for it
        for name, known in tuple(self._statuses.items()):
            if wanted.get(name) != known.check and name in self._tasks:
                self._tasks.pop(name).cancel()
        recorded = await self._recorded(wanted)
        self._statuses = {
            name: replace(
                self._statuses[name] if name in self._statuses else _resumed(recorded[name], check), check=check
            )
            for name, check in wanted.items()
        }
        await self._write()
        for name in wanted:
            if name not in self._tasks:
                self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def run_once(self, checks: Iterable[Check]) -> None:
        """Run each of *checks* once, all at the same time; each takes the result of its first answer."""
        self._statuses = {name: CheckStatus(check) for name, check in _valid(checks).items()}
        found = await asyncio.gather(*(self._probe(each.check, timeout=LONGEST_FIRST) for each in self.statuses))
        for name, result in zip(sorted(self._statuses), found, strict=True):
            self._take(name, result, seconds=0.0)
        await self._write()

    async def close(self) -> None:
        """Stop all checks."""
        tasks = tuple(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        check, due = self._statuses[name].check, loop.time()
        while True:
            try:
                began = loop.time()
                result = await self._probe(check, timeout=check.timeout_seconds)
                if self._take(name, result, seconds=loop.time() - began):
                    await self._write()
            except Exception:  # the edge: other checks, and the next run of this one, must continue
                log.exception("health check failed to run", check=name)
            due = max(due + check.interval_seconds, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _probe(self, check: Check, *, timeout: float) -> ProbeResult:
        try:
            target = targets.target_of(check.url, self._environment)
            target = replace(target, expected=check.expected_status)
        except BadInput:
            return ProbeResult(None, "this node cannot ask its url")
        seconds = min(timeout, check.timeout_seconds)
        return await self._prober.probe(target, ca_file=self._ca_file(check, target), seconds=seconds)

    def _ca_file(self, check: Check, target: CheckTarget) -> Path | None:
        own = check.ca_from is not None or check.url == targets.KUBE_APISERVER
        return self._ca_dir / f"{check.name}.crt" if own and target.scheme == "https" else None

    def _take(self, name: str, result: ProbeResult, *, seconds: float) -> bool:
        """Take one result; return whether the check's health has changed."""
        known = self._statuses[name]
        if result.ok is None:
            self._statuses[name] = replace(known, message=f"not asked: {result.message}", blocked=result.message)
            return False
        check = known.check
        health = next_health(
            known.health, answer=result.ok, fail_after=check.fail_after, succeed_after=check.succeed_after
        )
        has_changed = health.ok != known.health.ok
        since = instant_text(datetime.now(UTC)) if has_changed or not known.since else known.since
        self._statuses[name] = CheckStatus(check, health, since, result.message, seconds)
        if has_changed:
            log.info("health check", check=name, ok=health.ok, reason=result.message)
        return has_changed

    async def _write(self) -> None:
        results = {
            check_track(name): CheckResult(each.health.fails, -weight_of(each.check))
            for name, each in self._statuses.items()
        }
        await self._tracks.update_checks(results)
        self._is_written = True

    async def _recorded(self, wanted: Mapping[str, Check]) -> Mapping[str, TrackValue | None]:
        """The results of *wanted* that an earlier agent of this pod wrote."""
        return await asyncio.to_thread(lambda: {name: self._tracks.read(check_track(name)) for name in wanted})


def _valid(checks: Iterable[Check]) -> dict[str, Check]:
    """Those of *checks* whose names can be file names, and whose times leave a pause between two runs; by name."""
    return {
        each.name: each
        for each in checks
        if CHECK_NAME.fullmatch(each.name)
        and 0 < each.interval_seconds <= LONGEST
        and 0 < each.timeout_seconds <= LONGEST
    }


def _resumed(recorded: TrackValue | None, check: Check) -> CheckStatus:
    """The status of *check* as an earlier agent left it."""
    if recorded is None:
        return CheckStatus(check, CheckHealth(True))
    since = instant_text(datetime.fromtimestamp(recorded.since, UTC))
    return CheckStatus(check, CheckHealth(recorded.number == 0), since)
