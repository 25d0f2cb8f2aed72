"""
10,000 Services on a real API server: how long ``kavip run`` takes until it is ready, and how much memory it then has.

All are in Shared groups, and kavip has given each an address in a first run. What counts is what starting takes beyond
a bare client's LIST of the same Services in the same run, process start and TLS included.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp

from bench.backlog import resident
from bench.bare import Bare, connected
from bench.goal import row
from hack.testbed import programs, runs
from hack.testbed.controlplane import ControlPlane
from kavip import names

ROOT: Final = Path(__file__).parents[1]
SERVICES: Final = 10_000
GROUPS: Final = 20
POOLS: Final = 50
ROUNDS: Final = 3
PATIENCE: Final = 600.0
BEYOND: Final = 2.0  # seconds
MEMORY: Final = 150  # MiB
HOST: Final = "127.0.0.1"
NAMESPACE: Final = "bench"
LIST: Final = f"/api/v1/namespaces/{NAMESPACE}/services"


def service(number: int) -> dict[str, Any]:
    """A Service as users write it, without node ports: there are fewer of them than Services."""
    notes = {names.GROUP_ANNOTATION: f"{NAMESPACE}/g{number % GROUPS}", names.POOL_ANNOTATION: f"p{number % POOLS}"}
    ports = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
    spec = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False, "selector": {"app": "a"}}
    metadata = {"name": f"s{number}", "namespace": NAMESPACE, "annotations": notes, "labels": {"app": f"a{number}"}}
    return {"apiVersion": "v1", "kind": names.SERVICE, "metadata": metadata, "spec": spec}


async def prepare(bare: Bare, count: int) -> None:
    """The namespace, pools, groups and Services."""
    await bare.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for number in range(POOLS):
        pool = {"apiVersion": f"{names.KAVIP_GROUP}/{names.VERSION}", "kind": names.VIP_POOL}
        body = {**pool, "metadata": {"name": f"p{number}"}, "spec": {"addresses": [f"10.{number}.0.0/16"]}}
        await bare.send("POST", f"/apis/{names.KAVIP_GROUP}/{names.VERSION}/vippools", body)
    for number in range(GROUPS):
        group = {"apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}", "kind": names.KEEPALIVED_GROUP}
        spec = {"interface": "eth0", "segment": f"s{number}", "instances": {"mode": "Shared"}}
        body = {**group, "metadata": {"name": f"g{number}", "namespace": NAMESPACE}, "spec": spec}
        path = f"/apis/{names.REDHATCOP_GROUP}/{names.VERSION}/namespaces/{NAMESPACE}/keepalivedgroups"
        await bare.send("POST", path, body)
    await bare.all(("POST", LIST, service(number), "application/json") for number in range(count))


@contextmanager
def running(plane: ControlPlane) -> Iterator[tuple[int, int]]:
    """``kavip run`` against *plane*: its pid, and the port of its probes."""
    free = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            free.append(probe.getsockname()[1])
    ports = {"metrics": 0, "probe": free[0], "webhook": free[1]}
    flags = [flag for name, port in ports.items() for flag in (f"--{name}-host={HOST}", f"--{name}-port={port}")]
    flags += [f"--kubeconfig={plane.kubeconfig}", f"--namespace={NAMESPACE}", "--drain-seconds=0"]
    flags += [f"--webhook-url=https://{HOST}:{free[1]}", "--lease-seconds=5"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KAVIP_")}
    with (plane.state / "kavip.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "kavip", "run", *flags], env=environment, stderr=log)
    try:
        yield process.pid, free[0]
    finally:
        process.terminate()
        process.wait(timeout=60)


async def until_ready(port: int) -> float:
    """Seconds until the probe says so."""
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://{HOST}:{port}{names.READY_PATH}") as answer:
                    if answer.status == 200:
                        return time.perf_counter() - began
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)


async def listed(bare: Bare) -> tuple[float, int]:
    """Seconds for one LIST of the Services, and how many of them have an address."""
    began = time.perf_counter()
    found = await bare.send("GET", LIST)
    return time.perf_counter() - began, sum(bool(item["status"]["loadBalancer"]) for item in found["items"])


async def measure(plane: ControlPlane, count: int) -> None:
    """Print the rows."""
    async with connected(plane.kubeconfig) as bare:
        await prepare(bare, count)
        with running(plane):
            async with asyncio.timeout(PATIENCE):
                while (await listed(bare))[1] < count:
                    await asyncio.sleep(2)
        lists, starts, memory = [], [], 0
        for last in [False] * (ROUNDS - 1) + [True]:
            lists.append((await listed(bare))[0])
            with running(plane) as (pid, port):
                starts.append(await until_ready(port))
                if last:
                    await asyncio.sleep(15)  # it takes the lead, looks at every Service, and writes nothing
                    memory = resident(pid)
    beyond = median(starts) - median(lists)
    print(f"{count:,} Services in {GROUPS} Shared groups and {POOLS} pools; median of {ROUNDS}")
    print(f"bare LIST {median(lists):.2f} s; kavip run ready after {median(starts):.2f} s from process start")
    row("ready beyond the bare LIST", f"{beyond:.2f} s", goal=f"under {BEYOND:g} s", met=beyond < BEYOND)
    row("resident memory of kavip run, leading", f"{memory} MiB", goal=f"under {MEMORY} MiB", met=memory < MEMORY)


def main(count: int = SERVICES) -> None:
    """Run against a control plane of our own."""
    with runs.temporary() as state, ControlPlane(programs.ensure(), state) as plane:
        plane.kubectl("apply", "-f", str(ROOT / "config" / "crd" / "bases"))
        plane.wait_established()
        asyncio.run(measure(plane, count))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
