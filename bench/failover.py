"""
The time without an answer from a VIP when its master fails: kavip's keepalived compared with a bare one, on two nodes.

Each event hits both daemons of the master at the same moment, so both are measured under the same conditions. The time
is that from the event to the first answer of the new master. A client sends an HTTP request every 10 ms.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench import goal
from hack.testbed import process, runs
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip.api.address import parse_address
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.vrrp.config import Config, render
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.priorities import priorities

INTERVALS: Final = (200, 50)
"""Milliseconds between advertisements: the default of a new group, and a fast group."""
RATIO: Final = 1.1
ROUNDS: Final = 5

KAVIP, BARE = "192.0.2.130", "192.0.2.140"
PATIENCE: Final = 60.0
_LEADER, _BACKUP = "n1", "n2"
_PAUSE: Final = 1.0  # seconds from the return of the VIPs to the next event
_BARE_CONF: Final = """\
global_defs {{
    router_id {node}
}}
vrrp_instance web {{
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority {priority}
    version 3
    advert_int {seconds:g}
    virtual_ipaddress {{
        {vip}
    }}
}}
"""


@dataclass
class Node:
    """One node: kavip's daemon with its agent, a bare daemon, and a web server."""

    host: Host
    home: Path
    milliseconds: int

    def prepare(self) -> None:
        """Write the configurations, and start all but the daemons."""
        (self.home / "config").mkdir(parents=True)
        (self.home / "run").mkdir()
        self._write("config/keepalived.conf", (config := _config(self.milliseconds)).text)
        self._write("config/agent.json", json.dumps({"group": "lb/edge", "configHash": config.hash}))
        priority = 101 if self.host.name == _LEADER else 100
        text = _BARE_CONF.format(node=self.host.name, priority=priority, seconds=self.milliseconds / 1000, vip=BARE)
        self._write("bare.conf", text)
        self.host.exec(*self._agent("--once"))
        self.host.spawn(*self._agent(), log=self.home / "agent.log")
        self.host.spawn(
            sys.executable, "-m", "tests.transitions.vipserver", self.host.name, log=self.home / "server.log"
        )

    def start(self) -> None:
        """Start both daemons."""
        for name, file in (("run", "run/keepalived.conf"), ("bare", "bare.conf")):
            (self.home / name).mkdir(exist_ok=True)
            pids = self.home / name
            self.host.spawn(
                *("env", f"TMPDIR={pids}", "/usr/sbin/keepalived", "-n", "-l", "-P", "-B"),
                *(f"--use-file={self.home / file}", f"--config-id={self.host.name}"),
                *(f"--pid={pids}/keepalived.pid", f"--vrrp_pid={pids}/vrrp.pid"),
                log=self.home / f"{name}.log",
            )

    def daemons(self) -> list[Process]:
        """All processes of both daemons."""
        found = [*self.host.processes("keepalived"), *self.host.processes("kavip_main")]
        return [*found, *self.host.processes("keepalived_vrrp"), *self.host.processes("kavip_vrrp")]

    def has(self, vip: str) -> bool:
        """Whether the interface of this node has *vip*."""
        return f" {vip}/" in self.host.exec("ip", "-4", "-oneline", "address", "show", "dev", "eth0").stdout

    def _agent(self, *flags: str) -> tuple[str, ...]:
        where = (f"--config-dir={self.home}/config", f"--run-dir={self.home}/run")
        owner = (f"--node-name={self.host.name}", f"--node-ip={self.host.ipv4}")
        return sys.executable, "-m", "kavip", "agent", *owner, *where, *flags

    def _write(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)
        (self.home / name).chmod(0o644)


def _config(milliseconds: int) -> Config:
    """kavip's text for one Service that the first node leads."""
    spec = GroupSpec(interface="eth0", unicast_enabled=True, vrrp_version=3, advert_interval_milliseconds=milliseconds)
    group = KeepalivedGroup(metadata=Metadata(name="edge", namespace="lb"), spec=spec)
    name = next(name for n in range(100) if _leads(name := f"bench/s{n}"))
    member = Member(key=name, addresses=(parse_address(KAVIP),), created="2026-01-01T00:00:00Z")
    peers = [Peer(_LEADER, parse_address("192.0.2.11")), Peer(_BACKUP, parse_address("192.0.2.12"))]
    return render(model_of(group, [member], peers, {name: 50}))


def _leads(service: str) -> bool:
    drawn = dict(priorities(f"lb/edge {service}", [_LEADER, _BACKUP]))
    return drawn[_LEADER] > drawn[_BACKUP]


