"""Whatever happens to caches, writes and replicas: no address has two holders, moves without cause, or lies idle."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from fuzz.histories import run
from fuzz.histories.machine import Histories

QUICK = (
    "a node's own address is given away",
    "a write under way is not remembered",
    "an address stays only while its pool would give it",
    "every status that comes is an echo",
    "what is freed stays taken",
    "whoever has an address keeps it",
)
HISTORIES = 300  # `make fuzz` lives through 10,000


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


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=HISTORIES,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,  # the same histories in each run; `make fuzz` looks for new ones
    database=None,
    phases=[Phase.generate],  # the story that a finding tells is short enough; to make it shorter takes minutes
    suppress_health_check=list(HealthCheck),
)
