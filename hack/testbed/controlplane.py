"""A control plane: etcd and kube-apiserver (and kube-controller-manager if requested), ready in a few seconds.

By default it listens on loopback, on ports that were free a moment ago; when another program takes one in between, it
starts again on others. It needs no root. A cluster runs the same thing inside a machine of its own.
"""

import functools
import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.testbed import audit, flags, process
from hack.testbed.audit import AuditLog
from hack.testbed.certs import Authority, private_key, write_private
from hack.testbed.errors import TestbedError
from hack.testbed.flags import Address
from hack.testbed.place import Here, Place, Result, run
from hack.testbed.process import Process
from hack.testbed.programs import Programs

CONTROLLERS = "kube-controller-manager"
ADMINS = ("system:masters",)
_READY = 150.0  # seconds; two on an idle machine
_ATTEMPTS = 5


class ControlPlane:
    """A running Kubernetes API. Use it as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        programs: Programs,
        state: Path,
        *,
        address: Address | None = None,
        place: Place | None = None,
        components: Sequence[str] = (),
        policy: Mapping[str, Any] = audit.POLICY,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        """
        `components`: kube-controller-manager and kube-scheduler run if they are named here.

        Without the former nothing fills the roles view, edit and admin, makes EndpointSlices or collects garbage.
        `policy`: the audit policy. `apiserver_flags`: further flags of the API server.
        """
        self.state = state
        self.kubeconfig = state / "admin.kubeconfig"
        self.audit = AuditLog(state / "audit.log")
        self._programs = programs
        self._wanted = address or Address()
        self._place = place or Here()
        self._components = components
        self._policy = policy
        self._further_flags = tuple(apiserver_flags)
        self.address = self._wanted
        self._processes: dict[str, Process] = {}

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address.authority}"

    @functools.cached_property
    def authority(self) -> Authority:
        """The authority that signs the certificates of this control plane and its users."""
        return Authority(self.state)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything and return when the API server is ready."""
        self.state.mkdir(parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            self.address = self._wanted.chosen()
            self._write_files()
            try:
                self._launch()
                return self
            except _PortTaken:
                self.stop()
            except BaseException:
                self.stop()
                raise
        raise TestbedError(f"no free port found in {_ATTEMPTS} attempts; see {self.state}/*.log")

    def stop(self) -> None:
        """End all processes; the files stay, so that the logs can be read."""
        clients = [self._processes.pop(name) for name in list(self._processes) if name != "etcd"]
        process.stop(clients, grace=2)
        process.kill(self._processes.values())  # etcd last and at once: its data are not needed any more
        self._processes.clear()

    def user(self, name: str, *groups: str) -> Path:
        """The kubeconfig of a user of that name; RBAC objects decide the user's rights."""
        file = self.state / f"{name.replace(':', '-')}.kubeconfig"
        write_private(file, self.authority.kubeconfig(self.server, name, groups).encode())
        return file

    def kubectl(
        self, *args: str, input: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> Result:
        """Run the real kubectl, as administrator unless another kubeconfig is given."""
        return run(self.kubectl_command(*args, kubeconfig=kubeconfig), input=input, check=check)

    def kubectl_command(self, *args: str, kubeconfig: Path | None = None) -> list[str]:
        """The command line of `kubectl`, for a caller that wants to run it itself."""
        config = str(kubeconfig or self.kubeconfig)
        return self._place.command(self._programs["kubectl"], f"--kubeconfig={config}", *args)

    def wait_established(self) -> None:
        """
        Wait until every CRD is established and served: a kind is established first and served later.

        `kubectl wait` gives up on a CRD that has no conditions yet.
        """
        waiting = ("wait", "--for=condition=Established", "--timeout=10s", "crd", "--all")
        naming = ("get", "crd", "--output=jsonpath={.items[*].metadata.name}")

        def established() -> bool:
            return self.kubectl(*waiting, check=False).returncode == 0

        def served() -> bool:
            kinds = ",".join(self.kubectl(*naming).stdout.split())
            return self.kubectl("get", kinds, "--all-namespaces", "--output=name", check=False).returncode == 0

        process.wait_for("every kind is established", established, timeout=_READY)
        process.wait_for("every kind is served", served, timeout=_READY, interval=0.2)

    def pause(self) -> None:
        """Stop the API server with its connections open, as in a network failure."""
        self._processes["kube-apiserver"].signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a `pause`, and return when the API server answers."""
        self._processes["kube-apiserver"].signal(signal.SIGCONT)
        self._wait_ready()

    def restart(self) -> None:
        """Kill the API server, and start it again on the same port with the same data."""
        process.kill([self._processes.pop("kube-apiserver")])
        self._spawn("kube-apiserver", self._apiserver_flags())
        self._wait_ready()

    def _launch(self) -> None:
        self._spawn("etcd", flags.etcd(self.state, self.address))
        self._spawn("kube-apiserver", self._apiserver_flags())
        self._wait_ready()
        for name in self._components:
            self._spawn(name, flags.component(self.state, name, self.user(f"system:{name}")))
        if CONTROLLERS in self._components:
            process.wait_for(
                "the controllers make service accounts", self._controllers_work, timeout=_READY, interval=0.2
            )

    def _spawn(self, name: str, arguments: Sequence[str]) -> None:
        started = self._place.spawn(self._programs[name], *arguments, log=self.state / f"{name}.log")
        started.record(self.state / f"{name}.pid")
        self._processes[name] = started

    def _wait_ready(self) -> None:
        process.wait_for(f"{self.server}/readyz", self._ready, timeout=_READY)

    def _ready(self) -> bool:
        """Whether our own API server answers; another one on that port has a certificate of another CA."""
        for name in ("etcd", "kube-apiserver"):
            if not self._processes[name].alive:
                log = process.tail(self.state / f"{name}.log", 40)
                raise _PortTaken if "address already in use" in log else TestbedError(f"{name} exited:\n{log}")
        probe = self.kubectl_command("get", "--raw=/readyz", "--request-timeout=2s")
        if not isinstance(self._place, Here):
            return subprocess.run(probe, capture_output=True, check=False).returncode == 0
        return self._answers()

    def _answers(self) -> bool:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"{self.server}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _controllers_work(self) -> bool:
        """Whether the controllers work; a ready API server may refuse them for a moment more, and then they exit."""
        if not self._processes[CONTROLLERS].alive:
            self._spawn(CONTROLLERS, flags.component(self.state, CONTROLLERS, self.user(f"system:{CONTROLLERS}")))
        return self.kubectl("get", "serviceaccount", "default", check=False).returncode == 0

    def _apiserver_flags(self) -> list[str]:
        known = flags.apiserver(self.state, self.address, controllers=CONTROLLERS in self._components)
        return [*known, *self._further_flags]

    def _write_files(self) -> None:
        write_private(self.state / "sa.key", private_key())
        (self.state / "audit-policy.json").write_text(json.dumps(self._policy))
        hosts = ["127.0.0.1", self.address.host, "localhost", "kubernetes.default.svc", *self.address.first]
        self.authority.issue("kube-apiserver", hosts=hosts).write(self.state, "apiserver")
        self.authority.issue("kube-apiserver", ADMINS).write(self.state, "to-kubelet")
        write_private(self.kubeconfig, self.authority.kubeconfig(self.server, "admin", ADMINS).encode())


class _PortTaken(Exception):
    """A port was taken meanwhile; another attempt follows."""
