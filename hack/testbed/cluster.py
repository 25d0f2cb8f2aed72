"""A cluster: a control plane and nodes on one segment, with a client beside them. It needs root.

n0 runs the control plane and no pods; n1, n2, ... are nodes; `client` is a machine on the same segment that has
nothing of Kubernetes. Nodes, pods and Services have IPv4 and IPv6 addresses, unless one family alone is requested.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.testbed import dns, images, need, process
from hack.testbed.controlplane import ControlPlane
from hack.testbed.errors import TestbedError
from hack.testbed.flags import Address
from hack.testbed.node import Node, pod_routes
from hack.testbed.place import Result, run
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from hack.testbed.segment import BOTH, Host, Segment, numbered, port_of

SERVICES = ("10.96.0.0/16", "2001:db8:96::/112")
_ROOT = Path(__file__).parents[2]
STRANGER = 21
"""The number of a machine on the segment that is no node."""
_READY = 300.0  # seconds; 15 on four idle cores


class Cluster:
    """A running cluster. Use it as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        programs: Programs,
        state: Path,
        *,
        nodes: int = 3,
        images: Sequence[Path] = (),
        families: tuple[int, ...] = BOTH,
        with_dns: bool = False,
        kind: type[Node] = Node,
        proxy_mode: str = "nftables",
    ) -> None:
        """
        `images`: archives to load into every node, besides those of the testbed. `with_dns`: CoreDNS runs, too.
        `kind`: of the nodes. `proxy_mode`: how kube-proxy writes its rules.
        """
        self.state = state
        self._programs = programs
        self._images = images
        self.control = Host("n0", state / "n0", 0)
        self.nodes = tuple(kind(name, state / name, number, programs) for number, name in numbered(nodes))
        self._segment = Segment(state, nodes=0, others=[self.control, *self.nodes])
        self.bridge, self.client = self._segment.bridge, self._segment.client
        for host in self._segment.hosts:
            host.families = families
        self._route()
        services = ",".join(self.control.spoken(*SERVICES))
        self._dns = dns.addresses(services) if with_dns else ()
        for node in self.nodes:
            node.dns = self._dns
            node.proxy_mode = proxy_mode
        self.plane = ControlPlane(
            programs,
            state,
            address=Address(
                self.control.spoken(self.control.ipv4, self.control.ipv6)[0], 6443, 2379, 2380, services=services
            ),
            place=self.control,
            components=("kube-controller-manager", "kube-scheduler"),
        )
        self.audit = self.plane.audit
        self.kubeconfig = self.plane.kubeconfig

    @classmethod
    def attach(cls, programs: Programs, state: Path) -> Self:
        """A cluster that another process has started and left running."""
        found = cls(programs, state, nodes=sum(1 for _ in state.glob("n[1-9]*/machine.pid")))
        found._segment.attach()
        if not found.control.running:
            raise TestbedError(f"no cluster runs in {state}")
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything; return when every node is Ready."""
        need.namespaces("a cluster", need.CLUSTER)
        self._images = [images.pause(), images.web(), *self._images]
        try:
            self._segment.start()
            _together([self._start_plane, *(partial(self._prepare, node) for node in self.nodes)])
            _together([self._start_dns, *(partial(node.join, self.state) for node in self.nodes)])
            process.wait_for("every node is Ready", self._ready, timeout=_READY, interval=0.3)
        except BaseException:
            self.stop()
            raise
        self._write_wrappers()
        return self

    def stop(self) -> None:
        """End everything; the files stay until the run is removed."""
        self._segment.stop()  # the control plane runs in one of its machines

    @property
    def segment(self) -> Segment:
        """The machines and their network."""
        return self._segment

    def kubectl(
        self, *args: str, input: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> Result:
        """Run the real kubectl, as administrator unless another kubeconfig is given."""
        return self.plane.kubectl(*args, input=input, check=check, kubeconfig=kubeconfig)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply *objects* at once."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--filename=-", input=json.dumps(listed))

    def helm(self, *args: str, check: bool = True, timeout: float = 300) -> Result:
        """Run the real helm as administrator."""
        command = self.control.command(self._programs["helm"], f"--kubeconfig={self.kubeconfig}", *args)
        return run(command, check=check, timeout=timeout)

    def load(self, *archives: Path) -> None:
        """Import images into every node."""
        _together([partial(node.load, *archives) for node in self.nodes if node.running])

    def node(self, name: str) -> Node:
        """The node of that name."""
        found = next((node for node in self.nodes if node.name == name), None)
        if found is None:
            raise TestbedError(f"no node {name}; there are {', '.join(node.name for node in self.nodes)}")
        return found

    def stop_node(self, name: str) -> None:
        """Cut the power of a node: its link and all that runs on it, containers included, at once."""
        self._segment.power_off(self.node(name))

    def start_node(self, name: str) -> None:
        """Switch a node on again, with the disk that it had; its pods run again after ten seconds or so."""
        node = self.node(name)
        self._segment.power_on(node)
        node.start_runtime()
        node.join(self.state)

    @contextmanager
    def stranger(self, *addresses: str) -> Iterator[Host]:
        """Another machine on the segment, which is no node, with *addresses*, during the block."""
        host = Host("stranger", self.state / "stranger", STRANGER)
        self._segment.power_on(host)
        try:
            for each in addresses:
                host.exec("ip", "address", "add", f"{each}/24", "dev", "eth0")
            yield host
        finally:
            self._segment.power_off(host)

    def disconnect_node(self, name: str) -> None:
        """Take the link of a node down; `reconnect_node` ends this."""
        self._segment.disconnect(self.node(name))

    def reconnect_node(self, name: str) -> None:
        """End a `disconnect_node`."""
        self._segment.reconnect(self.node(name))

    def kill_in_node(self, name: str, process_name: str) -> list[Process]:
        """Send SIGKILL to every process of that name on a node, containers included; returns these processes."""
        return self.node(name).kill(process_name)

    def _start_plane(self) -> None:
        self.plane.start()
        self.plane.user("system:kube-proxy")
        for node in self.nodes:
            self.plane.user(f"system:node:{node.name}", "system:nodes")

    def _start_dns(self) -> None:
        if not self._dns:
            return
        config = self.state / "Corefile"
        config.write_text(dns.corefile(self.plane.user(dns.USER)))
        endpoints = self.control.spoken(self.control.ipv4, self.control.ipv6)
        for each in dns.objects(self._dns, endpoints):
            self.kubectl("apply", "--filename=-", input=json.dumps(each))
        self.control.spawn(self._programs["coredns"], f"-conf={config}", log=self.state / "coredns.log")

    def _prepare(self, node: Node) -> None:
        node.start_runtime()
        node.load(*self._images)

    def _ready(self) -> bool:
        path = "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Ready')].status}{'\\n'}{end}"
        found = self.kubectl("get", "nodes", "-o", path, check=False)
        return found.stdout.split().count("True") == len(self.nodes)

    def _route(self) -> None:
        """
        Set routes to the pods of other nodes, and a default route to n0: a packet to a Service address needs some
        route.
        """
        for host in (self.control, *self.nodes):
            pods = [route for other in self.nodes if other is not host for route in pod_routes(other.address)]
            out = (
                (f"via {self.control.ipv4}", f"via {self.control.ipv6}")
                if host is not self.control
                else ("dev eth0",) * 2
            )
            host.routes = (*pods, f"default {out[0]}", f"::/0 {out[1]}")

    def _write_wrappers(self) -> None:
        """
        Write programs that work from this machine.

        kubectl, kubectl-kavip and helm enter the network of n0 first; ``client COMMAND`` runs a command on the client;
        ``cable n1 down`` pulls the cable of a node, and ``cable n1 up`` plugs it in.
        """
        folder = self.state / "bin"
        folder.mkdir(exist_ok=True)
        kavip = [f"PYTHONPATH={_ROOT}", sys.executable, "-P", "-m", "kavip"]  # -P: not that of the current directory
        commands = {name: [self._programs[name]] for name in ("kubectl", "helm")} | {"kubectl-kavip": ["env", *kavip]}
        for name, command in commands.items():
            program = self.control.command(*command)
            lines = (
                "#!/bin/sh",
                f"export KUBECONFIG={shlex.quote(str(self.kubeconfig))}",
                f'exec {shlex.join(program)} "$@"',
            )
            _write_script(folder / name, *lines)
        client, bridge = shlex.join(self.client.command()), shlex.join(self.bridge.command("ip", "link", "set"))
        _write_script(folder / "client", "#!/bin/sh", f'exec {client} "$@"')
        _write_script(folder / "cable", "#!/bin/sh", f'exec {bridge} "{port_of("$1")}" "$2"')


def _write_script(path: Path, *lines: str) -> None:
    path.write_text("\n".join((*lines, "")))
    path.chmod(0o755)


def _together(tasks: Sequence[Callable[[], object]]) -> None:
    """Run tasks side by side; the first failure is raised when all have ended."""
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()
