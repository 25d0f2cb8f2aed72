"""Real keepalived daemons on the nodes of a segment, each with the group's text as it is: they resolve ``@node``."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hack.testbed import process
from hack.testbed.errors import TestbedError
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment

PATIENCE = 60.0  # a limit for a busy machine; nothing here waits for it to pass
STATES = ("INIT", "BACKUP", "MASTER", "FAULT")
JSON_SIGNAL = 36
GRACE = 30.0
"""Seconds that kubelet gives a container that is to end: one that is killed before keeps its VIPs."""
_STAY = 3.5  # intervals: by then a backup that hears nobody has become master
ANSWER = 2.0  # seconds after which a daemon is asked for its state once more
BEFORE_OTHERS = ("sh", "-c", '{ echo -15 >/proc/self/autogroup; } 2>/dev/null; exec nice -n -15 "$@"', "sh")
"""
Begins the command of a session of its own: what a busy machine keeps from a daemon would look like a lost frame.

Where the kernel shares the processors out among sessions, a process is nice to its own session only.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance as its daemon reports it."""

    state: str
    vips: frozenset[str]
    changes: tuple[int, int]
    """How often it became master, and how often it stopped being one."""
    priority: int = 0
    """The effective one."""


class Daemon:
    """keepalived on one node."""

    def __init__(self, host: Host) -> None:
        """Nothing runs yet."""
        self.host = host
        self.log = host.home / "keepalived.log"
        self._file = host.home / "keepalived.conf"
        self._process: Process | None = None

    def start(self, text: str) -> Self:
        """Start it with *text*."""
        self._write(text)
        home = self.host.home
        # With --log-detail a take-over writes a line per ARP, and without a syslog daemon each goes to the console:
        # the daemon is blocked for seconds, and VIPs flap.
        self._process = self.host.spawn(
            *(*BEFORE_OTHERS, "env", f"TMPDIR={home}", "keepalived", "--dont-fork", "--log-console", "--no-syslog"),
            *("--vrrp", "--no_bfd", f"--use-file={self._file}", f"--config-id={self.host.name}"),
            *(f"--pid={home}/keepalived.pid", f"--vrrp_pid={home}/vrrp.pid"),
            log=self.log,
        )
        process.wait_for(f"keepalived on {self.host.name} starts", self._started, timeout=PATIENCE)
        return self

    def reload(self, text: str) -> None:
        """Give it *text*, and return when it has read it."""
        before = self._reloads()
        self._write(text)
        self._signal(1)
        process.wait_for(f"{self.host.name} reloads", lambda: self._reloads() > before, timeout=PATIENCE)

    def stop(self) -> None:
        """End it as kubelet ends a pod."""
        process.stop([self._process] if self._process else [], grace=GRACE)
        self._process = None

    def look(self) -> dict[str, Seen]:
        """Every instance by name."""
        dump = self.host.home / "keepalived.json"
        before = _identity(dump)
        found: list[Any] = []
        asked = 0.0

        def ready() -> bool:
            nonlocal asked
            if time.monotonic() - asked > ANSWER:  # while it reloads it hears nothing
                self._signal(JSON_SIGNAL)
                asked = time.monotonic()
            if _identity(dump) == before:
                return False
            try:
                found[:] = json.loads(dump.read_text())
            except (ValueError, OSError):  # renamed into place before it is filled
                return False
            return True

        process.wait_for(f"{self.host.name} dumps its state", ready, timeout=PATIENCE, interval=0.01)
        return {each["data"]["iname"]: _seen(each) for each in found}

    def addresses(self) -> set[str]:
        """The addresses that the kernel has, whoever put them there."""
        links = json.loads(self.host.exec("ip", "-json", "address").stdout)
        return {entry["local"] for link in links for entry in link["addr_info"]}

    def _write(self, text: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text, encoding="ascii")
        fresh.chmod(0o644)
        fresh.replace(self._file)

    def _signal(self, number: int) -> None:
        assert self._process
        assert self._process.signal(number), process.tail(self.log)

    def _started(self) -> bool:
        assert self._process
        assert self._process.alive, process.tail(self.log)
        return "Startup complete" in self.log.read_text(errors="replace")

    def _reloads(self) -> int:
        return self.log.read_text(errors="replace").count("Reload complete")


def start(segment: Segment, text: str) -> list[Daemon]:
    """A daemon with *text* on every node."""
    return [Daemon(host).start(text) for host in segment.nodes]


def masters(daemons: Iterable[Daemon]) -> dict[str, list[str]]:
    """The nodes that are master, by instance."""
    found: dict[str, list[str]] = {}
    for daemon in daemons:
        for name, seen in daemon.look().items():
            found.setdefault(name, [])
            if seen.state == "MASTER":
                found[name].append(daemon.host.name)
    return found


def settle(daemons: Iterable[Daemon], wanted: dict[str, str]) -> None:
    """Wait until each instance of *wanted* has its master, and no other."""
    expected = {name: [node] for name, node in wanted.items()}
    seen: dict[str, list[str]] = {}

    def settled() -> bool:
        seen.clear()
        seen.update(masters(daemons))
        return seen == expected

    try:
        process.wait_for("masters settle", settled, timeout=PATIENCE, interval=0.2)
    except TestbedError as error:
        wrong = {name: nodes for name, nodes in seen.items() if nodes != expected.get(name)}
        raise AssertionError(f"{error}; wrong: {dict(list(wrong.items())[:5])} of {len(expected)}") from None


def rest(daemons: Iterable[Daemon], *, interval: float = 1.0) -> dict[Daemon, dict[str, Seen]]:
    """
    Wait until none of *daemons* has risen or stood back for as long as a backup waits for a master; what they show.

    Daemons that start together may rise together: the second an instant after it was seen as backup.
    """
    seen: list[dict[Daemon, dict[str, Seen]]] = []

    def stayed() -> bool:
        seen.append({daemon: daemon.look() for daemon in daemons})
        return len(seen) > 1 and _counts(seen[-1]) == _counts(seen[-2])

    process.wait_for("the masters stay", stayed, timeout=PATIENCE, interval=_STAY * interval)
    return seen[-1]


def leaders(instances: Iterable[Any], among: Callable[[str], bool] = lambda _: True) -> dict[str, str]:
    """The node that should be master of each instance: of those *among* which it may be, the highest priority."""
    return {each.name: max((p, n) for n, p in each.priorities if among(n))[1] for each in instances}


def check(host: Host, text: str, *, node: str = "") -> str:
    """What ``keepalived --config-test`` has against *text* on *host*, as *node*; "" for nothing."""
    path = host.home / "test.conf"
    path.write_text(text, encoding="ascii")
    path.chmod(0o644)
    result = host.exec(
        "keepalived", "--config-test", f"--config-id={node or host.name}", f"--use-file={path}", check=False
    )
    return f"exit {result.returncode}: {result.stderr}" if result.returncode or result.stderr else ""


def _counts(seen: dict[Daemon, dict[str, Seen]]) -> dict[Daemon, dict[str, tuple[int, int]]]:
    return {daemon: {name: each.changes for name, each in found.items()} for daemon, found in seen.items()}


def _seen(each: dict[str, Any]) -> Seen:
    data, stats = each["data"], each["stats"]
    held = frozenset(text.split("/")[0] for text in (*data.get("vips", ()), *data.get("evips", ())))
    changes = (stats["become_master"], stats["release_master"])
    return Seen(STATES[data["state"]], held, changes, data["effective_priority"])


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns
