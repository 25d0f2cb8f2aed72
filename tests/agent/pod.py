"""
A pod of the DaemonSet on a machine of the testbed: the real agent beside the real keepalived.

Both run as root with the capabilities that the controller gives them, cannot gain more, and see each other's processes.
"""

import ctypes
import json
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from hack.testbed import process
from hack.testbed.process import Process
from hack.testbed.segment import Host
from kavip import names
from kavip.reconcile.rollout.configmap import secret_folder
from tests.agent.mounts import Mount
from tests.vrrp.livedaemons import BEFORE_OTHERS, GRACE

PATIENCE = 120.0
"""Seconds for what takes one: the machine that runs the tests may be busy."""

_RIGHTS = ("setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all", "--no-new-privs")
_CLONE_NEWNET = 0x40000000
_RUNNING = ('"running":true', "keepalived_up 1.0")

T = TypeVar("T")


def enter(netns: str) -> None:
    """Enter a network namespace with this thread alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(netns, "rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def entered(netns: str, work: Callable[[], T]) -> T:
    """The result of *work* in another network namespace, which only its thread enters."""

    def inside() -> T:
        enter(netns)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()


def connected(netns: str, host: str, port: int) -> socket.socket:
    """A connection that is opened in another network namespace."""
    return entered(netns, lambda: socket.create_connection((host, port), timeout=10))


def kill_together(pids: Iterable[int]) -> None:
    """Kill processes that supervise each other, so that none cleans up for another or restarts it."""
    family = [one for pid in pids if (one := process.find(pid))]
    for one in family:
        one.signal(signal.SIGSTOP)
    process.kill(family)


class Pod:
    """
    Mounts, run directory and the two containers.

    *flags* are the agent's; *agent_program* runs it; *frame* is a command that runs the command of each container.
    """

    def __init__(self, host: Host, folder: Path, *, keepalived: str = "/usr/sbin/keepalived") -> None:
        self.host, self.folder, self.keepalived_program = host, folder, keepalived
        self.config = Mount(folder / "config")
        self.password, self.passwords = folder / "password", folder / "passwords"
        self.passwords.mkdir(parents=True)
        memory = host.home / f"pod-{time.monotonic_ns()}"  # as emptyDir with the medium Memory
        self.run_dir = memory / "run"
        self.run_dir.mkdir(parents=True)
        self.agent_log = memory / "agent.log"
        self.keepalived_log = memory / "keepalived.log"
        self.port = names.AGENT_PORT
        self.frame: tuple[str, ...] = ()
        self.flags: tuple[str, ...] = ()
        self.agent_program: tuple[str, ...] = (sys.executable, "-m", "kavip")
        self.agent: Process | None = None
        self.keepalived: Process | None = None

    # --- containers ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Run the init container; raises unless it succeeds."""
        done = self.host.exec(*self.frame, *_RIGHTS, *self._agent_command("--once"))
        with self.agent_log.open("a") as log:
            log.write(done.stderr)

    def start_agent(self) -> None:
        """Start the agent's container, and wait until it answers."""
        command = (*BEFORE_OTHERS, *self.frame, *_RIGHTS, *self._agent_command())
        self.agent = self.host.spawn(*command, log=self.agent_log)
        self.wait_until("the agent answers", lambda: self.get(names.STATE_PATH)[0] == 200)

    def start_keepalived(self) -> Process:
        """Start keepalived's container, as kubelet does it again and again."""
        command = (
            "/usr/sbin/keepalived -n -l -P -B"
            f" --use-file={self.run_dir}/keepalived.conf --config-id={self.host.name}"
            f" --pid={self.run_dir}/keepalived.pid --vrrp_pid={self.run_dir}/vrrp.pid"
        )
        environment = (*BEFORE_OTHERS, "env", f"TMPDIR={self.run_dir}", *self.frame)
        self.keepalived = self.host.spawn(*environment, *_RIGHTS, *command.split(), log=self.keepalived_log)
        return self.keepalived

    def start(self) -> None:
        """Start all containers, in kubelet's order."""
        self.prepare()
        self.start_keepalived()
        self.start_agent()

    def kill_keepalived(self) -> None:
        """Kill keepalived with all its processes."""
        if self.keepalived:
            kill_together(process.children([self.keepalived.pid]))
        self.keepalived = None

    def kill_agent(self) -> None:
        """Kill the agent."""
        process.kill([self.agent] if self.agent else [])
        self.agent = None

    def replace(self) -> None:
        """Empty the run directory, as a new pod finds it."""
        shutil.rmtree(self.run_dir)
        self.run_dir.mkdir()

    def stop(self) -> None:
        """Stop what runs, keep its logs, and remove its addresses: the machine is used again."""
        self.kill_agent()
        if self.keepalived:
            process.stop([self.keepalived], grace=GRACE)
        self.host.exec("ip", "addr", "flush", "dev", "eth0", "to", "192.0.2.128/25")
        self.host.exec("ip", "-6", "addr", "flush", "dev", "eth0", "to", "2001:db8:2::100/120")
        for log in (self.agent_log, self.keepalived_log):
            if log.exists():
                shutil.copy(log, self.folder)

    def mount_password(self, secret: str, **keys: str) -> None:
        """Mount the Secret with these keys, or change it."""
        (folder := self.passwords / secret_folder(secret)).mkdir(exist_ok=True)
        for key, password in keys.items():
            (folder / f".{key}").write_text(password)
            (folder / f".{key}").replace(folder / key)

    # --- what it says -------------------------------------------------------------------------------------------------

    def get(self, path: str, *, source: Host | None = None, header: str = "") -> tuple[int, str]:
        """Status and body of one page, requested on the node or on *source*; status 0 without an answer."""
        answer = b""
        try:
            with connected((source or self.host).netns, self.host.ipv4, self.port) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\n{header}\r\n".encode())
                while chunk := connection.recv(65536):
                    answer += chunk
        except OSError:
            return 0, ""
        head, _, body = answer.decode().partition("\r\n\r\n")
        return int(head.split()[1]) if head else 0, body

    def page(self, path: str, *, header: str = "") -> tuple[int, str]:
        """Status and body of one page, once the agent answers: on a busy machine it may abort a request."""
        found: list[tuple[int, str]] = []

        def is_answered() -> bool:
            found[:] = [self.get(path, header=header)]
            return found[0][0] != 0

        self.wait_until(f"{path} is answered", is_answered)
        return found[0]

    def state(self) -> dict[str, Any]:
        """The agent's ``/state``, with keepalived's instances if it runs."""
        found: dict[str, Any] = json.loads(self.answered(names.STATE_PATH))
        return found

    def instances(self) -> dict[str, dict[str, Any]]:
        """The instances in ``/state``, by name."""
        return {each["name"]: each for each in self.state()["instances"]}

    def role(self, name: str) -> str:
        """The state of an instance in ``/state``; "" before keepalived reports it."""
        return str(self.instances().get(name, {}).get("state", ""))

    def transitions(self) -> dict[str, tuple[int, ...]]:
        """How often each instance became master and stopped being master, by keepalived's counters."""
        found: dict[str, list[int]] = {}
        for family in text_string_to_metric_families(self.answered(names.METRICS_PATH)):
            if family.name in ("keepalived_vrrp_become_master", "keepalived_vrrp_release_master"):
                for sample in family.samples:
                    found.setdefault(sample.labels["name"], []).append(int(sample.value))
        return {name: tuple(counts) for name, counts in found.items()}

    def addresses(self) -> set[str]:
        """Every address on eth0."""
        interfaces = json.loads(self.host.exec("ip", "-json", "address", "show", "dev", "eth0").stdout)
        return {each["local"] for each in interfaces[0]["addr_info"]}

    def all_addresses(self) -> set[str]:
        """Every address on every interface."""
        interfaces = json.loads(self.host.exec("ip", "-json", "address").stdout)
        return {each["local"] for interface in interfaces for each in interface.get("addr_info", ())}

    def masters(self) -> set[str]:
        """The instances that are master on this node."""
        return {name for name, each in self.instances().items() if each["state"] == "MASTER"}

    def daemon_reloads(self) -> int:
        """How often keepalived's processes logged a reload."""
        return self.keepalived_log.read_text(errors="replace").count("Reloading")

    def logs(self) -> str:
        """The end of both containers' logs."""
        return "\n".join(process.tail(log, 400) for log in (self.agent_log, self.keepalived_log))

    def answered(self, path: str) -> str:
        """A page with keepalived's answer if it runs; on a busy machine one of the two may be late."""
        bodies: list[str] = []

        def answered() -> bool:
            status, body = self.get(path)
            bodies[:] = [body]
            has_answer = any(sign in body for sign in _RUNNING) or not (self.keepalived and self.keepalived.alive)
            return status == 200 and has_answer

        self.wait_until(f"{path} answers", answered)
        return bodies[0]

    # --- waiting ------------------------------------------------------------------------------------------------------

    def runs(self, config_hash: str) -> None:
        """Wait until keepalived runs the configuration with that hash."""
        self.wait_until(f"configuration {config_hash} runs", lambda: self.state()["configHash"] == config_hash)

    def refuses(self, config_hash: str) -> str:
        """Wait until the agent refuses the configuration with that hash; the message."""
        self.wait_until(
            f"configuration {config_hash} is refused",
            lambda: self.state()["wantedHash"] == config_hash and self.state()["refused"] != "",
        )
        return str(self.state()["refused"])

    def lives(self) -> None:
        """Wait until the liveness probe succeeds; on a busy machine keepalived may be late."""
        self.wait_until("it is alive", lambda: self.get(names.LIVE_PATH)[0] == 200)

    def wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for *ready*; a failure shows the logs."""
        try:
            process.wait_for(f"{self.host.name}: {what}", ready, timeout=PATIENCE)
        except Exception as error:  # raised again with the logs
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def _agent_command(self, *flags: str) -> tuple[str, ...]:
        return (
            *(*self.agent_program, "agent", *flags),
            f"--node-name={self.host.name}",
            f"--node-ip={self.host.ipv4}",
            f"--config-dir={self.config.path}",
            f"--password-file={self.password}",
            f"--password-dir={self.passwords}",
            f"--run-dir={self.run_dir}",
            f"--keepalived={self.keepalived_program}",
            f"--port={self.port}",
            *self.flags,
        )
