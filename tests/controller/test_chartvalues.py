"""The objects of the chart's values are applied in their order, whatever the API server cannot do for a moment."""

import json
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

from kavip import names
from kavip.api.chartvalues import AppliedObject
from kavip.api.workload import ConfigMap
from kavip.controller.chartvalues import ChartValues
from kavip.errors import Unavailable
from kavip.kube.client import Client
from kavip.names import Reason
from tests.reconcile.simulatedcluster import NOW
from tests.support import build

KEY = f"kavip/{names.VALUES_CONFIGMAP_NAME}"
POOLS = [{"name": "lan", "spec": {}}, {"name": "twin", "spec": {}}]


def chart_values(client: Any) -> Any:
    """The values with two pools, which the watch has shown."""
    found: Any = ChartValues(
        cast(Client, client), namespace="kavip", events=Mock(), namespaces=(), blocked=lambda: None, now=lambda: NOW
    )
    data = {names.VALUES_KEY: json.dumps({"pools": POOLS})}
    found._informer._objects[KEY] = ConfigMap(metadata=build.metadata(KEY), data=data)
    return found


async def test_a_pool_waits_for_the_one_before_it() -> None:
    """Otherwise the second of two that overlap would be created if the first fails for a moment, and the first not."""
    client = Mock(apply=AsyncMock(side_effect=Unavailable(500, "InternalError", "no CA")), patch=AsyncMock())
    values = chart_values(client)
    assert not await values.reconcile()
    assert [call.args[1] for call in client.apply.await_args_list] == ["lan"]
    assert [each.reason for each in values._conditions.values()] == [Reason.PENDING] * 2
    client.apply = AsyncMock(return_value=AppliedObject(metadata=build.metadata("lan")))
    values._due_at = 0.0
    assert await values.reconcile()
    assert [call.args[1] for call in client.apply.await_args_list] == ["lan", "twin"]
