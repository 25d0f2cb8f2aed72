"""A cluster for measurements: pools, Shared groups and Services on a real API server, kavip and a bare client."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.bare import Bare
from bench.writes import Writes
from hack.testbed.controlplane import ControlPlane
from hack.testbed.ports import free_ports
from kavip import names

GROUPS: Final = 20
POOLS: Final = 50
HOST: Final = "127.0.0.1"
NAMESPACE: Final = "bench"
BARE: Final = "plain"  # the namespace of the bare client's Services
STRATEGIC: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"

_POOL: Final = f"/apis/{names.KAVIP_GROUP}/{names.VERSION}/vippools"
_GROUP: Final = f"/apis/{names.REDHATCOP_GROUP}/{names.VERSION}/namespaces/{NAMESPACE}/keepalivedgroups"


@dataclass(frozen=True, slots=True)
class Site:
    """The control plane, and an open connection of the bare client."""

    plane: ControlPlane
    bare: Bare

    @property
    def writes(self) -> Writes:
        """The status writes from now on."""
        return Writes(self.plane.audit.path)


def path(namespace: str, name: str = "", part: str = "") -> str:
    """The path of all Services of *namespace*, of one, or of a *part* of it."""
    return "/".join(filter(None, (f"/api/v1/namespaces/{namespace}/services", name, part)))


def notes(number: int) -> dict[str, str]:
    """The annotations that make kavip manage a Service."""
    return {names.GROUP_ANNOTATION: f"{NAMESPACE}/g{number % GROUPS}", names.POOL_ANNOTATION: f"p{number % POOLS}"}


def service(
    namespace: str, name: str, *, annotations: dict[str, str] | None = None, port: int = 80, **more: Any
) -> dict[str, Any]:
    """A Service as users write it, without node ports: a cluster has fewer node ports than these Services need."""
    ports = [{"name": "http", "port": port}, {"name": "https", "port": port + 363}]
    spec = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False, "selector": {"app": "a"}}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": names.SERVICE, "metadata": metadata, "spec": {**spec, **more}}


def status(number: int, version: str = "") -> dict[str, Any]:
    """The status that the bare client writes, with fields like those of kavip; *number* selects the address."""
    address = f"10.{64 + number // 62500}.{number // 250 % 250}.{number % 250}"
    reported = [
        ("AddressAssigned", "True", "Assigned", f"{address} from pool p{number % POOLS}"),
        ("Programmed", "False", "NoNodes", f"no node matches spec.nodeSelector of KeepalivedGroup {NAMESPACE}/g1"),
    ]
    conditions = [
        {
            "type": f"bench.io/{kind}",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, status, reason, message in reported
    ]
    ingress = [{"ip": address, "ipMode": names.IP_MODE_VIP}]
    body: dict[str, Any] = {"status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions}}
    return {"metadata": {"resourceVersion": version}, **body} if version else body


async def prepare(bare: Bare, count: int, *, namespaces: Sequence[str] = (NAMESPACE, BARE)) -> None:
    """Create namespaces, pools and groups, and *count* Services in each of *namespaces*: kavip's, the bare client's."""
    for name in namespaces:
        await bare.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for number in range(POOLS):
        pool = {"apiVersion": f"{names.KAVIP_GROUP}/{names.VERSION}", "kind": names.VIP_POOL}
        await bare.send(
            "POST", _POOL, {**pool, "metadata": {"name": f"p{number}"}, "spec": {"addresses": [f"10.{number}.0.0/16"]}}
        )
    for number in range(GROUPS):
        group = {"apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}", "kind": names.KEEPALIVED_GROUP}
        spec = {"interface": "eth0", "segment": f"s{number}", "instances": {"mode": "Shared"}}
        await bare.send("POST", _GROUP, {**group, "metadata": {"name": f"g{number}"}, "spec": spec})
    for namespace in namespaces:
        theirs = notes if namespace == NAMESPACE else _no_notes
        bodies = (service(namespace, f"s{number}", annotations=theirs(number)) for number in range(count))
        await bare.all(("POST", path(namespace), body, "application/json") for body in bodies)


def _no_notes(_: int) -> dict[str, str]:
    return {}


async def versions(bare: Bare, namespace: str) -> dict[str, str]:
    """The resourceVersion of each Service of *namespace*."""
    found = await bare.send("GET", path(namespace))
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found["items"]}


async def clear(bare: Bare, namespace: str, services: Iterable[str], *, annotations: Iterable[str] = ()) -> None:
    """Clear the status of *services*, and remove these *annotations*."""
    nothing: dict[str, Any] = {"status": {"loadBalancer": None, "conditions": None}}
    nothing["metadata"] = {"annotations": dict.fromkeys(annotations)}
    await bare.all(("PATCH", path(namespace, name, "status"), nothing, MERGE) for name in services)


@contextmanager
def running(
    plane: ControlPlane, role: str, *more: str, checkout: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """
    Run ``kavip ROLE`` against *plane* during the block; yields the process and the port of its probes.

    *checkout*: the source tree to run, if it is another one.
    """
    free = free_ports(2)
    ports = {"metrics": 0, "probe": free[0], "webhook": free[1]}
    flags = [f"--kubeconfig={plane.kubeconfig}", f"--namespace={NAMESPACE}", "--drain-seconds=0", *more]
    for name, port in ports.items():
        flags += [f"--{name}-host={HOST}", f"--{name}-port={port}"]
    if role == "run":
        flags.append(f"--webhook-url=https://{HOST}:{free[1]}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KAVIP_")}
    with (plane.state / "kavip.log").open("ab") as log:
        command = [sys.executable, "-m", "kavip", role, *flags]
        process = subprocess.Popen(command, cwd=checkout, env=environment, stderr=log)
    try:
        yield process, free[0]
    finally:
        process.terminate()
        process.wait(timeout=60)


def resident(pid: int) -> int:
    """The resident memory of *pid* in MiB (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))
