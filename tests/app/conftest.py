"""kavip as a process against a real kube-apiserver, with the real kubectl."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.ports import free_ports
from hack.testbed.programs import Programs

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0  # seconds; one or two are enough on an idle machine
_SHOWN = 8_000  # characters of each part of a failure report


def wait_for(
    what: str, condition: Callable[[], Any], *, patience: float = PATIENCE, details: Callable[[], object] = str
) -> Any:
    """Wait for *condition* and return its result; after the timeout the test fails with the result of *details*."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience:g} s: {what}\n{details()}")
        time.sleep(0.05)
    return found


def free_port() -> int:
    """A free port of loopback."""
    return free_ports(1)[0]


@dataclass(slots=True)
class Replica:
    """One running ``kavip run``."""

    process: subprocess.Popen[bytes]
    log: Path
    probe_port: int
    metrics_port: int

    def ready(self) -> bool:
        """Whether the readiness probe succeeds."""
        if self.process.poll() is not None:
            pytest.fail(f"kavip exited with {self.process.returncode}:\n{self.log.read_text()[-4000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.probe_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def metric(self, name: str) -> float:
        """The value of the metric *name*, including labels, as /metrics prints it; 0 if it is absent."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=60)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.terminate()
        return self.process.wait(timeout=60)


@dataclass(slots=True)
class Installation:
    """A control plane with kavip's CRDs, and the replicas that the test has started."""

    plane: ControlPlane
    replicas: list[Replica] = field(default_factory=list)
    webhook_port: int = field(default_factory=free_port)

    def start(self, *flags: str, webhook: bool = True) -> Replica:
        """Start another replica and wait until it is ready."""
        probe_port, metrics_port = free_port(), free_port()
        registered = [f"--webhook-port={self.webhook_port}", f"--webhook-url=https://127.0.0.1:{self.webhook_port}"]
        command = [
            *(sys.executable, "-m", "tests.app.longtimeouts", "run" if webhook else "controller"),
            *(f"--kubeconfig={self.plane.kubeconfig}", "--namespace=kavip", f"--identity=replica-{len(self.replicas)}"),
            *("--webhook-host=127.0.0.1", *(registered if webhook else [])),
            *("--probe-host=127.0.0.1", f"--probe-port={probe_port}"),
            *("--metrics-host=127.0.0.1", f"--metrics-port={metrics_port}"),
            *("--drain-seconds=0", "--lease-seconds=60"),  # so that a machine that stalls for seconds costs no lease
            *flags,
        ]
        log = self.plane.state / f"kavip-{len(self.replicas)}.log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KAVIP_")}
        with log.open("wb") as stream:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stream)
        replica = Replica(process, log, probe_port, metrics_port)
        self.replicas.append(replica)
        wait_for("kavip is ready", replica.ready)
        if webhook:
            wait_for("the webhooks are registered", self._registered)
            wait_for("the API server calls the webhooks", self._webhooks_are_called)
        return replica

    def leader(self) -> Replica:
        """The replica that leads; waits until exactly one does, because a stalled one loses its lease."""

        def leading() -> list[Replica]:
            found = [each for each in self.replicas if each.process.poll() is None and each.metric("kavip_leader")]
            return found if len(found) == 1 else []

        (found,) = wait_for("one replica leads", leading)
        assert isinstance(found, Replica)
        return found

    def _webhooks_are_called(self) -> bool:
        """Whether the API server calls both kinds of webhook; it reads registrations by a watch."""
        flags = ("--dry-run=server", "-o", "json")
        mutated = self.try_apply(a_group("probe"), flags=flags)
        bad = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "no-slash"}
        refused = self.try_apply(a_service("probe", annotations=bad), flags=flags)
        return '"segment": "default"' in mutated.stdout and refused.returncode != 0

    def _registered(self) -> bool:
        found = self.get("validatingwebhookconfiguration", "kavip")
        return bool(found) and all(each["clientConfig"].get("caBundle") for each in found["webhooks"])

    # --- kubectl --------------------------------------------------------------------------------------------------
    def try_apply(self, *objects: Mapping[str, Any], flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run ``kubectl apply`` for *objects*; return the result, whether it failed or not."""
        text = "\n---\n".join(json.dumps(each) for each in objects)
        return self.plane.kubectl("apply", "-f", "-", *flags, input=text, check=False)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Run ``kubectl apply`` for *objects*, which must succeed."""
        done = self.try_apply(*objects)
        assert done.returncode == 0, done.stderr

    def get(self, *args: str) -> Any:
        """The object as JSON, or None."""
        done = self.plane.kubectl("get", *args, "-o", "json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def addresses(self, name: str, namespace: str = "shop") -> list[str]:
        """The addresses in the status of a Service."""
        found = self.get("service", name, "-n", namespace) or {}
        return [entry["ip"] for entry in found.get("status", {}).get("loadBalancer", {}).get("ingress", [])]

    def wait_for_conditions(self, *services: str, reason: str = "NoNodes") -> None:
        """Wait until the conditions of *services* are final: without nodes, Programmed is the last one."""
        for name in services:

            def is_reported(name: str = name) -> bool:
                return self.condition(name, "kavip.io/Programmed").get("reason") == reason

            wait_for(f"{name} reports {reason}", is_reported, details=partial(self.get, "service", name, "-n", "shop"))

    def apply_and_wait(self, *objects: dict[str, Any]) -> None:
        """Apply pools and groups, and wait until kavip has observed them, so that Services may name them."""
        self.apply(*objects)
        for each in objects:
            self.wait_for_status(
                each["kind"], each["metadata"]["name"], "-n", each["metadata"].get("namespace", "default")
            )

    def wait_for_status(self, *subject: str) -> None:
        """Wait until kavip has written the status of an object; before that the conditions of a pool are Pending."""

        def has_status() -> bool:
            conditions = self.get(*subject).get("status", {}).get("conditions", [])
            return bool(conditions) and all(each["message"] != "Waiting for kavip" for each in conditions)

        wait_for(f"{subject} has its status", has_status, details=lambda: self.get(*subject))

    def condition(
        self, name: str, kind: str = "kavip.io/AddressAssigned", *, namespace: str = "shop"
    ) -> dict[str, str]:
        """A condition of a Service; empty if it has none."""
        found = self.get("service", name, "-n", namespace) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == kind), {})

    def close(self) -> None:
        """Stop all processes and delete all objects, so that the next test has a clean cluster."""
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.kill()
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            self.plane.kubectl("delete", kind, "kavip", "--ignore-not-found")
        for namespace in ("shop", "lb", "other"):
            self._delete_all(
                "services,keepalivedgroups,daemonsets,configmaps,roles,rolebindings", "--all", "-n", namespace
            )
        self._delete_all("vippools,nodes", "--all")
        self._delete_all("clusterroles,clusterrolebindings", "--selector=!kubernetes.io/bootstrapping")
        self._delete_all("leases,secrets", "--all", "-n", "kavip")

    def undefine(self, kind: str) -> None:
        """Delete a CRD and wait until it is gone; the deletion of its objects can take a minute."""
        self.plane.kubectl("delete", "crd", kind, "--wait=false")
        wait_for(f"{kind} is gone", lambda: self.get("crd", kind) is None, patience=240)

    def _delete_all(self, kinds: str, *which: str) -> None:
        """Delete the objects of *kinds*, by the flags *which*, once the API server no longer calls webhooks."""
        stderr = ""

        def is_empty() -> bool:
            nonlocal stderr
            done = self.plane.kubectl("delete", kinds, *which, check=False)
            stderr = done.stderr
            return done.returncode == 0

        wait_for(f"{kinds} are gone", is_empty, details=lambda: stderr)


