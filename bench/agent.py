"""
The agent with a real keepalived of 255 instances: time from mount to reload, CPU when idle, memory. It needs root.

When idle, the agent gets a request for /state every 2 s and a scrape every 15 s. The same is measured while another
machine sends 1,000 ARP packets a second, of which the agent's filter passes none. Its memory is compared with that of a
bare process that has imported the same libraries.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from bench.goal import row
from bench.render import built, group, members
from bench.timing import plain
from hack.testbed import process, runs
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.api.address import parse_address
from kavip.api.agentconfig import DetectionConfig
from kavip.reconcile.group.manifests import config_map
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, settings_of
from kavip.vrrp.config import render
from kavip.vrrp.members import Peer

INSTANCES: Final = 255
CHANGES: Final = 15
IDLE: Final = 30.0
SCRAPE: Final = 15.0
POLL: Final = 2.0
ARP_RATE: Final = 1000
FRAMES: Final = 50_000
RUNS: Final = 8
LIBRARIES: Final = "asyncio, click, msgspec, prometheus_client, pyroute2, structlog"


class Node:
    """The agent and keepalived on *host*, with all their files in *folder*."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.mount, self.run_dir = folder / "mount", folder / "run"
        self.agent_log, self.keepalived_log = folder / "agent.log", folder / "keepalived.log"
        self.agent: Process | None = None
        self.keepalived: Process | None = None
        self._generation = 0

    def swap_mount(self, data: dict[str, str]) -> None:
        """Swap the mount to *data* as kubelet does it."""
        self._generation += 1
        fresh = self.mount / f"..{self._generation}"
        fresh.mkdir(parents=True)
        for name, text in data.items():
            (fresh / name).write_text(text)
        (self.mount / "..data_tmp").symlink_to(fresh.name)
        os.replace(self.mount / "..data_tmp", self.mount / "..data")

    def start(self) -> None:
        """Start the agent and keepalived as kubelet does."""
        self.run_dir.mkdir()
        flags = [f"--node-name={self.host.name}", f"--node-ip={self.host.ipv4}", f"--config-dir={self.mount}"]
        command = [sys.executable, "-m", "kavip", "agent", *flags, f"--run-dir={self.run_dir}"]
        self.host.exec(*command, "--once")
        files = ("use-file=keepalived.conf", "pid=keepalived.pid", "vrrp_pid=vrrp.pid")
        options = [f"--{option}={self.run_dir / name}" for option, _, name in (each.partition("=") for each in files)]
        daemon = ["env", f"TMPDIR={self.run_dir}", "keepalived", "-n", "-l", "--no-syslog", "-P", "-B", *options]
        self.keepalived = self.host.spawn(*daemon, f"--config-id={self.host.name}", log=self.keepalived_log)
        self.agent = self.host.spawn(*command, log=self.agent_log)


def manifest(host: Host, count: int) -> dict[str, str]:
    """The data of the ConfigMap of a group with *count* Services."""
    edge = group("PerService")
    text = render(built("PerService", members(count), [Peer(host.name, parse_address(host.ipv4))])).text
    config_hash = sha256(text.encode()).hexdigest()[:16]
    published = PublishedRevisions(Revision(text, config_hash, settings_of(edge)))
    data: dict[str, str] = config_map(edge, published, detection=DetectionConfig())["data"]
    return data


def changed(data: dict[str, str], number: int) -> dict[str, str]:
    """*data* with a different configuration, and the hash of it."""
    text = data[names.CONFIG_KEY].replace("router_id edge", f"router_id edge-{number}", 1)
    assert text != data[names.CONFIG_KEY]
    meta = msgspec.json.decode(data[names.AGENT_KEY]) | {"configHash": sha256(text.encode()).hexdigest()[:16]}
    return {names.CONFIG_KEY: text, names.AGENT_KEY: msgspec.json.encode(meta).decode()}


def seconds_until(ready: Callable[[], bool]) -> float:
    """Wait until *ready*; the seconds that this takes."""
    began = time.perf_counter()
    process.wait_for("the daemon has reloaded", ready, timeout=60, interval=0.001)
    return time.perf_counter() - began


def reloads(node: Node, data: dict[str, str]) -> None:
    """Print the seconds from a changed mount until keepalived has reloaded, and until the agent has confirmed it."""
    read, confirmed = [], []
    for number in range(CHANGES):
        before = [_lines(node.keepalived_log, b"Reload complete"), _lines(node.agent_log, b"configuration runs")]
        fresh = changed(data, number)
        began = time.perf_counter()
        node.swap_mount(fresh)
        seconds_until(lambda: _lines(node.keepalived_log, b"Reload complete") > before[0])  # noqa: B023 - called here
        read.append(time.perf_counter() - began)
        seconds_until(lambda: _lines(node.agent_log, b"configuration runs") > before[1])  # noqa: B023 - called here
        confirmed.append(time.perf_counter() - began)
    median = statistics.median(read) * 1000
    row(f"mount changed to reloaded, median of {CHANGES}", f"{median:.0f} ms", goal="under 200 ms", met=median < 200)
    plain("  longest", f"{max(read) * 1000:.0f} ms")
    plain("  confirmed by the agent, median", f"{statistics.median(confirmed) * 1000:.0f} ms")


def idle(node: Node) -> float:
    """Print the agent's share of a core while a client reads /state every 2 s and /metrics every 15 s."""
    assert node.keepalived
    daemons = process.children([node.keepalived.pid])
    before = _busy(daemons)
    share, taken = polled_share(node)
    row(f"idle, of a core, over {taken:.0f} s", f"{share:.2f} %", goal="under 0.5 %", met=share < 0.5)
    plain("  keepalived", f"{(_busy(daemons) - before) / taken * 100:.2f} %")
    return share


