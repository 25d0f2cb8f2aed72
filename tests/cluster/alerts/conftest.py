"""One cluster with the objects that faults and drills need, for all tests of alerts."""

from collections.abc import Callable, Iterator

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from tests.cluster.alerts.shop import shop


@pytest.fixture(scope="package")
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """See :func:`~tests.cluster.alerts.shop.shop`."""
    with shop(cluster(nodes=3, images=(image(),))) as found:
        yield found
