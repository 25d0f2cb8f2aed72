"""The number of status writes of an allocation and of a restart, counted between worker and caches."""

from typing import cast

import msgspec
import pytest

from kavip.caches import Caches
from kavip.kube.client import Client
from kavip.snapshot import Object
from tests.controller.apiserver import Server, idle, leading
from tests.reconcile.simulatedcluster import GROUP
from tests.support import build

COUNT = 8


@pytest.mark.parametrize("early", [True, False], ids=["watch first", "answer first"])
async def test_one_write_for_an_allocation_and_none_for_a_restart(early: bool) -> None:
    """Address and both conditions are one write. A new leader and a label cause no write."""
    services = [build.service(f"shop/s{number}", group=GROUP) for number in range(COUNT)]
    caches = Caches(cast(Client, None), owned=False)
    there: list[Object] = [build.group(), build.pool(), build.node("n1", "192.0.2.11"), *services]
    for each in there:
        caches._update(None, each)
    server = Server(caches, early=early)
    async with leading(caches, server) as queue:
        await idle(queue)
    assert server.writes == {each.key: 1 for each in services}
    async with leading(caches, server) as queue:
        await idle(queue)
        before = caches.snapshot.services["shop/s0"]
        metadata = msgspec.structs.replace(before.metadata, labels={"a": "b"}, resource_version="5000")
        caches._update(before, msgspec.structs.replace(before, metadata=metadata))
        await idle(queue)
    assert server.writes.total() == COUNT
    assert all(each.ingress_addresses for each in caches.snapshot.services.values())
