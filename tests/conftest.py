"""Fixtures for all tests."""

import asyncio
import gc

from hypothesis import settings

from fuzz import steady as steady

pytest_plugins = ["hack.schedule", "hack.timing", "hack.testbed.fixtures"]

# looptime asks the policy for a loop even in synchronous tests, which would make one that nobody closes.
asyncio.set_event_loop(None)

# An example that takes long on a busy machine is no failure; and the same checkout gives the same verdict each time.
# A failure prints the example and the decorator that brings it back.
settings.register_profile("kavip", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("kavip")

# Thousands of tests are objects that stay until the end: collected without the garbage collector and then set aside,
# they cost a tenth less time.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among what collection made."""
    gc.freeze()
    gc.enable()
