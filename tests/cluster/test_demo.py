"""End to end on a real cluster: the claims of the demo hold."""

from collections.abc import Iterator

import pytest

from hack.demo import tour
from hack.demo.__main__ import image, tell
from hack.demo.story import Story
from hack.testbed.fixtures import Clusters

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def story(cluster: Clusters) -> Iterator[Story]:
    """
    A cluster of three nodes of its own: it begins without kavip.

    It ends with a node whose power was cut, and for a minute the API server may still ask the replica that was there.
    """
    cluster.end()
    yield Story(cluster(nodes=3, images=(image(),)))
    cluster.end()


def test_the_demo_tells_the_truth(story: Story) -> None:
    """Every claim of the demo holds: answers, refusals, fail-over, removal."""
    tell(story)
    story.summary()
    assert not [claim for claim in story.claims if not (claim.holds or claim.timed)]
    refused = [claim for claim in story.claims if claim.text.endswith(": refused")]
    assert len(refused) == len(tour.CHOSEN)
