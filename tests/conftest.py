"""Fixtures for all tests."""

import asyncio
import gc
import logging
from collections.abc import Generator, Iterator
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, Final

import pytest
import structlog
from blockbuster import BlockBuster
from hypothesis import settings

from fuzz import reproducible as reproducible
from tests.support.examples import FEW, QUICK

pytest_plugins = ["hack.schedule", "hack.timing", "hack.testbed.fixtures"]

# looptime asks the policy for a loop in synchronous tests too; without this line one would be created and never closed.
asyncio.set_event_loop(None)

# An example may take long on a busy machine. The same checkout gives the same result each time.
# A failure prints the example and the decorator that reproduces it.
settings.register_profile("kavip", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(QUICK, settings.get_profile("kavip"), max_examples=FEW)
settings.load_profile("kavip")

# Thousands of tests are objects that stay until the end. Without the garbage collector during collection, and excluded
# from it afterwards, they take a tenth less time.
gc.disable()


def pytest_collection_finish() -> None:
    """After the collection, keep its objects out of garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """
    Collect the garbage of each module, so that what it left open fails its last test and not a later module.

    What is still in use is frozen: to scan it again after each of 300 modules would take a quarter of all time.
    """
    yield
    gc.collect()
    gc.freeze()


REAL: Final = ("apiserver", "netns", "cluster", "chart", "image")
"""Marks of tests with real servers, which read files and wait for processes."""

MAY_BLOCK: Final = (
    ("kavip/http/tls.py", "serving_context"),  # a file in memory: OpenSSL loads a key only from files
    ("kavip/kube/auth.py", "_read"),  # runs in a loop and a thread of its own
    ("kavip/kube/auth.py", "_refresh"),  # the token file of a kubeconfig, which kubernetes_asyncio reads
    ("kavip/agent/keepalived/trackfiles.py", "read"),  # a few bytes of a tmpfs
    ("structlog/dev.py", "__call__"),  # shows the source in tracebacks, in tests and terminals only
)
"""Functions of kavip and below it that may block the event loop."""


@cache
def guard() -> BlockBuster:
    """The guard of kavip's event loop."""
    made = BlockBuster("kavip")
    for function in made.functions.values():
        for file, name in MAY_BLOCK:
            function.can_block_in(file, name)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test fails if kavip blocks its event loop. A hook, because a fixture of each test costs a tenth of all time."""
    is_async = isinstance(item, pytest.Function) and iscoroutinefunction(item.function)
    if not is_async or any(map(item.get_closest_marker, REAL)):
        return (yield)
    guard().activate()
    try:
        return (yield)
    finally:
        guard().deactivate()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """A command that a test runs in this process configures logging; the next test begins without that."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        logging.basicConfig(handlers=[], level=logging.WARNING, force=True)
