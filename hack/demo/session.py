"""
A user's session on a cluster: runs commands, prints each before its output, and records claims and their results.

A claim that does not hold is printed at once and again in the summary; the demo continues, so one run shows all.
"""

import json
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.demo import prober
from hack.testbed.cluster import Cluster
from hack.testbed.node import Node
from hack.testbed.place import Result, run
from hack.testbed.process import Process, wait_for
from kavip import names

MANIFESTS = Path(__file__).parent / "manifests"
AGENT_PORT = 9651  # of the demo's group
PATIENCE = 240.0  # seconds; on an idle machine one or two are enough


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the demo, and whether it holds."""

    text: str
    holds: bool
    detail: str = ""
    timed: bool = False  # a duration: it may not hold on a busy machine


@dataclass(slots=True)
class Outage:
    """
    What a client saw of a VIP: *silence* is the longest time without an answer, in seconds; *moved*: to a node.

    *problems*: how often each problem was the reason of a lost request (:class:`~hack.demo.prober.Answer`).
    """

    silence: float = 0.0
    requests: int = 0
    first_answer: float | None = None
    moved: bool = False
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """The number of lost requests."""
        return self.problems.total()

    def __str__(self) -> str:
        where = "the VIP moved" if self.moved else "the VIP stayed"
        why = "".join(f"; {count} x {problem}" for problem, count in sorted(self.problems.items()))
        return f"{self.failed} of {self.requests} requests lost, {self.silence:.2f} s without an answer, {where}{why}"


@dataclass(slots=True)
class Session:
    """One run on one *cluster*, its claims and figures."""

    cluster: Cluster
    claims: list[Claim] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    # --- output ---------------------------------------------------------------------------------------------------
    def title(self, text: str) -> None:
        """Print a heading."""
        print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)

    def claim(self, text: str, holds: bool, detail: str = "", *, timed: bool = False) -> bool:
        """Record *text* and whether it *holds*; return the latter."""
        self.claims.append(Claim(text, holds, detail, timed))
        print(f"   {'ok ' if holds else 'NOT'} {text}{f' ({detail})' if detail else ''}", flush=True)
        return holds

    def figure(self, name: str, value: str) -> None:
        """A number for the summary."""
        self.figures[name] = value
        print(f"   --> {name}: {value}", flush=True)

    def summary(self) -> bool:
        """Print the figures and the claims that do not hold; return whether all hold."""
        self.title("Summary")
        for name, value in self.figures.items():
            print(f"   {name}: {value}")
        broken = [claim for claim in self.claims if not claim.holds]
        print(f"   {len(self.claims) - len(broken)} of {len(self.claims)} claims hold")
        for claim in broken:
            print(f"   NOT {claim.text} {claim.detail}")
        return not broken

    # --- commands -------------------------------------------------------------------------------------------------
    def kubectl(self, *args: str, check: bool = True) -> Result:
        """Run kubectl; print the command and its output."""
        return self._shown("kubectl", args, self.cluster.kubectl(*args, check=check))

    def helm(self, *args: str) -> Result:
        """Run Helm; print the command and its output."""
        return self._shown("helm", args, self.cluster.helm(*args))

    def kavip(self, *args: str) -> Result:
        """Run kavip in a shell that reaches the cluster; print the command and its output."""
        return self._shown("kavip", args, self.ask_kavip(*args))

    def ask_kavip(self, *args: str) -> Result:
        """The same, not printed."""
        command = self.cluster.control.command(sys.executable, "-m", "kavip", *args)
        return run(command, check=False, env={"KUBECONFIG": str(self.cluster.kubeconfig)})

    def _shown(self, program: str, args: tuple[str, ...], done: Result) -> Result:
        root = Path.cwd()
        words = [word.replace(f"{root}/", "") for word in args]
        print(f"$ {shlex.join([program, *words])}")
        for line in (done.stdout + done.stderr).rstrip().splitlines():
            print(f"  {line}")
        sys.stdout.flush()
        return done

    def get(self, *args: str) -> Any:
        """The output of ``kubectl get ... -o json``, not printed; None if there is no object."""
        done = self.cluster.kubectl("get", *args, "-o", "json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, text: str, condition: Callable[[], object], *, patience: float = PATIENCE) -> float:
        """Wait until *condition* is true and claim *text*; return the seconds that it took."""
        began = time.monotonic()
        while not (holds := bool(condition())) and time.monotonic() - began < patience:
            time.sleep(0.1)
        took = time.monotonic() - began
        self.claim(text, holds, f"{took:.1f} s")
        return took

    # --- observations ---------------------------------------------------------------------------------------------
    def condition(self, kind: str, key: str, name: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition of an object ``ns/name``; empty strings if it has none."""
        namespace, _, own = key.rpartition("/")
        found = self.get(kind, own, *(["-n", namespace] if namespace else [])) or {}
        for entry in found.get("status", {}).get("conditions", []):
            if entry["type"] == name:
                return entry["status"], entry["reason"], entry["message"]
        return "", "", ""

    def address(self, key: str) -> str:
        """The first address in the status of a Service, or ""."""
        return next(iter(self.addresses(key)), "")

    def addresses(self, key: str) -> list[str]:
        """The addresses in the status of a Service."""
        namespace, _, name = key.rpartition("/")
        found = self.get("service", name, "-n", namespace) or {}
        return [str(entry["ip"]) for entry in found.get("status", {}).get("loadBalancer", {}).get("ingress") or ()]

    def holders(self, address: str) -> list[Node]:
        """The nodes that have *address* on an interface now."""
        return [node for node in self.cluster.nodes if node.running and _holds(node, address)]

    def holder(self, address: str) -> Node:
        """Wait until exactly one node has *address*; return the node."""
        found: list[Node] = []

        def is_one() -> bool:
            found[:] = self.holders(address)
            return len(found) == 1

        wait_for(f"one node has {address}", is_one, timeout=PATIENCE)
        return found[0]

    def daemons(self, node: Node) -> list[Process]:
        """The keepalived processes on *node*, by the file that they run: they may rename themselves."""
        return [one for one in node.processes() if _program(one.pid) == "keepalived"]

    def answers(self, address: str) -> str:
        """What the client gets from ``http://ADDRESS/``, or ""."""
        host = f"[{address}]" if ":" in address else address
        command = [sys.executable, "-m", "hack.demo.prober", "--once", f"http://{host}/"]
        done = subprocess.run(self.cluster.client.command(*command), capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    @contextmanager
    def measure_outage(self, address: str) -> Iterator[Outage]:
        """Let the client send a request to the VIP every 20 ms during the block, each on a new connection."""
        outage, before = Outage(), self._masterships(address)
        command = [sys.executable, "-m", "hack.demo.prober", f"http://{address}/"]
        process = subprocess.Popen(
            self.cluster.client.command(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield outage
        finally:
            output, _ = process.communicate("", timeout=120)
            results = json.loads(output)
            answers: list[tuple[float, float | None]] = [(sent, took) for sent, took, _ in results]
            outage.problems.update(problem for _, took, problem in results if took is None)
            outage.silence = prober.longest_silence(answers)
            outage.requests = len(answers)
            outage.first_answer = next((sent + took for sent, took in answers if took is not None), None)
            outage.moved = self._masterships(address) != before

    def _masterships(self, address: str) -> list[tuple[str, int]]:
        """The number of transitions of the instance with *address*, on each node that answers."""
        return [
            (node.name, each["transitions"])
            for node in self.cluster.nodes
            for each in (self.state(node) if node.running else {}).get("instances", ())
            if address in each["virtualIPs"]
        ]

    def state(self, node: Node) -> dict[str, Any]:
        """The ``/state`` of the agent of the demo's group on *node*; empty if it does not answer."""
        done = self.cluster.control.exec("curl", "--silent", "--max-time", "5", state_url(node), check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def state_url(node: Node) -> str:
    """The URL of ``/state`` of the agent of the demo's group on *node*."""
    return f"http://{node.ipv4}:{AGENT_PORT}{names.STATE_PATH}"


def _holds(node: Node, address: str) -> bool:
    found = node.exec("ip", "-o", "addr", "show", "to", address, check=False)
    return address in found.stdout


def _program(pid: int) -> str:
    """The file name of the program that *pid* runs; "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
