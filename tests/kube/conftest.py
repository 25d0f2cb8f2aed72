"""Fixtures: a fake API server, a client of it, and captured log lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from kavip.kube import auth, events, informer, leader
from kavip.kube.client import Client
from tests.kube.fakeapi import FakeApi, serving


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[MutableMapping[str, Any]]:
    """The log lines of kavip.kube during the test, whatever the configuration of structlog."""
    capture = LogCapture()
    for module in (auth, events, informer, leader):
        monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[tuple[FakeApi, Client]]:
    """A fake API server and a client of it."""
    fake = FakeApi()
    async with serving(fake, tmp_path) as config, Client.from_settings(str(config)) as client:
        yield fake, client


async def until(condition: Callable[[], object], *, timeout: float = 30.0) -> None:
    """Wait until *condition* holds; the timeout is long because the machine may be busy."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*coroutines: Any) -> AsyncIterator[None]:
    """Run *coroutines* in the background; their failure fails the test."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
