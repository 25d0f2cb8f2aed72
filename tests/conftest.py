"""Fixtures for all tests."""

import asyncio
import importlib.util
from typing import Any, Final

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

CLUSTERS: Final = "tests/cluster/"

pytest_plugins = ["hack.testbed.fixtures"] if importlib.util.find_spec("hack.testbed.fixtures") else []

# looptime asks the policy for a loop even in synchronous tests, which would make one that nobody closes.
asyncio.set_event_loop(None)

# An example that takes long on a busy machine is no failure; and the same checkout gives the same verdict each time.
settings.register_profile("kavip", deadline=None, derandomize=True)
settings.load_profile("kavip")


class Modules(LoadFileScheduling):
    """
    How `make test` hands out its tests: module by module, because a module shares what is costly to start.

    Those on whole clusters go to one worker: they share clusters, and two at a time would starve each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        module: str = super()._split_scope(nodeid)
        return CLUSTERS if module.startswith(CLUSTERS) else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Modules | None:
    """Hand out in our way what `--dist loadfile` asks for."""
    return Modules(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Clusters first: they take longest, and are handed out in this order."""
    items.sort(key=lambda item: not item.nodeid.startswith(CLUSTERS))