class Pair:
    """Two nodes and a client on one segment."""

    def __init__(self, lan: Segment, nodes: dict[str, Node]) -> None:
        self.lan, self.nodes = lan, nodes
        self.leader, self.backup = nodes[_LEADER], nodes[_BACKUP]

    def settle(self) -> None:
        """Wait until the leader has both VIPs, and the other one none."""

        def settled() -> bool:
            held = [self.leader.has(vip) and not self.backup.has(vip) for vip in (KAVIP, BARE)]
            return all(held)

        process.wait_for("the leader has both VIPs", settled, timeout=PATIENCE)
        time.sleep(_PAUSE)

    def measure(self, happen: Callable[[], float], undo: Callable[[], None]) -> dict[str, float]:
        """Run *happen* on the leader; the seconds until the backup answers, by VIP."""
        with _asking(self.lan.client) as rows:
            moment = happen()
            process.wait_for(
                "the backup has both VIPs", lambda: self.backup.has(KAVIP) and self.backup.has(BARE), timeout=30
            )
            time.sleep(0.3)
        undo()
        self.settle()
        return {vip: _first(rows[vip], moment) for vip in (KAVIP, BARE)}

    # --- events -------------------------------------------------------------------------------------------------------
    def _all(self, number: int) -> float:
        daemons, moment = self.leader.daemons(), time.monotonic()
        for one in daemons if number == signal.SIGKILL else ():  # else the last one sends priority 0 before it dies
            one.signal(signal.SIGSTOP)
        for one in daemons:
            one.signal(number)
        return moment

    def kill(self) -> float:
        """All processes of both daemons die."""
        return self._all(signal.SIGKILL)

    def freeze(self) -> float:
        """Both daemons stop sending adverts, and keep their addresses."""
        return self._all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Both daemons continue."""
        self._all(signal.SIGCONT)

    def disconnect(self) -> float:
        """The leader's link goes down."""
        moment = time.monotonic()
        self.lan.disconnect(self.leader.host)
        return moment

    def reconnect(self) -> None:
        """The leader's link comes up again."""
        self.lan.reconnect(self.leader.host)

    def stop(self) -> float:
        """Both daemons get SIGTERM."""
        return self._all(signal.SIGTERM)

    def start(self) -> None:
        """Start both daemons again after all processes have ended."""
        process.wait_for("the daemons end", lambda: not self.leader.daemons(), timeout=PATIENCE)
        self.leader.start()


@contextmanager
def _pair(milliseconds: int) -> Iterator[Pair]:
    with ExitStack() as stack:
        state = stack.enter_context(runs.temporary())
        lan = stack.enter_context(Segment(state, nodes=2))
        nodes = {host.name: Node(host, state / f"{host.name}-bench", milliseconds) for host in lan.nodes}
        for node in nodes.values():
            node.prepare()
            node.start()
        pair = Pair(lan, nodes)
        pair.settle()
        yield pair


Rows = dict[str, list[tuple[float, float | None, str]]]


@contextmanager
def _asking(client: Host) -> Iterator[Rows]:
    rows: Rows = {}
    command = client.command(sys.executable, "-m", "tests.transitions.vipclient", KAVIP, BARE)
    asking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert asking.stdout
    asking.stdout.readline()
    yield rows
    rows.update(json.loads(asking.communicate(timeout=PATIENCE)[0]))


def _first(rows: list[tuple[float, float | None, str]], moment: float) -> float:
    return min(sent + took for sent, took, node in rows if took is not None and node == _BACKUP) - moment


def main() -> None:
    """Print the table; exit status 1 where a goal is not met."""
    failed = False
    for milliseconds in INTERVALS:
        with _pair(milliseconds) as pair:
            events = {
                "kill -9 of the daemon": (pair.kill, pair.start),
                "daemon silent (SIGSTOP)": (pair.freeze, pair.thaw),
                "link down": (pair.disconnect, pair.reconnect),
                "clean stop": (pair.stop, pair.start),
            }
            for name, (happen, undo) in events.items():
                found = [pair.measure(happen, undo) for _ in range(ROUNDS)]
                kavip, bare = (median(each[vip] for each in found) for vip in (KAVIP, BARE))
                what = f"{name}, {milliseconds} ms: kavip {kavip * 1000:.0f} ms, bare {bare * 1000:.0f} ms"
                is_met = kavip / bare < RATIO
                goal.row(what, f"{kavip / bare:.2f} x", goal=f"under {RATIO} x bare", met=is_met)
                failed |= not is_met
    sys.exit(failed)


if __name__ == "__main__":
    main()
