"""A cluster with kavip on it, and a report of the cluster's objects and logs when a test fails."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import tail
from tests.cluster.provisioning import release
from tests.support import manifests

HERE = Path(__file__).parent

REPORTS = (
    ("get", "services,vippools,keepalivedgroups,pods", "--all-namespaces", "--output=wide"),
    ("describe", "services", "--all-namespaces"),
    ("describe", "keepalivedgroups,vippools", "--all-namespaces"),
    ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
    *(
        ("logs", f"deployment/{name}", f"--namespace={manifests.NAMESPACE}", "--all-pods", "--tail=60")
        for name in ("kavip-webhook", "kavip-controller")
    ),
)
AGENT_PODS = "--selector=keepalivedGroup"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests last, those with one node first: only one cluster runs at a time, and each starts slowly."""
    items.sort(key=lambda item: (item.path.parent == HERE, "installed" not in getattr(item, "fixturenames", ())))


@pytest.fixture
def installed(cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of one node with kavip and nothing else."""
    found = cluster(nodes=1, images=(image(),))
    found.helm("upgrade", "--install", *release(found), "--create-namespace", "--set=replicaCount=2")
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what kubectl sees to the report of a failure, before the fixtures clean up."""
    report = yield
    if report.failed and report.when != "teardown":
        for found in _clusters(item):
            for command in REPORTS:
                seen = found.kubectl(*command, check=False)
                report.sections.append((f"kubectl {' '.join(command)}", seen.stdout + seen.stderr))
            report.sections += list(_nodes(found))
    return report


def _nodes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The last log lines of agents and kubelets."""
    path = "--output=jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"
    pods = cluster.kubectl("get", "pods", "--all-namespaces", AGENT_PODS, path, check=False).stdout
    for namespace, name in (line.split() for line in pods.splitlines()):
        logs = cluster.kubectl("logs", name, f"--namespace={namespace}", "--all-containers", "--tail=40", check=False)
        yield f"logs of {namespace}/{name}", logs.stdout + logs.stderr
    for node in cluster.nodes:
        yield f"kubelet of {node.name}", tail(node.home / "kubelet.log", 40)


def _clusters(item: pytest.Item) -> list[Cluster]:
    fixtures = getattr(item, "funcargs", {}).values()
    clusters = [each.cluster if isinstance(each, Session) else each for each in fixtures]
    return [each for each in clusters if isinstance(each, Cluster)]
