"""End to end on a real cluster: what the demo tells is so."""

from collections.abc import Callable, Iterator

import pytest

from hack.demo import tour
from hack.demo.__main__ import image, tell
from hack.demo.story import Story
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def story(cluster: Callable[..., Cluster]) -> Iterator[Story]:
    """A cluster of three nodes; no pool of the demo's serves the tests that come after."""
    found = Story(cluster(nodes=3, images=(image(),)))
    yield found
    wait_for("its Services and pools are gone", lambda: cleared(found), timeout=150, interval=1)


def cleared(story: Story) -> bool:
    """Whether all could be deleted: the API server may still try kavip's pod on the node whose power was cut."""
    deletions = (("services", "--all", "--namespace=shop"), ("vippools", "--all"))
    return not any(story.cluster.kubectl("delete", *each, check=False).returncode for each in deletions)


def test_the_demo_tells_the_truth(story: Story) -> None:
    """Every claim of the demo holds: answers, refusals, fail-over, removal."""
    tell(story)
    assert story.summary(), [claim for claim in story.claims if not claim.holds]
    refused = [claim for claim in story.claims if claim.text.endswith(": refused")]
    assert len(refused) == len(tour.CHOSEN)
