"""
``make bench`` runs every benchmark in its own process, so that no benchmark warms the caches of another.

Most figures are ratios to another measurement of the same run, or the growth from one size to another.
"""

import os
import platform
import subprocess
import sys
from typing import Final

BENCHES: Final = (
    ("bench.review", "admission reviews against a no-op aiohttp handler"),
    ("bench.replicas", "1,000 admission reviews a second by two replicas, 50,000 Services in cache"),
    ("bench.connections", "calls that are answered while other clients hold every connection of a port"),
    (
        "bench.apiserver",
        "10,000 Services on a real API server: backlog, one more, restart; compared with a bare client",
    ),
    (
        "bench.peers",
        "2,000 Services of kavip, and of MetalLB's controller, in turn on one API server; compared with a bare client",
    ),
    ("bench.allocate", "20,000 Services from a /16, in process"),
    ("bench.scale", "the allocator with many pools, many waiting Services and many sharers of an address, in process"),
    ("bench.plan", "the full plan of one Service, in process"),
    ("bench.growth", "start, events and memory of the controller with 1,000 to 100,000 Services, in process"),
    (
        "bench.large",
        "20,000 Services on 200 simulated nodes and a real API server: backlog, changes, restart, fail-over",
    ),
    ("bench.liar", "what a node with large answers that always change costs the leader, beside an honest node"),
    ("bench.states", "what the leader reads and spends when 40 nodes report a change among 20,000 VIPs"),
    ("bench.render", "keepalived.conf of 255 instances, and of 5,000 VIPs"),
    (
        "bench.agent",
        "the agent with a keepalived of 255 instances: time to reload, CPU when idle and with 1,000 ARP/s, memory",
    ),
    (
        "bench.failover",
        "the time until the new master answers for a VIP, compared with a bare keepalived on the same nodes",
    ),
    (
        "bench.follow",
        "externalTrafficPolicy Local: how soon a VIP follows its endpoints, and the CPU time of polling health ports",
    ),
    ("bench.memory", "resident memory of the agent"),
    ("bench.watch", "the CPU time and memory of the agent's network and file watches, compared with libraries"),
)


def main() -> None:
    """Run the benchmarks named on the command line, or all of them; exit with status 1 if one failed."""
    chosen = [f"bench.{name}" for name in sys.argv[1:]] or [name for name, _ in BENCHES]
    print(f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()}", flush=True)
    failed = []
    for name, what in BENCHES:
        if name in chosen:
            print(f"\n== {name}: {what}", flush=True)
            if subprocess.run([sys.executable, "-m", name], check=False).returncode:
                failed.append(name)
    for name in failed:
        print(f"FAILED: {name}", file=sys.stderr)
    sys.exit(bool(failed))


main()
