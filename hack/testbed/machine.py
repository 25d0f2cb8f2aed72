"""
A machine made of namespaces: network, processes, mounts and host name of its own, on the real file system.

Everything in it descends from one process, its init. When init is killed, the kernel removes everything at once:
processes (containers included), interfaces, mounts. So a stop is a power cut, and nothing stays behind. Files are
shared with the real machine, with two exceptions: /run is empty, and writes below /var stay inside. The directory
`home` is the same everywhere.
"""

import shlex
import signal
from pathlib import Path
from typing import Protocol

from hack.testbed import process
from hack.testbed.errors import TestbedError
from hack.testbed.place import Result, run
from hack.testbed.process import Process

NETWORK = """
hostname "$name"
ip link set lo up
for scope in all default; do
  echo 0 >/proc/sys/net/ipv6/conf/$scope/accept_dad || true
  echo 1 >/proc/sys/net/ipv6/conf/$scope/forwarding || true
done
echo 1 >/proc/sys/net/ipv4/ip_forward
"""

# Runs as pid 1 of the machine. File descriptor 9 holds `home`, so that it can be put back should /var or /run hide it.
# With SIGCHLD ignored the kernel reaps orphans, and a process that exits is gone at once. A shell cannot pass that on:
# it has a handler of its own.
_BOOT = (
    """
set -e
name=$2
exec 9<"$1"
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir /run/.upper /run/.work
mount -t overlay -o lowerdir=/var,upperdir=/run/.upper,workdir=/run/.work overlay /var
mkdir -p "$1"
mount --rbind /proc/self/fd/9 "$1"
"""
    + NETWORK
    + "exec env --ignore-signal=CHLD sleep infinity 9<&-\n"
)
NAMESPACES = ("--net", "--mount", "--pid", "--uts")


class InitSystem(Protocol):
    """What boots a machine; its process has the *name* when the machine has booted."""

    @property
    def name(self) -> str:
        """As the kernel has it."""

    def command(self, name: str, home: Path) -> list[str]:
        """The command line that boots the machine *name*."""

    def is_up(self, machine: "Machine") -> bool:
        """Whether it takes orders on *machine*, which has booted."""


class Sleep:
    """An init that starts nothing."""

    name = "sleep"

    def command(self, name: str, home: Path) -> list[str]:
        """See :class:`InitSystem`."""
        isolate = ["unshare", "--fork", "--kill-child", *NAMESPACES, "--propagation=private", "--mount-proc"]
        return [*isolate, "sh", "-c", _BOOT, "sh", str(home), name]

    def is_up(self, _machine: "Machine") -> bool:
        """It takes none."""
        return True


class Machine:
    """One machine: on after `start`, off after `stop`; its `home` survives in between like a disk."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.init_system: InitSystem = Sleep()
        self._outer: Process | None = None  # the unshare that made it
        self._init: Process | None = None

    @property
    def init(self) -> int:
        """The pid of its init, as the real machine numbers it."""
        if self._init is None:
            raise TestbedError(f"machine {self.name} is off")
        return self._init.pid

    @property
    def netns(self) -> str:
        """The path of its network namespace."""
        return f"/proc/{self.init}/ns/net"

    @property
    def running(self) -> bool:
        """Whether it is on."""
        return self._init is not None and self._init.alive

    def start(self) -> None:
        """Switch it on."""
        self.home.mkdir(parents=True, exist_ok=True)
        log = self.home / "boot.log"
        log.unlink(missing_ok=True)
        self._outer = process.spawn(self.init_system.command(self.name, self.home), log=log)
        self._outer.record(self.home / "machine.pid")
        process.wait_for(f"machine {self.name} boots", lambda: self._booted(log), timeout=150, interval=0.005)
        up = f"{self.init_system.name} of {self.name} is up"
        process.wait_for(up, lambda: self.init_system.is_up(self), timeout=150, interval=0.02)
        if self._init:
            self._init.record(self.home / "init.pid")

    def attach(self) -> None:
        """Take over a machine that another process has started."""
        self._outer = process.recorded(self.home / "machine.pid")
        self._init = process.recorded(self.home / "init.pid")

    def stop(self) -> None:
        """Cut its power: everything in it ends at once."""
        ends = [one for one in (self._init, self._outer) if one]
        self._init = self._outer = None
        process.kill(ends)

    def command(self, *command: str) -> list[str]:
        """The command line that runs a command in its network only, outside its other namespaces."""
        return ["nsenter", f"--target={self.init}", "--net", "--", *command]

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in it; the command dies with the process that runs this line."""
        enter = ["nsenter", f"--target={self.init}", *NAMESPACES, "--", "setpriv", "--pdeathsig=KILL"]
        return [*enter, "env", f"--chdir={Path.cwd()}", *command]

    def exec(self, *command: str, input: str | None = None, check: bool = True, timeout: float = 120) -> Result:
        """Run a command in it to its end."""
        return run(self.inside(*command), input=input, check=check, timeout=timeout)

    def spawn(self, *command: str, log: Path) -> Process:
        """Start a long-running program in it as a child of its init."""
        background = f'setsid "$@" </dev/null >>{shlex.quote(str(log))} 2>&1 & echo $!'
        inner = int(run([*self.inside("sh", "-c", background, "sh", *command)]).stdout)
        # a process of a container has one number more, which may be the same
        started = next((one for one in self.processes() if _inner_pids(one.pid)[1:] == [inner]), None)
        if started is None:
            raise TestbedError(f"{command[0]} exited at once in {self.name}:\n{process.tail(log)}")
        return started

    def processes(self, name: str | None = None) -> list[Process]:
        """All processes in it, containers included; with a name, only those of that name."""
        family = sorted(process.children([self.init]) - {self.init})
        found = [process.find(pid) for pid in family if name is None or _name(pid) == name]
        return [one for one in found if one]

    def kill(self, name: str, number: int = signal.SIGKILL) -> list[Process]:
        """Send a signal to every process in it of this name; returns these processes."""
        return [one for one in self.processes(name) if one.signal(number)]

    def _booted(self, log: Path) -> bool:
        """Whether init has finished its script: then it has another name."""
        if self._outer is None or not self._outer.alive:
            raise TestbedError(f"machine {self.name} does not boot: {process.tail(log)}")
        offspring = process.children([self._outer.pid]) - {self._outer.pid}
        self._init = next((process.find(pid) for pid in offspring if _name(pid) == self.init_system.name), None)
        return self._init is not None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _inner_pids(pid: int) -> list[int]:
    """The pid of a process as each of its process namespaces numbers it, outermost first."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return next(([int(word) for word in line.split()[1:]] for line in lines if line.startswith("NSpid:")), [])
