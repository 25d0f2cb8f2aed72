"""A cluster that reaches nothing but one registry: it is installed from there, and its VIPs answer."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo import steps
from hack.demo.session import Session
from hack.release import build, publish, signature
from hack.release.registry import Registry
from hack.testbed import debian, images
from hack.testbed.cluster import Cluster
from hack.testbed.fixtures import Clusters
from hack.testbed.place import run
from hack.testbed.process import wait_for
from tests.release.conftest import PASSWORD, REGISTRY, Release
from tests.support.manifests import ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

HOST, _, TEAM = REGISTRY.partition("/")
PATIENCE = 600.0
OF_THE_TESTBED = {images.PAUSE, images.WEB}
"""The images of the pods that answer behind the VIPs."""


class Site:
    """A cluster with a registry that holds the release."""

    def __init__(self, cluster: Cluster, release: Release) -> None:
        self.cluster, self.release = cluster, release
        self.registry = Registry(cluster)
        self.target = f"{self.registry.address}/{TEAM}"

    def publish(self) -> None:
        """Push the release, signed."""
        env = {"COSIGN_PASSWORD": PASSWORD}
        self.registry.publish(self.release.dist, f"--key={self.release.key}", team=TEAM, env=env)

    def running(self) -> set[str]:
        """The digests of the images that the containers of kavip's and its groups' pods run."""
        pods: list[dict[str, Any]] = json.loads(self.cluster.kubectl("get", "pods", "-A", "-o", "json").stdout)["items"]
        statuses = [
            status
            for pod in pods
            for part in ("initContainerStatuses", "containerStatuses")
            for status in pod["status"].get(part, ())
        ]
        # by digest: containerd names an image as it was pulled first
        found = (status["imageID"] for status in statuses if status["image"] not in OF_THE_TESTBED)
        return {image.rpartition("@")[2] for image in found}

    def listed(self) -> set[str]:
        """The digests of what the release lists as the images that a pod may run."""
        return {line.rpartition("@")[2] for line in (self.release.dist / build.IMAGES).read_text().split()}

    def remove_kavip(self) -> None:
        """Remove every object of kavip, so that the next installation starts from nothing."""
        self.cluster.kubectl("delete", "service", "--all", "--namespace=shop", "--ignore-not-found")
        self.cluster.kubectl("delete", "keepalivedgroups,vippools", "--all", "--all-namespaces")
        wait_for("no pod of a group is left", self._no_group_pods, timeout=PATIENCE, interval=1)
        self.cluster.helm("uninstall", "kavip", "-n", steps.NAMESPACE, "--wait")

    def _no_group_pods(self) -> bool:
        return "No resources" in self.cluster.kubectl("get", "pods", "-A", "--selector=keepalivedGroup").stderr


@pytest.fixture(scope="module")
def site(cluster: Clusters, release: Release) -> Iterator[Site]:
    """Three nodes that have the images of the testbed, and none of kavip's."""
    debian.install(publish.SKOPEO)
    made = Site(cluster(nodes=3), release)
    made.registry.start()
    made.publish()
    yield made
    cluster.end()


def held(site: Site) -> set[str]:
    """The names of all images on the nodes."""
    return {
        name
        for node in site.cluster.nodes
        for name in node.exec("ctr", "--namespace=k8s.io", "images", "list", "--quiet").stdout.split()
    }


def use(session: Session) -> None:
    """The demo's first chapter: kavip is ready, refuses, and a Service gets its VIP, which answers."""
    for role in steps.ROLES:
        session.wait(f"both replicas of kavip-{role} are ready", partial(steps.are_ready, session, role))
    steps.refuse(session)
    steps.use(session)
    assert not [claim for claim in session.claims if not claim.holds and not claim.timed]


def test_the_nodes_reach_nothing_else(site: Site) -> None:
    """Before the installation the nodes have no image of kavip, and they cannot pull one from elsewhere."""
    assert not [name for name in held(site) if "kavip" in name]
    for node in site.cluster.nodes:
        pull = ("ctr", "--namespace=k8s.io", "images", "pull", f"{REGISTRY}/kavip@{site.release.digests['kavip']}")
        assert node.exec(*pull, check=False).returncode


def test_the_registry_holds_signed_digests(site: Site) -> None:
    """Image and chart have the digests of the release there, and its signature."""
    for repository, digest in site.release.digests.items():
        reference = f"{site.target}/{repository}@{digest}"
        command = [sys.executable, "-c", _VERIFY, reference, str(site.release.public), str(site.registry.trust)]
        done = run(site.cluster.control.command(*command), cwd=ROOT, timeout=600, check=False)
        assert done.stdout == "True\n", done.stderr


_VERIFY = f"""
import sys
from pathlib import Path
from {signature.__name__} import verify_reference

print(verify_reference(sys.argv[1], key=sys.argv[2], ca=Path(sys.argv[3])))
"""


def test_helm_installs_it_from_the_registry(site: Site) -> None:
    """`helm install oci://...@sha256:...`, with the mirror as registry; every container runs an image of the list."""
    chart = f"oci://{site.target}/charts/kavip@{site.release.digests['charts/kavip']}"
    where = ("-n", steps.NAMESPACE, "--create-namespace", f"--ca-file={site.registry.trust / 'ca.crt'}")
    session = Session(site.cluster)
    session.title("Install kavip from the registry")
    session.helm("install", "kavip", chart, *where, "--set", f"image.registry={site.registry.address}")
    use(session)
    session.helm("test", "kavip", "-n", steps.NAMESPACE, "--logs")
    assert site.running() == site.listed()


def test_the_manifests_install_it_by_way_of_a_mirror(site: Site) -> None:
    """`kubectl apply -f install.yaml` as it is: containerd finds the registry of the release at the mirror."""
    site.remove_kavip()
    site.registry.mirror(HOST)
    session = Session(site.cluster)
    session.title("Install kavip from install.yaml")
    session.kubectl("apply", "--server-side", "-f", str(site.release.dist / build.INSTALL))
    use(session)
    assert site.running() == site.listed()
