"""``python -m hack.escalations`` prints what refuses each attempt. The exit status is 1 if one is not refused."""

import sys

from hack.escalations.attemptrun import run_attempts
from hack.escalations.stage import TOPOLOGIES, stage
from hack.testbed import programs, runs
from hack.testbed.controlplane import CONTROLLERS

_NEEDED = ("etcd", "kube-apiserver", "kubectl", "helm", CONTROLLERS)


def main() -> None:
    """Make every attempt, on a new control plane for each topology."""
    built, findings = programs.ensure(_NEEDED), []
    for topology in TOPOLOGIES:
        with runs.temporary() as state, stage(built, state, topology) as staged:
            verdict = run_attempts(staged)
        print(f"\ntopology {topology}\n\n{verdict.table()}")
        findings += verdict.findings()
    for finding in findings:
        print(f"FOUND {finding}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
