"""The resident memory of the agent with a real keepalived of 1,000 VIPs in Shared instances. It needs root."""

import json
import sys
import time
from pathlib import Path

from bench.site import resident
from hack.testbed import process, runs
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.api.cluster import Node, NodeAddress, NodeStatus
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.service import Service, ServicePort, ServiceSpec
from kavip.cli.views import simulate
from kavip.snapshot import Object

SERVICES = 1_000
GROUP = "lb/edge"


def manifests(count: int, host: Host) -> list[dict[str, str]]:
    """The data of the group's ConfigMap, for *count* Services."""
    notes = {names.GROUP_ANNOTATION: GROUP}
    spec = ServiceSpec(type="LoadBalancer", ports=[ServicePort(port=80)], ip_families=["IPv4"])
    objects: list[Object] = [
        VIPPool(metadata=Metadata(name="edge"), spec=PoolSpec(addresses=["198.18.0.0/16"])),
        KeepalivedGroup(
            metadata=Metadata(name="edge", namespace="lb"),
            spec=GroupSpec(interface="eth0", instances=Instances(mode="Shared")),
        ),
        Node(
            metadata=Metadata(name=host.name),
            status=NodeStatus(addresses=[NodeAddress(type="InternalIP", address=host.ipv4)]),
        ),
        *(
            Service(metadata=Metadata(name=f"s{number}", namespace="shop", annotations=notes), spec=spec)
            for number in range(count)
        ),
    ]
    return [body["data"] for body in simulate.plan(objects).objects if body["kind"] == names.CONFIG_MAP]


def start(host: Host, folder: Path) -> tuple[Process, Process]:
    """Start the agent, which has written its first configuration, and keepalived."""
    run_dir = folder / "run"
    run_dir.mkdir()
    flags = [f"--node-name={host.name}", f"--node-ip={host.ipv4}", f"--config-dir={folder}", f"--run-dir={run_dir}"]
    agent = [sys.executable, "-m", "kavip", "agent", *flags]
    host.exec(*agent, "--once")
    files = [
        f"--use-file={run_dir}/keepalived.conf",
        f"--pid={run_dir}/keepalived.pid",
        f"--vrrp_pid={run_dir}/vrrp.pid",
    ]
    daemon = ["env", f"TMPDIR={run_dir}", "/usr/sbin/keepalived", "-n", "-l", "-P", "-B", *files]
    keepalived = host.spawn(*daemon, f"--config-id={host.name}", log=folder / "keepalived.log")
    return host.spawn(*agent, log=folder / "agent.log"), keepalived


def main(count: int = SERVICES) -> None:
    """Print the rows."""
    with runs.temporary() as state, Segment(state, nodes=1) as segment:
        host = segment.nodes[0]
        (data,) = manifests(count, host)
        for name, text in data.items():
            (state / name).write_text(text)
        agent, keepalived = start(host, state)
        held = ["ip", "-o", "-4", "addr", "show", "dev", "eth0"]
        process.wait_for("every VIP is up", lambda: host.exec(*held).stdout.count("198.18.") == count, timeout=60)
        time.sleep(3)
        daemons = [resident(pid) for pid in process.children([keepalived.pid])]
        print(f"agent with {count} VIPs: {resident(agent.pid)} MiB; keepalived: {sum(daemons)} MiB")
        print(
            f"configuration: {len(data[names.CONFIG_KEY]) / 1024:.0f} KiB; {json.loads(data[names.AGENT_KEY])['group']}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
