"""Whatever happens to caches, writes and replicas: no address has two holders, moves without cause, or lies idle."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from fuzz.histories import run

pytestmark = pytest.mark.slow

QUICK = (
    "a node's own address is assigned",
    "an open write is not recorded",
    "an address stays only while its pool would give it",
    "every status change counts as an own write",
    "a freed address stays in use",
    "every holder keeps its address",
)
HISTORIES = 40  # of each seed; `make fuzz` lives through 10,000


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Failing writes and watches are what these histories are made of: nothing of it is worth a line."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("name", QUICK)
def test_a_controller_that_is_broken_on_purpose_is_found(name: str) -> None:
    """The histories fail on the defect that they are for; `make fuzz` breaks more."""
    assert run.hunt(name, seed=3)


@pytest.mark.parametrize("seed", range(4))  # as many workers as the machine has may share them
def test_whatever_happens(seed: int) -> None:
    """In each history all promises are kept at each step, and all that can be served is, at rest."""
    assert run.batch(HISTORIES, number=seed).finding == ""
