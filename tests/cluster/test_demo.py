"""End to end on a real cluster: what the demo tells is so."""

from collections.abc import Callable

import pytest

from hack.demo import tour
from hack.demo.__main__ import image, tell
from hack.demo.story import Story
from hack.testbed.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_the_demo_tells_the_truth(cluster: Callable[..., Cluster]) -> None:
    """Every claim of the demo holds: answers, refusals, fail-over, removal."""
    story = Story(cluster(nodes=3, images=(image(),)))
    tell(story)
    assert story.summary(), [claim for claim in story.claims if not claim.holds]
    refused = [claim for claim in story.claims if claim.text.endswith(": refused")]
    assert len(refused) == len(tour.CHOSEN)
