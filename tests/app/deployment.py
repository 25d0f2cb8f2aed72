"""
kavip deployed by the chart; a real API server reaches it as in a cluster, by the Service and its endpoints.

An EndpointSlice must not have loopback addresses, so everything runs in a network namespace with its own address. There
are no pods: the test starts the replicas as the chart's service account, and writes the EndpointSlices itself.
"""

import itertools
import json
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from hack.testbed import process
from hack.testbed.audit import Event
from hack.testbed.controlplane import ControlPlane
from hack.testbed.flags import Address
from hack.testbed.machine import Machine
from hack.testbed.place import Result, run
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from kavip import names
from kavip.admission import registration
from tests.app.longtimeouts import LONGEST
from tests.support import manifests
from tests.support.rbac import wait_bound

ADDRESS = "192.0.2.10"
ACCOUNT = f"system:serviceaccount:{manifests.NAMESPACE}:kavip"
COMBINED = "--set=topology=combined"
"""These replicas publish caBundle themselves, because no controller runs."""
OWN = f"--namespace={manifests.NAMESPACE}"
KINDS = (registration.MUTATING, registration.VALIDATING)
_ASK = "import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1]), timeout=60).read().decode())"
_SHOW = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], int(sys.argv[2])), timeout=60))"


@dataclass(slots=True)
class Replica:
    """A process of kavip."""

    machine: Machine
    number: int
    log: Path
    process: Process

    @property
    def name(self) -> str:
        """Its identity: the name of its pod."""
        return f"kavip-{self.number}"

    @property
    def port(self) -> int:
        """The port of the webhook."""
        return 9443 + self.number

    def unready(self) -> str:
        """The answer of the readiness probe; "" when it is ready."""
        done = self._python(
            "import sys, urllib.request as u, urllib.error as e\n"
            "try:\n    u.urlopen(sys.argv[1], timeout=60)\n"
            "except e.HTTPError as error:\n    print(error.read().decode())\n"
            "except OSError as error:\n    print(error)",
            f"http://127.0.0.1:{8100 + self.number}{names.READY_PATH}",
        )
        return done.stdout.strip()

    def metric(self, name: str) -> float:
        """The value of the metric *name*, including labels, as /metrics prints it."""
        done = self._python(_ASK, f"http://127.0.0.1:{8200 + self.number}{names.METRICS_PATH}")
        return next(float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith(f"{name} "))

    def leaf(self) -> x509.Certificate:
        """The certificate that a new connection gets."""
        done = self._python(_SHOW, "127.0.0.1", str(self.port))
        return x509.load_pem_x509_certificate(done.stdout.encode())

    def _python(self, program: str, *args: str) -> Result:
        return run(self.machine.command(sys.executable, "-c", program, *args), check=False)


@dataclass(slots=True)
class Writer:
    """Applies a Service repeatedly; each write needs a review."""

    plane: ControlPlane
    written: int = 0
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _may_write: threading.Event = field(default_factory=threading.Event)
    _under_way: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Permit writes."""
        self._may_write.set()

    def run(self) -> None:
        """Write until :meth:`stop`."""
        while not self._over.is_set():
            self._may_write.wait()
            with self._under_way:
                done = self.write()
            self.written += 1
            if done.returncode:
                self.failures.append(f"{time.monotonic():.2f} {done.stderr}")

    def write(self) -> Result:
        """Apply the Service once with a change."""
        marked = {names.POOL_ANNOTATION: "nowhere", "example.com/written": str(self.written)}
        metadata = {"name": "written", "namespace": "default", "annotations": marked}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
        return self.plane.kubectl("apply", "--filename=-", input=json.dumps(service), check=False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no write be under way during the block: a review ends with an error if its replica is killed."""
        self._may_write.clear()
        try:
            with self._under_way:
                yield
        finally:
            self._may_write.set()

    def stop(self) -> None:
        """Stop after the current write."""
        self._over.set()


