"""
The track files of this node: what the agent knows of it, as the numbers that keepalived reads.

They are written before keepalived reads a configuration that names them, and whenever a number changes; keepalived sees
that at once (inotify, also for a rename). What somebody is to find out and has not yet stays as it was, so that an
agent that starts again moves nothing; without a file it is taken to be well.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from kavip.agent.config.model import Configuration
from kavip.agent.keepalived.dump import Dump
from kavip.agent.keepalived.rundir import replace_file
from kavip.vrrp import tracking

NOTICED: Final = 1.0
"""Seconds within which a daemon notices what is written, by far."""


class Verdict(NamedTuple):
    """What a health check has come to; *weight* is what it takes from priorities, 0 where it is FAULT."""

    fails: bool
    weight: int = 0


class Written(NamedTuple):
    """A number that stands in a file, and since when (seconds since the epoch)."""

    number: int
    since: float


@dataclass(frozen=True, slots=True)
class Findings:
    """
    What is known of this node, by the names of track files.

    *checks* are the health checks that the agent runs. *unready* are the Services with the policy ``Local`` that have
    no ready endpoint here, *awaited* those of which nobody knows yet; all others are ready. None: nothing was told.
    """

    checks: Mapping[str, Verdict] | None = None
    unready: frozenset[str] = frozenset()
    awaited: frozenset[str] | None = None

    def leaves(self, name: str) -> bool:
        """Whether the file *name* stays as an earlier agent left it: whoever is to know has not said."""
        if tracking.is_local(name):
            return self.checks is None or self.awaited is None or name in self.awaited
        return self.checks is None


def numbers(configuration: Configuration, findings: Findings) -> Mapping[str, int]:
    """What each track file that *configuration* names has to hold, and each check's."""
    checks = findings.checks or {}
    lowered = sum(each.weight for each in checks.values() if each.fails)
    found = {name: int(each.fails) for name, each in checks.items()}
    for instance in configuration.instances:
        for track in instance.tracks:
            if tracking.is_local(track.name):
                ready = track.name not in findings.unready
                wanted = tracking.effective(instance.priority, lowered=lowered, ready=ready)
                found[track.name] = instance.priority - wanted
            else:
                found.setdefault(track.name, 0)
    return found


def heeded(configuration: Configuration, written: Mapping[str, int], dump: Dump) -> bool:
    """
    Whether the daemon has taken note of what is *written*, as far as *dump* tells.

    It hears of track files by inotify, and is deaf to them, without a word, where the node has no handle left.
    """
    found = {each.data.iname: each.data for each in dump}
    for instance in configuration.instances:
        data = found.get(instance.name)
        if data is None or not instance.tracks:
            continue
        is_fault = any(written.get(track.name) and not track.weight for track in instance.tracks)
        is_lower = any(written.get(track.name) and track.weight for track in instance.tracks)
        is_told = data.effective_priority != data.base_priority
        is_open = data.base_priority > 1 and data.state_name in ("BACKUP", "MASTER")
        if is_open and (is_fault or is_lower != is_told):
            return False
    return True


class Tracks:
    """The folder of track files, for the configuration that keepalived reads or will."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = {}
        self._configuration, self._findings = Configuration(), Findings()
        self._writing = asyncio.Lock()
        self._changed: float | None = None  # and not compared yet with what the daemon made of it

    def unheeded(self, dump: Dump) -> bool:
        """Whether the daemon shows in *dump* that it has not noticed the last change; asked once for each."""
        self._changed = None
        return not heeded(self._configuration, self._written, dump)

    @property
    def awaits(self) -> bool:
        """Whether something has changed a while ago, and nobody has looked what the daemon made of it."""
        return self._changed is not None and time.monotonic() - self._changed > NOTICED

    async def follow(self, configuration: Configuration) -> None:
        """Write what *configuration* needs, which keepalived reads next. Other files stay: a daemon may follow them."""
        self._configuration = configuration
        await self._write()

    async def tell_checks(self, checks: Mapping[str, Verdict]) -> None:
        """Let keepalived know what the health checks say; those that are not named are no more."""
        self._findings = replace(self._findings, checks=checks)
        await self._write()

    async def tell_endpoints(self, *, unready: frozenset[str], awaited: frozenset[str] = frozenset()) -> None:
        """Let keepalived know which Services have no ready endpoint here, and of which that is still *awaited*."""
        self._findings = replace(self._findings, unready=unready, awaited=awaited)
        await self._write()

    async def settle(self) -> None:
        """Remove the files that nothing follows, now that the daemon runs the configuration."""
        async with self._writing:
            await asyncio.to_thread(self._clean, numbers(self._configuration, self._findings).keys())

    def before(self, name: str) -> Written | None:
        """What stands in a file, from this agent or an earlier one; None where there is none. Blocks."""
        try:
            path = self._path / name
            return Written(int(path.read_text()), path.stat().st_mtime)
        except (OSError, ValueError):
            return None

    async def _write(self) -> None:
        async with self._writing:
            findings = self._findings
            await asyncio.to_thread(self._put, numbers(self._configuration, findings), findings)

    def _put(self, wanted: Mapping[str, int], findings: Findings) -> None:
        self._path.mkdir(mode=0o755, exist_ok=True)
        for name, number in sorted(wanted.items()):
            path = self._path / name
            if self._written.get(name) == number or (findings.leaves(name) and path.exists()):
                continue
            before = None if name in self._written else self.before(name)
            if before is None or before.number != number:  # else it keeps its time
                replace_file(path, f"{number}\n".encode())
                self._changed = time.monotonic()
            self._written[name] = number

    def _clean(self, wanted: Collection[str]) -> None:
        for path in self._path.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)
                self._written.pop(path.name, None)
