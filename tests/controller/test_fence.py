"""A replica that has lost its lease writes nothing, whatever it had planned."""

from unittest.mock import AsyncMock

import pytest

from kavip import names
from kavip.controller.apply import Writer
from kavip.controller.observed import Objects
from kavip.controller.outcome import Apply, Kind, Plan, PodAnnotation, StatusPatch, Write
from kavip.errors import LeaseLost
from tests.controller.scenes import NOW

WRITES: tuple[Write, ...] = (
    Apply(names.CONFIG_MAP, "lb/edge", {"data": {}}, owner="uid", unseen=False),
    PodAnnotation("lb/edge-1", "0" * 16),
    StatusPatch(Kind.SERVICE, "shop/web", {"metadata": {"resourceVersion": "1"}, "status": {}}),
)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: type(write).__name__)
async def test_no_byte_leaves_without_the_lease(write: Write) -> None:
    """The lease is asked for right before each write, and nothing is sent when it is gone."""
    client = AsyncMock()
    writer = Writer(client, Objects(), now=lambda: NOW, is_held=lambda: False)
    with pytest.raises(LeaseLost):
        await writer.send(Plan(writes=(write,)))
    assert client.mock_calls == []
