"""Fixtures for all tests."""

import asyncio
import importlib.util

pytest_plugins = ["hack.testbed.fixtures"] if importlib.util.find_spec("hack.testbed.fixtures") else []

# looptime asks the policy for a loop even in synchronous tests, which would make one that nobody closes.
asyncio.set_event_loop(None)
