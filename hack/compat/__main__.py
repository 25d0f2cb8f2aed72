"""``make compat``: each case on a cluster of its own. The exit status is 1 if a claim of a case does not hold."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from hack.compat import kubernetes
from hack.demo import steps
from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.demo.session import Session
from hack.testbed import prepare, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.progress import step

OWN: Final = "testbed"
"""The version of Kubernetes that all other tests run."""
IPVS: Final = Path("/proc/net/ip_vs")


@dataclass(slots=True)
class Case:
    """A version of Kubernetes and a mode of kube-proxy; and what was seen."""

    kubernetes: str
    mode: str
    problems: list[str] = field(default_factory=list)
    not_run: str = ""

    @property
    def version(self) -> str:
        """The full version."""
        own = programs.required("kubernetes", "k8s.io/kubernetes")
        return own if self.kubernetes == OWN else kubernetes.version(self.kubernetes)

    @property
    def seen(self) -> str:
        """The last column of the table."""
        return f"not run: {self.not_run}" if self.not_run else "; ".join(self.problems) or "every claim holds"


CASES: Final = (
    ("1.30", "iptables"),  # nftables is an alpha feature there
    (OWN, "nftables"),
    (OWN, "iptables"),
    (OWN, "ipvs"),
    ("1.37", "nftables"),
)


def run(case: Case, testbed: programs.Programs) -> None:
    """Install kavip, refuse, use and fail over, and note what does not hold."""
    if case.mode == "ipvs" and not IPVS.exists():
        case.not_run = "the kernel of this machine has no IPVS"
        return
    built = testbed if case.kubernetes == OWN else kubernetes.programs(case.kubernetes, testbed)
    with runs.temporary() as state:
        cluster = Cluster(built, state, nodes=3, images=[image()], proxy_mode=case.mode)
        try:
            with step(f"Start Kubernetes {case.version}", f"kube-proxy in {case.mode} mode"):
                cluster.start()
            session = Session(cluster)
            chapter(session)
            case.problems += [claim.text for claim in session.claims if not claim.holds and not claim.timed]
        except TestbedError as error:
            case.problems.append(str(error).splitlines()[0])
            runs.keep_logs(f"compat-{case.kubernetes}-{case.mode}")
        finally:
            cluster.stop()


def chapter(session: Session) -> None:
    """What is tried in each case."""
    steps.install(session, repository=REPOSITORY, tag=TAG)
    steps.refuse(session)
    steps.use(session)
    steps.kill(session)


@click.command()
@click.option("--only", multiple=True, metavar="VERSION:MODE", help="Such as 1.37:nftables. [all]")
def main(only: tuple[str, ...]) -> None:
    """Run all cases and print a table."""
    cases = [Case(*each) for each in CASES if not only or ":".join(each) in only]
    testbed = prepare.everything(programs.CLUSTER, image)
    for case in cases:
        run(case, testbed)
    print("\n| Kubernetes | kube-proxy | seen |\n|---|---|---|")
    for case in cases:
        print(f"| {case.version} | {case.mode} | {case.seen} |", flush=True)
    sys.exit(1 if any(case.problems for case in cases) else 0)


if __name__ == "__main__":
    main()