@dataclass(slots=True)
class Deployment:
    """A network namespace with a control plane, and the replicas that the test has started."""

    programs: Programs
    machine: Machine
    plane: ControlPlane
    state: Path
    replicas: list[Replica] = field(default_factory=list)
    """Those with a webhook."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def install(self, *settings: str) -> None:
        """Run ``helm install``; both kinds of webhook must answer."""
        kinds = self.plane.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
        assert kinds.returncode == 0
        self.plane.wait_established()
        command = ["install", "kavip", str(manifests.CHART), OWN, "--create-namespace"]
        strict = "--set=webhook.failurePolicy.mutating=Fail"
        values = [f"--set={each}" for each in settings]
        helm = self.machine.command(self.programs["helm"], *command, COMBINED, strict, *values)
        run(helm, env={"KUBECONFIG": str(self.plane.kubeconfig), "HOME": str(self.state)})
        self._write_hooks("timeoutSeconds", LONGEST)  # so that a machine that stalls for some seconds loses no write
        wait_bound(self.plane, ACCOUNT)

    def start(self, command: str = "run", *, account: str = ACCOUNT) -> Replica:
        """Start a replica as *account*, and add it to the Service if it has a webhook; it may not be ready yet."""
        replica = self._spawn(command, account)
        if command != "controller":
            self.replicas.append(replica)
            self.add_endpoint(replica)
        return replica

    def start_ready(self, command: str = "run", *, account: str = ACCOUNT) -> Replica:
        """Start a replica, and add it to the Service when it is ready: a call that comes earlier would be lost."""
        replica = self._spawn(command, account)
        process.wait_for(f"{replica.name} is ready", lambda: not replica.unready(), timeout=150)
        self.replicas.append(replica)
        self.add_endpoint(replica)
        return replica

    def _spawn(self, role: str, account: str) -> Replica:
        number = next(self._numbers)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{manifests.NAMESPACE}", "system:authenticated")
        log = self.state / f"kavip-{number}.log"
        command = [
            *(
                sys.executable,
                "-m",
                "tests.app.longtimeouts",
                role,
                f"--kubeconfig={self.plane.user(account, *groups)}",
            ),
            *(f"--namespace={manifests.NAMESPACE}", f"--identity=kavip-{number}", f"--webhook-port={9443 + number}"),
            *(f"--probe-port={8100 + number}", f"--metrics-port={8200 + number}", "--drain-seconds=0"),
            *(
                f"--certs-mode={self._variable('KAVIP_CERTS_MODE')}",
                f"--certs-secret={self._variable('KAVIP_CERTS_SECRET')}",
            ),
        ]
        return Replica(self.machine, number, log, self.machine.spawn(*command, log=log))

    def _variable(self, variable: str) -> str:
        """The value that the chart sets for an environment variable."""
        path = f"jsonpath={{.items[0].spec.template.spec.containers[0].env[?(@.name=='{variable}')].value}}"
        return self.plane.kubectl("get", "deployments", OWN, f"--output={path}").stdout

    def add_endpoint(self, replica: Replica) -> None:
        """Write the EndpointSlice of *replica*, as the controller manager would."""
        owner = {names.SERVICE_NAME_LABEL: "kavip-webhook", "endpointslice.kubernetes.io/managed-by": "test"}
        pod = {"kind": "Pod", "namespace": manifests.NAMESPACE, "name": replica.name}
        ready = {"ready": True, "serving": True, "terminating": False}
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": replica.name, "namespace": manifests.NAMESPACE, "labels": owner},
            "addressType": "IPv4",
            "ports": [{"name": "webhook", "port": replica.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": ready, "targetRef": pod}],
        }
        self.plane.kubectl("apply", "--filename=-", input=json.dumps(body))

    def kill(self, replica: Replica) -> None:
        """Kill *replica*; a moment later the Service no longer has it."""
        self.plane.kubectl("delete", "endpointslice", replica.name, OWN)
        process.kill([replica.process])
        self.replicas.remove(replica)

    def bundle(self) -> list[x509.Certificate]:
        """The CAs of every webhook; empty if they differ."""
        path = "jsonpath={.items[*].webhooks[*].clientConfig.caBundle}"
        kinds = ",".join(kind.lower() for kind in KINDS)
        texts = self.plane.kubectl("get", kinds, f"--output={path}").stdout.split()
        if len(texts) != len(registration.MUTATORS) + len(registration.VALIDATORS) or len({*texts}) > 1:
            return []
        return x509.load_pem_x509_certificates(b64decode(texts[0]))

    def data(self, secret: str) -> dict[str, bytes]:
        """The data of *secret*."""
        found = self.plane.kubectl("get", "secret", secret, OWN, "--ignore-not-found", "--output=json").stdout
        return {key: b64decode(text) for key, text in (json.loads(found)["data"] if found else {}).items()}

    def write_secret(self, name: str, data: Mapping[str, bytes]) -> None:
        """Write *name* with another field manager."""
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": manifests.NAMESPACE}}
        text = {key: b64encode(value).decode() for key, value in data.items()}
        self.plane.kubectl(
            *("apply", "--server-side", "--field-manager=other-writer", "--force-conflicts", "--filename=-"),
            input=json.dumps({**made, "data": text}),
        )

    def write_bundle(self, bundle: bytes) -> None:
        """Write *bundle* into every webhook with another field manager."""
        self._write_hooks("clientConfig/caBundle", b64encode(bundle).decode())

    def _write_hooks(self, field: str, value: object) -> None:
        for kind, hooks in zip(KINDS, (registration.MUTATORS, registration.VALIDATORS), strict=True):
            path = f"/webhooks/{{}}/{field}"
            changes = [{"op": "add", "path": path.format(number), "value": value} for number in range(len(hooks))]
            self.plane.kubectl("patch", kind.lower(), "kavip", "--type=json", f"--patch={json.dumps(changes)}")

    def writer(self) -> Writer:
        """A writer that has not started."""
        return Writer(self.plane)

    def requests(self) -> list[Event]:
        """The requests of kavip."""
        return [event for event in self.plane.audit if event.user == ACCOUNT]

    def event_notes(self, reason: str) -> str:
        """The notes of Events with *reason*."""
        path = "--output=jsonpath={.items[*].note}"
        fields = f"--field-selector=reason={reason}"
        return self.plane.kubectl("get", "events.v1.events.k8s.io", OWN, fields, path).stdout

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Write Services during the block."""
        writer = self.writer()
        thread = threading.Thread(target=writer.run)
        thread.start()
        try:
            yield writer
        finally:
            writer.stop()
            thread.join()


@contextmanager
def running(programs: Programs, state: Path, *, components: Sequence[str] = ()) -> Iterator[Deployment]:
    """A deployment in *state*, removed at the end; *components* of the control plane run beside the API server."""
    machine = Machine("site", state / "site")
    machine.start()
    try:
        run(machine.command("ip", "address", "add", f"{ADDRESS}/24", "dev", "lo"))
        address = Address(ADDRESS, 6443, 2379, 2380)
        with ControlPlane(programs, state, address=address, place=machine, components=components) as plane:
            yield Deployment(programs, machine, plane, state)
    finally:
        machine.stop()
