"""Advertised and ``kubectl kavip status``, with a real API server, the controller and fake agents."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest
import yaml

from hack.testbed.controlplane import ControlPlane
from tests.app.conftest import ROOT, Installation, a_group, a_pool, a_service, free_port, wait_for
from tests.app.fakeagents import FakeAgents
from tests.app.test_explain import kubectl_kavip, let_list

pytestmark = pytest.mark.apiserver

HELD = r"n2 +yes +10 "
NAMES = [f"s{number}" for number in range(1, 11)]


def reported(installation: Installation, name: str = "s1") -> tuple[str, str]:
    """Reason and message of Advertised."""
    found = installation.condition(name, "kavip.io/Advertised")
    return found.get("reason", ""), found.get("message", "")


def advertised(installation: Installation) -> dict[str, tuple[str, str]]:
    """Reason and message of Advertised of every Service that has it, without the address."""
    found = {}
    for service in installation.get("services", "-n", "shop")["items"]:
        for each in service["status"].get("conditions", []):
            if each["type"] == "kavip.io/Advertised":
                found[service["metadata"]["name"]] = each["reason"], each["message"].partition(" holds ")[0]
    return found


def held(installation: Installation) -> tuple[set[str], int]:
    """The nodes that hold the VIPs of the group, and how many run its configuration."""
    found = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]
    return {each.get("node", "") for each in found.get("instances", [])}, found["nodes"]["current"]


def wait_for_all(installation: Installation, reason: str, node: str) -> None:
    """Wait until every Service has this condition."""
    expected = dict.fromkeys(NAMES, (reason, node))
    wait_for(f"{reason} {node}", lambda: advertised(installation) == expected)


@contextmanager
def typed(installation: Installation, log: Path, *command: str) -> Iterator[Callable[[], list[str]]]:
    """Run a command in the background; return a function that gives its lines."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(installation.plane.kubeconfig)}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        try:
            yield lambda: log.read_text().splitlines()
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()
            process.wait(timeout=60)


@contextmanager
def writes(installation: Installation, log: Path, kind: str, namespace: str) -> Iterator[Callable[[], int]]:
    """Counts the events of a watch on objects of *kind*; each write of an existing object is one line."""
    program, _ = installation.plane.kubectl_command()
    count = len(installation.get(kind, "-n", namespace)["items"])
    with typed(installation, log, program, "get", kind, "-n", namespace, "--watch", "-o", "name") as lines:
        wait_for(f"the watch of {kind}", lambda: len(lines()) >= count)
        yield lambda: len(lines()) - count


def wait_for_stable_counts(*counts: Callable[[], int]) -> list[int]:
    """The counts, once nothing has been written for longer than a probe interval."""
    found = [count() for count in counts]
    while True:
        time.sleep(3)
        before, found = found, [count() for count in counts]
        if found == before:
            return found


def test_a_fail_over_is_one_write_for_each_service(installation: Installation, tmp_path: Path) -> None:
    """From the first master to a split brain; `kavip status` shows it, and its watch prints the changes."""
    with FakeAgents(installation) as agents:
        # with long intervals no VIP seems to lack a master on a machine that stalls for seconds
        edge = a_group("edge", default=True, metricsPort=agents.port, advertIntervalMilliseconds=3000)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        replica = installation.start(webhook=False)
        installation.apply(*(a_service(name) for name in NAMES))
        agents.masters = {"n1"}
        agents.run(NAMES)
        wait_for_all(installation, "Master", "node n1")
        with (
            writes(installation, tmp_path / "services", "services", "shop") as services,
            writes(installation, tmp_path / "groups", "keepalivedgroups", "lb") as groups,
            typed(installation, tmp_path / "watch", sys.executable, "-m", "kavip", "status", "--watch") as view,
        ):
            wait_for("the first view", lambda: any(line.startswith("n1 ") for line in view()))
            wait_for(
                "the group reports the holders",
                lambda: held(installation) == ({"n1"}, 2),
                details=lambda: held(installation),
            )
            before = wait_for_stable_counts(services, groups)
            agents.masters = set()
            time.sleep(0.5)  # a gap of the default profile
            agents.masters = {"n2"}
            wait_for_all(installation, "Master", "node n2")
            wait_for(
                "the group reports the holders",
                lambda: held(installation) == ({"n2"}, 2),
                details=lambda: held(installation),
            )
            wait_for("the watch sees it", lambda: any(re.match(HELD, line) for line in view()), details=view)
            after = wait_for_stable_counts(services, groups)
            assert after[0] - before[0] == len(NAMES)
            assert after[1] - before[1] == 1
            assert not [line for line in view() if "NoMaster" in line or "kavip:" in line]
        status_is_shown(installation, tmp_path)

        agents.masters = {"n1", "n2"}
        wait_for("split brain", lambda: reported(installation)[0] == "SplitBrain")
        assert " is held by nodes n1, n2 at once" in reported(installation)[1]
        name = 'kavip_services_advertised{group="lb/edge",reason="SplitBrain"}'
        wait_for("the metric", lambda: replica.metric(name) == len(NAMES))
        agents.masters, agents.silent = {"n2"}, {"n1"}
        wait_for_all(installation, "Master", "node n2")
        wait_for("n1 is silent", lambda: replica.metric('kavip_agents{group="lb/edge",state="silent"}') == 1)
        assert replica.metric('kavip_agent_looks_total{result="unanswered"}') > 0


