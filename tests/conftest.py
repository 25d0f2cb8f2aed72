"""Fixtures for all tests."""

import asyncio
import gc

from hypothesis import settings

from fuzz import steady as steady

pytest_plugins = ["hack.schedule", "hack.timing", "hack.testbed.fixtures"]

# looptime asks the policy for a loop in synchronous tests too; without this line one would be created and never closed.
asyncio.set_event_loop(None)

# An example may take long on a busy machine. The same checkout gives the same result each time.
# A failure prints the example and the decorator that reproduces it.
settings.register_profile("kavip", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("kavip")

# Thousands of tests are objects that stay until the end: collected without the garbage collector and then set aside,
# they cost a tenth less time.
gc.disable()


def pytest_collection_finish() -> None:
    """After the collection, keep its objects out of garbage collection."""
    gc.freeze()
    gc.enable()