def object_of(kind: str, name: str, *, namespace: str = "", version: str = "v1", **rest: Any) -> dict[str, Any]:
    """Any object."""
    notes, labels = rest.pop("annotations", {}), rest.pop("labels", {})
    metadata = {"name": name, "annotations": notes, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def crd(group: str, kind: str, plural: str, *, scope: str, versions: tuple[str, ...] = ("v1",)) -> dict[str, Any]:
    """A CustomResourceDefinition that accepts anything; the last of *versions* is stored."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = [
        {
            "name": name,
            "served": True,
            "storage": name == versions[-1],
            "schema": schema,
            "subresources": {"status": {}},
        }
        for name in versions
    ]
    named = {"plural": plural, "kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    spec = {"group": group, "names": named, "scope": scope, "versions": served}
    return object_of("CustomResourceDefinition", f"{plural}.{group}", version="apiextensions.k8s.io/v1", spec=spec)


def a_service(
    name: str, *, namespace: str = "shop", annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A Service of type LoadBalancer without node ports."""
    defaults = {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
    return object_of("Service", name, namespace=namespace, annotations=annotations or {}, spec={**defaults, **spec})


def a_pool(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    """A VIPPool."""
    return object_of("VIPPool", name, version="kavip.io/v1alpha1", spec={"addresses": list(addresses), **spec})


def a_group(name: str, *, default: bool = False, **spec: Any) -> dict[str, Any]:
    """A KeepalivedGroup in namespace lb."""
    labels = {"kavip.io/default-group": "true"} if default else {}
    spec = {"interface": "eth0", **spec}
    return object_of(
        "KeepalivedGroup", name, namespace="lb", version="redhatcop.redhat.io/v1alpha1", labels=labels, spec=spec
    )


def prepare(plane: ControlPlane) -> ControlPlane:
    """Install kavip's CRDs and namespaces in *plane*."""
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config" / "crd" / "bases"))
    plane.wait_established()
    for name in ("kavip", "shop", "lb", "other"):
        plane.kubectl("apply", "-f", "-", input=json.dumps(object_of("Namespace", name)))
    return plane


_STATUS = "--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}: {.status}{'\\n'}{end}"
LOOKS = (
    ("get", "services,vippools,keepalivedgroups,nodes,pods,daemonsets", "--all-namespaces", "--output=wide"),
    ("get", "services,vippools,keepalivedgroups", "--all-namespaces", _STATUS),
    ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
)
"""What a failure shows of the API server."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """
    Add the state of the cluster and the end of kavip's log to the report of a failure, before the fixtures clean up.
    """
    report = yield
    if report.failed and report.when != "teardown":
        for found in _installations(item):
            for look in LOOKS:
                seen = found.plane.kubectl(*look, check=False)
                report.sections.append((f"kubectl {' '.join(look)}", (seen.stdout + seen.stderr)[-_SHOWN:]))
            for replica in found.replicas:
                report.sections.append((replica.log.name, replica.log.read_text()[-_SHOWN:]))
    return report


def _installations(item: pytest.Item) -> list[Installation]:
    given = getattr(item, "funcargs", {}).values()
    found = [getattr(each, "site", each) for each in given]
    return list({id(each): each for each in found if isinstance(each, Installation)}.values())


@pytest.fixture(scope="package")
def prepared(programs: Programs) -> Iterator[ControlPlane]:
    """
    A control plane with kavip's CRDs and namespaces for these tests alone, because kavip serves the whole cluster.
    """
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield prepare(started)


@pytest.fixture
def installation(prepared: ControlPlane) -> Iterator[Installation]:
    """A clean cluster for kavip."""
    made = Installation(prepared)
    try:
        yield made
    finally:
        made.close()
