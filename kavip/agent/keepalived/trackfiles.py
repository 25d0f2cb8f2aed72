"""
The track files of this node: the results of health checks and endpoints, as the numbers that keepalived reads.

The agent writes a file before keepalived reads a configuration that names it, and whenever its number changes.
keepalived detects the change at once (inotify, also for a rename). A file whose result is not known yet keeps its
number, so that a restart of the agent moves no VIP; without a file the number is 0, which means healthy.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from kavip.agent.config.model import ParsedConfig
from kavip.agent.keepalived.rundir import replace_file
from kavip.agent.report.dump import Dump
from kavip.vrrp import tracking

NOTICED: Final = 1.0
"""Seconds after which keepalived has surely noticed a change."""


class CheckResult(NamedTuple):
    """The result of a health check. A failing one lowers priorities by *weight*; 0 means FAULT."""

    fails: bool
    weight: int = 0


class TrackValue(NamedTuple):
    """The number in a track file, and since when (seconds since the epoch)."""

    number: int
    since: float


@dataclass(frozen=True, slots=True)
class TrackInputs:
    """
    What the numbers follow from, by the names of track files.

    *checks* are the results of the agent's health checks; None: not known yet. *unready* are the Services with the
    policy ``Local`` that have no ready endpoint here, *awaited* those that are not known yet; all others are ready.
    *awaited* None: nothing is known.
    """

    checks: Mapping[str, CheckResult] | None = None
    unready: frozenset[str] = frozenset()
    awaited: frozenset[str] | None = None

    def is_unknown(self, name: str) -> bool:
        """Whether the number of the file *name* is not known yet."""
        if tracking.is_local(name):
            return self.checks is None or self.awaited is None or name in self.awaited
        return self.checks is None


def numbers(configuration: ParsedConfig, inputs: TrackInputs) -> Mapping[str, int]:
    """The number of each track file that *configuration* names, and of each check."""
    checks = inputs.checks or {}
    lowered = sum(each.weight for each in checks.values() if each.fails)
    found = {name: int(each.fails) for name, each in checks.items()}
    for instance in configuration.instances:
        for track in instance.tracks:
            if tracking.is_local(track.name):
                ready = track.name not in inputs.unready
                wanted = tracking.effective(instance.priority, lowered=lowered, ready=ready)
                found[track.name] = instance.priority - wanted
            else:
                found.setdefault(track.name, 0)
    return found


def is_followed(configuration: ParsedConfig, written: Mapping[str, int], dump: Dump) -> bool:
    """
    Whether keepalived follows the numbers that are *written*, as far as *dump* shows it.

    It watches track files with inotify. If the node has no inotify instance left, it ignores them without a log line.
    """
    found = {each.data.iname: each.data for each in dump}
    for instance in configuration.instances:
        data = found.get(instance.name)
        if data is None or not instance.tracks:
            continue
        is_fault = any(written.get(track.name) and not track.weight for track in instance.tracks)
        is_lower = any(written.get(track.name) and track.weight for track in instance.tracks)
        is_lowered = data.effective_priority != data.base_priority
        is_open = data.base_priority > 1 and data.state_name in ("BACKUP", "MASTER")
        if is_open and (is_fault or is_lower != is_lowered):
            return False
    return True


class TrackFiles:
    """The folder of track files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, int] = {}
        self._configuration, self._inputs = ParsedConfig(), TrackInputs()
        self._writing = asyncio.Lock()
        self._changed: float | None = None  # the last change that is not verified yet

    @property
    def needs_verification(self) -> bool:
        """Whether a change is old enough to be verified, and has not been yet."""
        return self._changed is not None and time.monotonic() - self._changed > NOTICED

    def verify(self, dump: Dump) -> bool:
        """Compare the last change with *dump*, once; return whether keepalived follows it."""
        self._changed = None
        return is_followed(self._configuration, self._written, dump)

    async def prepare(self, configuration: ParsedConfig) -> None:
        """Write the files for *configuration*, which keepalived reads next. Others stay: it may follow them still."""
        self._configuration = configuration
        await self._write()

    async def update_checks(self, checks: Mapping[str, CheckResult]) -> None:
        """Write the results of all health checks."""
        self._inputs = replace(self._inputs, checks=checks)
        await self._write()

    async def update_endpoints(self, *, unready: frozenset[str], awaited: frozenset[str] = frozenset()) -> None:
        """Write which Services have no ready endpoint here; *awaited*: not known yet."""
        self._inputs = replace(self._inputs, unready=unready, awaited=awaited)
        await self._write()

    async def remove_unused(self) -> None:
        """Remove the files that no instance follows, now that keepalived runs the configuration."""
        async with self._writing:
            await asyncio.to_thread(self._remove_all_but, numbers(self._configuration, self._inputs).keys())

    def read(self, name: str) -> TrackValue | None:
        """The content of a file, of this agent or an earlier one; None if there is none. Blocks."""
        try:
            path = self._path / name
            return TrackValue(int(path.read_text()), path.stat().st_mtime)
        except (OSError, ValueError):
            return None

    async def _write(self) -> None:
        async with self._writing:
            inputs = self._inputs
            await asyncio.to_thread(self._write_numbers, numbers(self._configuration, inputs), inputs)

    def _write_numbers(self, wanted: Mapping[str, int], inputs: TrackInputs) -> None:
        self._path.mkdir(mode=0o755, exist_ok=True)
        for name, number in sorted(wanted.items()):
            path = self._path / name
            if self._written.get(name) == number or (inputs.is_unknown(name) and path.exists()):
                continue
            before = None if name in self._written else self.read(name)
            if before is None or before.number != number:  # the same number keeps its time
                replace_file(path, f"{number}\n".encode())
                self._changed = time.monotonic()
            self._written[name] = number

    def _remove_all_but(self, wanted: Collection[str]) -> None:
        for path in self._path.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)
                self._written.pop(path.name, None)
