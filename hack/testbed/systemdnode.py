"""
A node whose init is systemd: containerd, kubelet and kube-proxy are units, ordered as distributions order them.

`power_off` of the segment is still a power cut; `systemctl poweroff` in the node is a shutdown.
"""

import shlex
from pathlib import Path
from typing import Final

from hack.testbed import process
from hack.testbed.errors import TestbedError
from hack.testbed.node import Node
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from hack.testbed.systemd import UNITS, Systemd

AFTER: Final = {
    "containerd": "network.target local-fs.target dbus.service",
    "kubelet": "network-online.target containerd.service",
    "kube-proxy": "network-online.target",
}
"""The units of a node, and what starts before each and stops after it."""

# KillMode: the containers outlive containerd, as Debian's unit and that of the project have it.
_UNIT: Final = """[Unit]
Wants=network-online.target
After={after}

[Service]
ExecStart={command}
StandardOutput=append:{log}
StandardError=inherit
KillMode=process
Delegate=yes
"""


class SystemdNode(Node):
    """A :class:`Node` on systemd."""

    def __init__(self, name: str, home: Path, number: int, programs: Programs) -> None:
        super().__init__(name, home, number, programs)
        self.init_system = Systemd()

    def spawn(self, *command: str, log: Path) -> Process:
        """Start a program of the node as a unit, any other as a child of init."""
        name = Path(command[0]).name
        if name not in AFTER:
            return super().spawn(*command, log=log)
        unit = _UNIT.format(after=AFTER[name], command=shlex.join(["/usr/bin/env", *command]), log=log)
        self.write_unit(name, unit)
        self.exec("systemctl", "restart", name)
        pid = self.exec("systemctl", "show", "--property=MainPID", "--value", name).stdout
        process.wait_for(f"{name} on {self.name}", lambda: bool(self.processes(name)), timeout=60)
        started = next(iter(self.processes(name)), None)
        if started is None:
            raise TestbedError(f"{name} (pid {pid}) exited at once in {self.name}:\n{process.tail(log)}")
        return started

    def write_unit(self, name: str, text: str) -> None:
        """Write a unit and let systemd read it."""
        self.exec("sh", "-c", f'cat >"/{UNITS}/{name}.service" && systemctl daemon-reload', input=text)
