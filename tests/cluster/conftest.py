"""A cluster with kavip on it, and a report of the cluster's objects and logs when a test fails."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from hack.demo.__main__ import image
from hack.demo.story import Story
from hack.testbed.cluster import Cluster
from hack.testbed.process import tail
from tests.cluster.ground import release
from tests.support import manifests

HERE = Path(__file__).parent

LOOKS = (
    ("get", "services,vippools,keepalivedgroups,pods", "--all-namespaces", "--output=wide"),
    ("describe", "services", "--all-namespaces"),
    ("describe", "keepalivedgroups,vippools", "--all-namespaces"),
    ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
    ("logs", "deployment/kavip", f"--namespace={manifests.NAMESPACE}", "--all-pods", "--tail=60"),
)
GROUPED = "--selector=keepalivedGroup"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run them last, and those on one node first: one cluster runs at a time, and another one takes long to start."""
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
            for look in LOOKS:
                seen = found.kubectl(*look, check=False)
                report.sections.append((f"kubectl {' '.join(look)}", seen.stdout + seen.stderr))
            report.sections += list(_nodes(found))
    return report


def _nodes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The last log lines of agents and kubelets."""
    path = "--output=jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"
    pods = cluster.kubectl("get", "pods", "--all-namespaces", GROUPED, path, check=False).stdout
    for namespace, name in (line.split() for line in pods.splitlines()):
        said = cluster.kubectl("logs", name, f"--namespace={namespace}", "--all-containers", "--tail=40", check=False)
        yield f"logs of {namespace}/{name}", said.stdout + said.stderr
    for node in cluster.nodes:
        yield f"kubelet of {node.name}", tail(node.home / "kubelet.log", 40)


def _clusters(item: pytest.Item) -> list[Cluster]:
    given = getattr(item, "funcargs", {}).values()
    clusters = [each.cluster if isinstance(each, Story) else each for each in given]
    return [each for each in clusters if isinstance(each, Cluster)]
