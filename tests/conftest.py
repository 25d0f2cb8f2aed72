"""Fixtures for all tests."""

import importlib.util

pytest_plugins = ["hack.testbed.fixtures"] if importlib.util.find_spec("hack.testbed.fixtures") else []
