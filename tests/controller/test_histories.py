"""
Random faults of caches, writes and replicas: no double holders, no moves without cause, no needless wait.
"""

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
HISTORIES = 40  # of each seed; `make fuzz` runs 10,000


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Silence the log, because these histories consist of failing writes and watches."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_found(name: str) -> None:
    """The histories fail on the defect of the mutant. `make fuzz` runs more mutants."""
    assert run.find_mutant(name, seed=3)


@pytest.mark.parametrize("seed", range(4))  # so that pytest workers share them
def test_random_histories_have_no_finding(seed: int) -> None:
    """The invariants hold at each step, and an idle controller has served every Service that can be served."""
    assert run.batch(HISTORIES, number=seed).finding == ""
