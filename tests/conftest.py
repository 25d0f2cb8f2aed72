"""Fixtures for all tests."""

import asyncio

from hypothesis import settings

from fuzz import steady as steady

pytest_plugins = ["hack.schedule", "hack.timing", "hack.testbed.fixtures"]

# looptime asks the policy for a loop even in synchronous tests, which would make one that nobody closes.
asyncio.set_event_loop(None)

# An example that takes long on a busy machine is no failure; and the same checkout gives the same verdict each time.
# A failure prints the example and the decorator that brings it back.
settings.register_profile("kavip", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("kavip")
