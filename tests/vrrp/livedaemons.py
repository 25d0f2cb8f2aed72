"""Real keepalived daemons on the nodes of a segment, each with those lines of the group's text that agents give it."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hack.testbed import process
from hack.testbed.errors import TestbedError
from hack.testbed.place import run
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip.agent.config.localize import node_lines
from kavip.vrrp.tracking import TRACK_DIR

PATIENCE = 60.0  # a limit for a busy machine; no test waits for it to pass
STATES = ("INIT", "BACKUP", "MASTER", "FAULT")
JSON_SIGNAL = 36
GRACE = 30.0
"""Seconds that the kubelet gives a container to stop: one that is killed earlier keeps its VIPs."""
_STAY = 4.5  # intervals: a backup that hears no other node waits for three and its skew, which is shorter than one
ANSWER = 2.0  # seconds between two requests for the state of a daemon
BEFORE_OTHERS = ("sh", "-c", '{ echo -15 >/proc/self/autogroup; } 2>/dev/null; exec nice -n -15 "$@"', "sh")
"""
The start of the command of a session: on a busy machine a daemon without CPU time would look like a lost frame.

Where the kernel divides processors among sessions, ``nice`` applies within the process's own session only.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance as its daemon reports it."""

    state: str
    vips: frozenset[str]
    changes: tuple[int, int]
    """How often it became master, and how often it stopped being master."""
    priority: int = 0
    """The effective priority."""


class Daemon:
    """keepalived on one node."""

    def __init__(self, host: Host) -> None:
        """No process runs yet."""
        self.host = host
        self.log = host.home / "keepalived.log"
        self._file = host.home / "keepalived.conf"
        self._process: Process | None = None

    def start(self, text: str) -> Self:
        """Start it with *text*."""
        self._write(text)
        home = self.host.home
        # With --log-detail a new master writes a line per ARP. Without a syslog daemon each line goes to the console,
        # which blocks the daemon for seconds, and VIPs flap.
        self._process = self.host.spawn(
            *(*BEFORE_OTHERS, "env", f"TMPDIR={home}", "keepalived", "--dont-fork", "--log-console", "--no-syslog"),
            *("--vrrp", "--no_bfd", f"--use-file={self._file}", f"--config-id={self.host.name}"),
            *(f"--pid={home}/keepalived.pid", f"--vrrp_pid={home}/vrrp.pid"),
            log=self.log,
        )
        process.wait_for(f"keepalived on {self.host.name} starts", self._started, timeout=PATIENCE)
        return self

    def reload(self, text: str) -> None:
        """Write *text*, and return when the daemon has read it."""
        before = self._reloads()
        self._write(text)
        self._signal(1)
        process.wait_for(f"{self.host.name} reloads", lambda: self._reloads() > before, timeout=PATIENCE)

    def stop(self) -> None:
        """Stop it as the kubelet stops a pod."""
        process.stop([self._process] if self._process else [], grace=GRACE)
        self._process = None

    def look(self) -> dict[str, Seen]:
        """All instances by name."""
        dump = self.host.home / "keepalived.json"
        before = _identity(dump)
        found: list[Any] = []
        requested_at = 0.0

        def ready() -> bool:
            nonlocal requested_at
            if time.monotonic() - requested_at > ANSWER:  # it ignores signals while it reloads
                self._signal(JSON_SIGNAL)
                requested_at = time.monotonic()
            if _identity(dump) == before:
                return False
            try:
                found[:] = json.loads(dump.read_text())
            except (ValueError, OSError):  # it is renamed into place before it is filled
                return False
            return True

        process.wait_for(f"{self.host.name} dumps its state", ready, timeout=PATIENCE, interval=0.01)
        return {each["data"]["iname"]: _seen(each) for each in found}

    def addresses(self) -> set[str]:
        """All addresses that the kernel has."""
        links = json.loads(self.host.exec("ip", "-json", "address").stdout)
        return {entry["local"] for link in links for entry in link["addr_info"]}

    def _write(self, text: str) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text("\n".join(node_lines(text, self.host.name)), encoding="ascii")
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
    """Wait until each instance has the master that *wanted* names, and no other."""
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


def settled(daemons: Iterable[Daemon], *, interval: float = 1.0) -> dict[Daemon, dict[str, Seen]]:
    """
    The states of *daemons* after none of them changed its state for the time that a backup waits for a master.

    Daemons that start together may become master together: the second one an instant after it was seen as backup.
    """
    seen: list[dict[Daemon, dict[str, Seen]]] = []

    def stayed() -> bool:
        seen.append({daemon: daemon.look() for daemon in daemons})
        return len(seen) > 1 and _counts(seen[-1]) == _counts(seen[-2])

    process.wait_for("the masters stay", stayed, timeout=PATIENCE, interval=_STAY * interval)
    return seen[-1]


def leaders(instances: Iterable[Any], among: Callable[[str], bool] = lambda _: True) -> dict[str, str]:
    """The node that should be master of each instance: the highest priority *among* the nodes that may be."""
    return {each.name: max((p, n) for n, p in each.priorities if among(n))[1] for each in instances}


def check(host: Host, text: str, *, node: str = "") -> str:
    """The errors of ``keepalived --config-test`` for *text* on *host* as *node*; "" for none."""
    path = host.home / "test.conf"
    path.write_text("\n".join(node_lines(text, node or host.name)), encoding="ascii")
    path.chmod(0o644)
    host.exec("mkdir", "--parents", TRACK_DIR)  # agents make it first
    result = host.exec(
        "keepalived", "--config-test", f"--config-id={node or host.name}", f"--use-file={path}", check=False
    )
    return f"exit {result.returncode}: {result.stderr}" if result.returncode or result.stderr else ""


def installed_version() -> str:
    """The version of keepalived on this machine."""
    found = re.search(r"v(\d+(?:\.\d+)+)", run(["/usr/sbin/keepalived", "--version"]).stderr)
    assert found
    return found[1]


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
