"""Fixtures of the tests that send bytes to a webhook server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from hack import refusals
from kavip.snapshot import Snapshot
from kavip.webhook import body
from kavip.webhook import server as serving
from kavip.webhook.server import WebhookServer
from tests.webhook.httpclient import Connection, connected


@pytest.fixture
async def snapshot() -> Snapshot:
    """The cluster of all refusal cases."""
    return refusals.snapshot()


@pytest.fixture(scope="module")
def generous_timeouts() -> Iterator[None]:
    """Long timeouts, so that a slow machine fails no test; tests of a timeout set their own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(body, "DEADLINE", 60.0)
        patched.setattr(serving, "WAIT_FOR_REFERENCES", 0.0)
        yield


@pytest.fixture
async def webhook(snapshot: Snapshot) -> AsyncIterator[Connection]:
    """A server over that cluster."""
    async with connected(WebhookServer(snapshot)) as connection:
        yield connection