def status_is_shown(installation: Installation, tmp_path: Path) -> None:
    """In every format; a user needs the right to list four kinds, and may be limited to one namespace."""
    done = kubectl_kavip(tmp_path, installation, "kavip", "status")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["ADDRESS", "SERVICE", "GROUP", "POOL", "NODE", "STATE", "MESSAGE"]
    assert lines[1].split() == ["192.0.2.128", lines[1].split()[1], "lb/edge", "edge", "n2", "Master"]
    assert "\x1b" not in done.stdout
    found = yaml.safe_load(kubectl_kavip(tmp_path, installation, "kavip", "status", "-o", "yaml").stdout)
    assert [each["node"] for each in found["virtualIPs"]] == ["n2"] * 10
    assert [(each["node"], each["virtualIPs"]) for each in found["nodes"]] == [("n1", 0), ("n2", 10)]
    for resource, group in (("vippools", "kavip.io"), ("keepalivedgroups", "redhatcop.redhat.io")):
        let_list(installation, "clara", group, resource)
    let_list(installation, "clara", "", "services", namespace="shop")
    few = kubectl_kavip(tmp_path, installation, "kavip", "status", "-n", "shop", user="clara")
    assert (
        few.returncode == 0 and len(few.stdout.splitlines()) == len(lines) - 1
    )  # a node that holds nothing is not shown
    assert few.stderr.splitlines() == [
        "kavip: you may not list nodes of the whole cluster: nodes that hold no VIP are not shown",
        "kavip: you may not list services of the whole cluster: only those of namespace shop are shown",
    ]
    none = kubectl_kavip(tmp_path, installation, "kavip", "status", "-n", "other", user="dora")
    assert none.returncode == 2 and len(none.stderr.splitlines()) == 1
    dump = tmp_path / "cluster.yaml"
    dump.write_text(
        installation.plane.kubectl("get", "services,vippools,keepalivedgroups,nodes", "-A", "-o", "yaml").stdout
    )
    assert kubectl_kavip(tmp_path, installation, "kavip", "status", "-f", str(dump)).stdout == done.stdout


class Relay:
    """A TCP relay to the API server that a test opens and closes."""

    def __init__(self, plane: ControlPlane) -> None:
        """:meth:`open` starts to listen."""
        config = yaml.safe_load(plane.kubeconfig.read_text())
        self._cluster = config["clusters"][0]["cluster"]
        found = urlsplit(self._cluster["server"])
        self._server = found.hostname or "", found.port or 443
        self.port = free_port()
        self._cluster |= {"server": f"https://127.0.0.1:{self.port}", "tls-server-name": self._server[0]}
        self.kubeconfig = config
        self._lock = Lock()
        self._listening: socket.socket | None = None
        self._open: set[socket.socket] = set()

    def open(self) -> None:
        """Accept connections."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        """Accept no connection, and close the open ones: those, too, that were accepted a moment ago."""
        with self._lock:
            ended = [*self._open, *([self._listening] if self._listening else [])]
            self._listening, self._open = None, set()
        for each in ended:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            each.close()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                Thread(target=self._pass, args=(listening, near), daemon=True).start()

    def _pass(self, listening: socket.socket, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._server) as far:
            with self._lock:
                if self._listening is not listening:
                    return
                self._open |= {near, far}
            back = Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes from *source* until one of both ends."""
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_the_watch_survives_the_loss_of_the_api_server(installation: Installation, tmp_path: Path) -> None:
    """The last state stays, one line says that it may be old, and changes after the outage are printed."""
    installation.apply(a_pool("edge", "192.0.2.128/25"))
    relay = Relay(installation.plane)
    relay.open()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(relay.kubeconfig))
    command = (sys.executable, "-m", "kavip", "status", "--watch", f"--kubeconfig={kubeconfig}")
    with typed(installation, tmp_path / "watch", *command) as lines:
        wait_for("the first view", lambda: any(line.startswith("edge ") for line in lines()))
        relay.close()
        wait_for("the output has the error", lambda: any("the API server does not answer" in line for line in lines()))
        installation.apply(a_pool("later", "198.51.100.0/28"))
        relay.open()
        wait_for("the end of it", lambda: any(line == "kavip: the API server answers again" for line in lines()))
        wait_for("what came meanwhile", lambda: any(line.startswith("later ") for line in lines()))
    errors = [line for line in lines() if line.startswith("kavip: ")]
    assert len(errors) == 2
    times = [line for line in lines() if re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", line)]
    assert len(times) == len([line for line in lines() if line.startswith("ADDRESS ")])  # each view has its time
    relay.close()
