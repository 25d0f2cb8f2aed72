"""End to end on a real cluster: the claims of the demo hold."""

from collections.abc import Iterator

import pytest

from hack.demo import tour
from hack.demo.__main__ import image, run_steps
from hack.demo.session import Session
from hack.testbed.fixtures import Clusters

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def session(cluster: Clusters) -> Iterator[Session]:
    """
    A cluster of three nodes of its own: it begins without kavip.

    It ends with a node whose power was cut, and for a minute the API server may still ask the replica that was there.
    """
    cluster.end()
    yield Session(cluster(nodes=3, images=(image(),)))
    cluster.end()


def test_all_claims_of_the_demo_hold(session: Session) -> None:
    """Every claim of the demo holds: answers, refusals, fail-over, removal."""
    run_steps(session)
    session.summary()
    assert not [claim for claim in session.claims if not (claim.holds or claim.timed)]
    refused = [claim for claim in session.claims if claim.text.endswith(": refused")]
    assert len(refused) == len(tour.CHOSEN)
