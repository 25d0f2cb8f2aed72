"""
A backlog: 1,000 Services exist on a real API server before kavip starts; how long until all have addresses?

Beside it, in the same run on the same server, a bare client that PATCHes 1,000 statuses over 32 connections. Also the
memory of ``kavip run`` with these Services, and the writes and Events that the API server's audit log counts.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.bare import Bare, connected
from hack.testbed import programs, runs
from hack.testbed.controlplane import ControlPlane

ROOT = Path(__file__).parents[1]
SERVICES = 1_000
PATIENCE = 300.0
GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"


def service(namespace: str, number: int, **annotations: str) -> dict[str, Any]:
    """A Service without node ports; with a foreign class unless it is annotated."""
    spec: dict[str, Any] = {
        "type": "LoadBalancer",
        "ports": [{"port": 80}],
        "allocateLoadBalancerNodePorts": False,
        **({} if annotations else {"loadBalancerClass": "bench.example/none"}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"s{number}", "namespace": namespace, "annotations": annotations},
        "spec": spec,
    }


def status(number: int) -> dict[str, Any]:
    """What the bare client writes: the same fields as kavip."""
    address = f"198.19.{number // 250}.{number % 250}"
    condition = {
        "type": "bench.example/AddressAssigned",
        "status": "True",
        "reason": "Assigned",
        "message": f"{address} from pool bench",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}, "conditions": [condition]}}


async def prepare(bare: Bare, count: int) -> None:
    """Namespaces, a pool, a Shared group, and the Services of both parties."""
    for name in ("bare", "kavip", "bench"):
        await bare.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    pool = {"apiVersion": "kavip.io/v1alpha1", "kind": "VIPPool", "metadata": {"name": "bench"}}
    await bare.send("POST", "/apis/kavip.io/v1alpha1/vippools", {**pool, "spec": {"addresses": ["198.18.0.0/16"]}})
    group = {
        "apiVersion": "redhatcop.redhat.io/v1alpha1",
        "kind": "KeepalivedGroup",
        "metadata": {"name": "edge", "namespace": "bench"},
        "spec": {"interface": "eth0", "instances": {"mode": "Shared"}},
    }
    await bare.send("POST", "/apis/redhatcop.redhat.io/v1alpha1/namespaces/bench/keepalivedgroups", group)
    for namespace, notes in (("bare", {}), ("bench", {GROUP: "bench/edge"})):
        path = f"/api/v1/namespaces/{namespace}/services"
        bodies = [service(namespace, number, **notes) for number in range(count)]
        await bare.all(("POST", path, body, "application/json") for body in bodies)


async def patch_all(bare: Bare, count: int) -> float:
    """The bare client's seconds for *count* status patches."""
    kind = "application/strategic-merge-patch+json"
    return await bare.all(
        ("PATCH", f"/api/v1/namespaces/bare/services/s{number}/status", status(number), kind) for number in range(count)
    )


async def until_assigned(bare: Bare, count: int, began: float) -> tuple[float, float]:
    """Seconds from *began* to the first and to the last address, as a watch sees them."""
    listed = await bare.send("GET", "/api/v1/namespaces/bench/services")
    assigned = {item["metadata"]["name"] for item in listed["items"] if item["status"]["loadBalancer"]}
    path = f"/api/v1/namespaces/bench/services?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
    first = 0.0
    async with asyncio.timeout(PATIENCE), bare.session.get(bare.server + path, timeout=None) as stream:
        async for line in stream.content:
            found = json.loads(line)["object"]
            if found["status"]["loadBalancer"].get("ingress"):
                first = first or time.perf_counter() - began
                assigned.add(found["metadata"]["name"])
            if len(assigned) == count:
                return first, time.perf_counter() - began
    raise TimeoutError


def resident(pid: int) -> int:
    """MiB of memory that *pid* has resident (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def start_kavip(plane: ControlPlane) -> subprocess.Popen[bytes]:
    """``kavip run`` against *plane*, on ports of loopback that are free."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KAVIP_")}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        webhook = probe.getsockname()[1]
    ports = {"metrics": 0, "probe": 0, "webhook": webhook}
    flags = [flag for name, port in ports.items() for flag in (f"--{name}-host=127.0.0.1", f"--{name}-port={port}")]
    flags += [f"--kubeconfig={plane.kubeconfig}", "--namespace=bench", f"--webhook-url=https://127.0.0.1:{webhook}"]
    command = [sys.executable, "-m", "kavip", "run", "--drain-seconds=0", *flags]
    log = (plane.state / "kavip.log").open("wb")
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)


async def measure(plane: ControlPlane, count: int) -> None:
    """Print the rows."""
    async with connected(plane.kubeconfig) as bare:
        await prepare(bare, count)
        limit = await patch_all(bare, count)
        began = time.perf_counter()
        process = start_kavip(plane)
        try:
            first, last = await until_assigned(bare, count, began)
            await asyncio.sleep(5)  # Events trickle behind
            memory = resident(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=30)
    writing = last - first
    print(f"bare client: {count} status PATCHes over 32 connections: {limit:.2f} s ({count / limit:.0f}/s)")
    print(f"kavip, backlog of {count}: all assigned after {last:.2f} s from process start, first after {first:.2f} s")
    print(f"  ratio to bare: {last / limit:.2f} from process start, {writing / limit:.2f} from first to last address")
    print(f"  resident memory of kavip run with {count} Services: {memory} MiB")
    _print_writes(plane, count)


def _print_writes(plane: ControlPlane, count: int) -> None:
    writes = [event for event in plane.audit if event.agent.startswith("kavip") and event.verb in ("create", "patch")]
    seen = Counter(f"{event.resource}/{event.subresource}" for event in writes if event.stage == "ResponseComplete")
    print(
        f"  status writes per Service: {seen['services/status'] / count:.2f}; Events, counted apart: {seen['events/']}"
    )


def main(count: int = SERVICES) -> None:
    """Run against a control plane of our own."""
    with runs.temporary() as state, ControlPlane(programs.ensure(), state) as plane:
        plane.kubectl("apply", "-f", str(ROOT / "config" / "crd" / "bases"))
        plane.wait_established()
        asyncio.run(measure(plane, count))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
