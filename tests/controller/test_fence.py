"""A replica that has lost its lease writes nothing."""

from collections.abc import Awaitable, Callable
from unittest.mock import AsyncMock

import pytest

from kavip import names
from kavip.api.event import Note, ObjectReference
from kavip.controller.writer import Writer
from kavip.errors import LeaseLost
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import CONFIGMAPS
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Apply, KeyKind, Plan, PodAnnotation, PodRemoval, StatusPatch, Write
from kavip.reconcile.predicate import PendingWrites
from tests.reconcile.simulatedcluster import NOW

WRITES: tuple[Write, ...] = (
    Apply(names.CONFIG_MAP, "lb/edge", {"data": {}}, owner="uid", unseen=False),
    PodAnnotation("lb/edge-1", "0" * 16, "lb/edge"),
    PodRemoval("lb/edge-1", "uid", "lb/edge"),
    StatusPatch(KeyKind.SERVICE, "shop/web", {"metadata": {"resourceVersion": "1"}, "status": {}}),
    StatusPatch(KeyKind.GROUP, "lb/edge", {"metadata": {"resourceVersion": "1"}, "status": {}}),
    StatusPatch(KeyKind.POOL, "edge", {"metadata": {"resourceVersion": "1"}, "status": {}}),
)
Call = Callable[[Client], Awaitable[object]]


def fallen() -> None:
    """A fence that rejects every write."""
    raise LeaseLost("not written: the lease is held no more")


def fenced() -> tuple[Client, AsyncMock]:
    """A client with a fake transport that calls the guard of each write, as the real one does."""
    transport = AsyncMock()

    async def send(*_: object, guard: Callable[[], None], **__: object) -> bytes:
        guard()
        raise AssertionError("sent")

    transport.send.side_effect = send
    return Client(transport).guarded(fallen), transport


@pytest.mark.parametrize("write", WRITES, ids=repr)
async def test_every_write_of_a_plan_has_the_guard(write: Write) -> None:
    """The guard of status, object and annotation writes is called by the transport immediately before sending."""
    client, transport = fenced()
    with pytest.raises(LeaseLost):
        await Writer(client, Records(), PendingWrites(), now=lambda: NOW).send(Plan(writes=(write,)))
    assert transport.send.await_count == 1


async def test_an_event_without_the_lease_is_dropped() -> None:
    """The next leader reports the state, and the event sender continues."""
    client, transport = fenced()
    events = Events(client, reporter="kavip.io/controller", instance="old")
    about = ObjectReference(api_version="v1", kind="Service", namespace="shop", name="web", uid="u")
    note = Note(about, "Assigned", "has an address", severity="Normal")
    events.emit(note)
    await events._deliver(note)
    assert (transport.send.await_count, events.dropped) == (1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create(CONFIGMAPS, "a/b", {}),
        lambda client: client.apply(CONFIGMAPS, "a/b", {}),
        lambda client: client.patch(CONFIGMAPS, "a/b", {}),
        lambda client: client.delete(CONFIGMAPS, "a/b"),
    ],
    ids=["create", "apply", "patch", "delete"],
)
async def test_every_method_that_writes_has_the_guard(call: Call) -> None:
    """The client sends no create, apply, patch or delete without the lease."""
    client, _ = fenced()
    with pytest.raises(LeaseLost):
        await call(client)