def listening(node: Node, client: Host, quiet: float) -> None:
    """Print how much more that is than *quiet* while *client* sends ARP packets, and what the kernel's filter costs."""
    with _script(client, _SENDER, ARP_RATE, 1 << 30):
        share, taken = polled_share(node)
    more = share - quiet
    what = f"{ARP_RATE:,} ARP packets a second on the segment, more than idle, over {taken:.0f} s"
    row(what, f"{more:+.3f} %", goal="under 0.2 %", met=more < 0.2)
    plain("  the filter in the kernel, a packet", f"{_filter_seconds(client, node.host) * 1e9:+.0f} ns")


def polled_share(node: Node) -> tuple[float, float]:
    """The agent's share of a core in percent while a client polls it, and over how many seconds."""
    assert node.agent
    before = _busy([node.agent.pid])
    began = time.perf_counter()
    polls = 0
    while (now := time.perf_counter() - began) < IDLE:
        due = {names.STATE_PATH: int(now / POLL), names.METRICS_PATH: int(now / SCRAPE)}
        _get(node, names.STATE_PATH)
        if polls % round(SCRAPE / POLL) == 0:
            _get(node, names.METRICS_PATH)
        polls = due[names.STATE_PATH] + 1
        time.sleep(max(0.0, polls * POLL - (time.perf_counter() - began)))
    taken = time.perf_counter() - began
    return (_busy([node.agent.pid]) - before) / taken * 100, taken


def memory(node: Node) -> None:
    """Print the resident memory of the agent, of a bare process and of keepalived."""
    assert node.agent and node.keepalived
    with _bare() as bare:
        plain(f"bare process with {LIBRARIES}", "")
        plain("  resident", f"{_resident(bare):.1f} MiB")
        agent = _resident(node.agent.pid)
        more = agent - _resident(bare)
    row("agent, above the bare process", f"{more:.1f} MiB", goal="at most 12 MB", met=more * 2**20 <= 12e6)
    plain("  resident", f"{agent:.1f} MiB")
    plain("  keepalived", f"{sum(map(_resident, process.children([node.keepalived.pid]))):.1f} MiB")


_SENDER: Final = """
import socket, sys, time
from kavip.agent.conflicts.packets import arp
from kavip.api.address import Address
rate, count = map(int, sys.argv[1:])
opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
opened.bind(("eth0", 0))
frames = [arp.announcement(Address(4, 0xC0000300 + each), source=bytes.fromhex("0200c0000263")) for each in range(250)]
print("up", flush=True)
began = time.perf_counter()
for number in range(count):
    opened.send(frames[number % 250])
    if rate and number % 10 == 9:
        time.sleep(max(0.0, number / rate - (time.perf_counter() - began)))
print(time.process_time())
"""
"""Sends ARP announcements of addresses that are no VIPs: so many a second, 0 for as fast as it can; and how many."""

_FILTER: Final = """
import sys
from kavip.agent.conflicts.packets import arp
from kavip.agent.conflicts.packets.filters import claims_by_arp
from kavip.agent.conflicts.sockets import packet_socket
from kavip.api.address import Address
vips = [Address(4, 0xC6120000 + 3 * number) for number in range(int(sys.argv[1]))]
with packet_socket("eth0", arp.ETHERTYPE, claims_by_arp(vips, own=[bytes.fromhex("0200c000020b")])):
    print("up", flush=True)
    sys.stdin.read()
"""
"""Listens for claims on so many VIPs."""


@contextmanager
def _script(host: Host, code: str, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    """A Python program in the network of *host*, which has printed that it is up; killed at the end."""
    command = host.command(sys.executable, "-c", code, *map(str, numbers))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout and started.stdout.readline() == "up\n"
        yield started
        started.kill()


def _filter_seconds(client: Host, host: Host) -> float:
    """
    How much CPU time a packet to *host* takes more if a socket there filters it: the least of several runs, each way.

    The sender's time counts: the kernel receives on a virtual cable in the call that sends.
    """

    def seconds() -> float:
        with _script(client, _SENDER, 0, FRAMES) as started:
            assert started.stdout
            return float(started.stdout.readline()) / FRAMES

    without, filtered = [], []
    for _ in range(RUNS):
        without.append(seconds())
        with _script(host, _FILTER, INSTANCES):
            filtered.append(seconds())
    return min(filtered) - min(without)


@contextmanager
def _bare() -> Iterator[int]:
    """A process that has imported the agent's libraries, and waits."""
    code = f"import {LIBRARIES}, sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout and started.stdin
        started.stdout.readline()
        yield started.pid
        started.stdin.close()


def _get(node: Node, path: str) -> bytes:
    """GET *path* from the agent, on its own node."""
    assert node.agent
    answer = node.host.exec("curl", "-sS", f"http://{node.host.ipv4}:{names.AGENT_PORT}{path}")
    return answer.stdout.encode()


def _lines(log: Path, what: bytes) -> int:
    return log.read_bytes().count(what)


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _busy(pids: Iterator[int] | set[int] | list[int]) -> float:
    """Seconds that the threads of *pids* have run."""
    threads = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in threads) / 1e9


def main(count: int = INSTANCES) -> None:
    """Print the rows."""
    with runs.temporary() as state, Segment(state, nodes=1) as segment:
        host = segment.nodes[0]
        node, data = Node(host, state / "node"), manifest(host, count)
        node.swap_mount(data)
        node.start()
        held = ["ip", "-o", "-4", "addr", "show", "dev", "eth0"]
        process.wait_for("every VIP is up", lambda: host.exec(*held).stdout.count("198.18.") == count, timeout=60)
        time.sleep(8)  # the second set of gratuitous ARPs is out
        reloads(node, data)
        listening(node, segment.client, idle(node))
        memory(node)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
