"""
Runs the group's health checks on this node, and tells the track files what they come to.

Each check is asked at once and then at its interval, by the monotonic clock. A check that cannot be asked says so and
stays what it was: a CA that pods get one after the other, when they restart, must not take every VIP away meanwhile.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kavip.agent.health.probe import Answer, Asker
from kavip.agent.health.threshold import UNASKED, Asked, Health, after
from kavip.agent.keepalived.trackfiles import Tracks, Verdict, Written
from kavip.api.group import Check
from kavip.api.instant import instant_text
from kavip.errors import BadInput
from kavip.vrrp import targets
from kavip.vrrp.targets import CheckTarget, NodeEndpoints
from kavip.vrrp.tracking import CHECK_NAME, check_track, weight_of

LONGEST_FIRST: Final = 5.0
"""Seconds that a pod waits for the first answers before keepalived starts."""
LONGEST: Final = 3600
"""Seconds between two questions, at most; a group cannot say more."""

log = structlog.get_logger()


class Checks:
    """The checks of one group; *here* is what the node knows of itself."""

    def __init__(self, tracks: Tracks, *, ca_dir: Path, here: NodeEndpoints) -> None:
        self._tracks, self._ca_dir, self._here = tracks, ca_dir, here
        self._asker = Asker()
        self._asked: dict[str, Asked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._has_told = False

    @property
    def asked(self) -> tuple[Asked, ...]:
        """All checks, by name."""
        return tuple(self._asked[name] for name in sorted(self._asked))

    async def want(self, checks: Iterable[Check]) -> None:
        """Run exactly *checks* from now on; one that changes is the same one as long as it keeps its name."""
        wanted = _sound(checks)
        if self._has_told and wanted == {name: each.check for name, each in self._asked.items()}:
            return  # that there is none has to be told once: a Local track waits for it
        for name, known in tuple(self._asked.items()):
            if wanted.get(name) != known.check and name in self._tasks:
                self._tasks.pop(name).cancel()
        before = await self._before(wanted)
        self._asked = {
            name: replace(self._asked[name] if name in self._asked else _known(before[name], check), check=check)
            for name, check in wanted.items()
        }
        await self._tell()
        for name in wanted:
            if name not in self._tasks:
                self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name))

    async def ask_once(self, checks: Iterable[Check]) -> None:
        """Ask each of *checks* once, all at a time, and believe the answers that come soon."""
        self._asked = {name: Asked(check) for name, check in _sound(checks).items()}
        found = await asyncio.gather(*(self._answer(each.check, most=LONGEST_FIRST) for each in self.asked))
        for name, answer in zip(sorted(self._asked), found, strict=True):
            self._take(name, answer, seconds=0.0)
        await self._tell()

    async def close(self) -> None:
        """Ask no more."""
        tasks = tuple(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        check, due = self._asked[name].check, loop.time()
        while True:
            try:
                began = loop.time()
                answer = await self._answer(check, most=check.timeout_seconds)
                if self._take(name, answer, seconds=loop.time() - began):
                    await self._tell()
            except Exception:  # the edge: the other checks, and this one's next turn, do not hang on it
                log.exception("health check failed to run", check=name)
            due = max(due + check.interval_seconds, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _answer(self, check: Check, *, most: float) -> Answer:
        """What is answered to *check* now."""
        try:
            target = targets.target_of(check.url, self._here)
        except BadInput:
            return Answer(None, f"{UNASKED}its url is none that this node can ask")
        seconds = min(most, check.timeout_seconds)
        return await self._asker.ask(target, ca_file=self._ca_file(check, target), seconds=seconds)

    def _ca_file(self, check: Check, target: CheckTarget) -> Path | None:
        own = check.ca_from is not None or check.url == targets.KUBE_APISERVER
        return self._ca_dir / f"{check.name}.crt" if own and target.scheme == "https" else None

    def _take(self, name: str, answer: Answer, *, seconds: float) -> bool:
        """Reckon with one answer; whether the check has come to something else by it."""
        known = self._asked[name]
        if answer.ok is None:
            self._asked[name] = replace(known, message=answer.message, stuck=True)
            return False
        check = known.check
        health = after(known.health, answer=answer.ok, fail_after=check.fail_after, succeed_after=check.succeed_after)
        is_news = health.ok != known.health.ok
        since = instant_text(datetime.now(UTC)) if is_news or not known.since else known.since
        self._asked[name] = Asked(check, health, since, answer.message, seconds)
        if is_news:
            log.info("health check", check=name, ok=health.ok, reason=answer.message)
        return is_news

    async def _tell(self) -> None:
        verdicts = {
            check_track(name): Verdict(each.health.fails, -weight_of(each.check)) for name, each in self._asked.items()
        }
        await self._tracks.tell_checks(verdicts)
        self._has_told = True

    async def _before(self, wanted: Mapping[str, Check]) -> Mapping[str, Written | None]:
        """What an earlier agent of this pod knew of the checks *wanted*."""
        return await asyncio.to_thread(lambda: {name: self._tracks.before(check_track(name)) for name in wanted})


def _sound(checks: Iterable[Check]) -> dict[str, Check]:
    """Those of *checks* whose names can be those of files, and whose times leave a pause between questions."""
    return {
        each.name: each
        for each in checks
        if CHECK_NAME.fullmatch(each.name)
        and 0 < each.interval_seconds <= LONGEST
        and 0 < each.timeout_seconds <= LONGEST
    }


def _known(before: Written | None, check: Check) -> Asked:
    """*check* as an earlier agent left it."""
    if before is None:
        return Asked(check, Health(True))
    return Asked(check, Health(before.number == 0), instant_text(datetime.fromtimestamp(before.since, UTC)))
