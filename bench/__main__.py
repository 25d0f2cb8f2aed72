"""
``make bench``: every benchmark in turn, each a process of its own, so that none warms another's caches.

All figures are ratios against something in the same run, or growth from one size to another.
"""

import os
import platform
import subprocess
import sys
from typing import Final

BENCHES: Final = (
    ("bench.review", "admission reviews against a no-op aiohttp handler"),
    ("bench.held", "10,000 Services on a real API server: backlog, one more, restart; beside a bare client"),
    ("bench.allocate", "20,000 Services from a /16, in process"),
    ("bench.crowd", "the allocator beside many pools, many that wait, many that share, in process"),
    ("bench.plan", "the full plan of one Service, in process"),
    ("bench.render", "keepalived.conf of 255 instances, and of 5,000 VIPs"),
    ("bench.agent", "the agent beside keepalived with 255 instances: reload, idle, memory beside a bare process"),
    (
        "bench.failover",
        "the time to a VIP's first answer from its new owner, beside a bare keepalived on the same nodes",
    ),
    ("bench.follow", "externalTrafficPolicy Local: how soon a VIP is where its endpoints are, and what asking costs"),
    ("bench.memory", "resident memory of the agent"),
    ("bench.watch", "what the agent's watches of network and files cost, beside libraries"),
)


def main() -> None:
    """Run those named on the command line, or all; exit status 1 when one failed."""
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
