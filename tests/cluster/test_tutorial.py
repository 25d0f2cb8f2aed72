"""The tutorial on a real cluster: each command prints what the page shows, and in the end nothing is left."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.demo.__main__ import TAG, image
from hack.testbed.cluster import Cluster
from hack.testbed.fixtures import Clusters
from hack.tutorial import pages
from hack.tutorial.alike import is_alike
from hack.tutorial.run import Terminal
from tests.cluster.provisioning import OWN, chart, delete_objects, retry_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def bare(cluster: Clusters) -> Iterator[Cluster]:
    """The cluster of three nodes without kavip; a test that fails ends it, because anything may be left there."""
    found = cluster(nodes=3, images=(image(),))
    found.helm("uninstall", "kavip", OWN, "--ignore-not-found", "--wait")
    delete_objects(found, ("namespace", "lb"))
    yield found
    if found.kubectl("get", "namespace/lb", "service/web", "--ignore-not-found", "--output=name").stdout:
        cluster.end()
    else:
        retry_kubectl(found, "label", "nodes", "--all", "node-role.kubernetes.io/infra-")


@pytest.fixture
def terminal(bare: Cluster, tmp_path: Path) -> Terminal:
    """A shell in a folder that is like a checkout, with a chart for a busy machine."""
    shutil.copytree(chart(bare), tmp_path / "charts" / "kavip")
    (tmp_path / "docs").symlink_to(pages.ROOT / "docs")
    return Terminal(bare, tmp_path, {"image.tag=dev": f"image.tag={TAG}"})


def test_the_tutorial_prints_what_its_page_shows(terminal: Terminal) -> None:
    """Every command of the page, in its order, and so those of README that give the first VIP."""
    for shown, printed in terminal.follow(pages.shown(pages.TUTORIAL.read_text())):
        assert is_alike(shown.output, printed.output), f"$ {shown.command}\n{printed.output}\n(page:)\n{shown.output}"
