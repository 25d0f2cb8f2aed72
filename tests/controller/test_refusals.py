"""What the writer records of writes that the API server refuses."""

from unittest.mock import AsyncMock

import pytest

from kavip import names
from kavip.controller.writer import Writer
from kavip.errors import ApiError, Forbidden, Rejected, Unavailable
from kavip.kube.client import Client
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Apply, Plan, PodAnnotation, PodRemoval, Write
from kavip.reconcile.predicate import PendingWrites
from tests.reconcile.simulatedcluster import GROUP, NOW

DENIED = Forbidden(403, "Forbidden", "denied by a policy")
INVALID = Rejected(422, "Invalid", "denied by a policy")
OBJECT = Apply(names.CONFIG_MAP, GROUP, {"data": {}}, owner="uid", unseen=False)
ANNOTATIONS = tuple(PodAnnotation(f"{GROUP}-{number}", "abc", GROUP) for number in range(3))
REMOVAL = PodRemoval(f"{GROUP}-1", "uid", GROUP)


def writer(error: ApiError) -> tuple[Writer, Records]:
    """A writer whose API server answers everything with *error*."""
    transport, records = AsyncMock(), Records()
    transport.send.side_effect = error
    return Writer(Client(transport), records, PendingWrites(), now=lambda: NOW), records


@pytest.mark.parametrize("error", [DENIED, INVALID], ids=str)
@pytest.mark.parametrize("unseen", [False, True], ids=["apply", "read before it"])
async def test_a_refused_object_is_recorded(error: ApiError, unseen: bool) -> None:
    """The record counts how often the same body was refused."""
    subject, records = writer(error)
    write = Apply(OBJECT.kind, OBJECT.key, OBJECT.body, OBJECT.owner, unseen=unseen)
    for times in (1, 2):
        assert not await subject.send(Plan(writes=(write,)))
        found = records.rejected[f"ConfigMap {GROUP}"]
        assert (found.message, found.times) == ("denied by a policy", times)


@pytest.mark.parametrize(
    ("writes", "what"), [(ANNOTATIONS, "abc"), ((REMOVAL,), "uid")], ids=["annotation", "deletion"]
)
async def test_a_refused_write_to_pods_is_recorded_once_for_the_group(writes: tuple[Write, ...], what: str) -> None:
    """However many pods are refused at once, the group has one record."""
    subject, records = writer(DENIED)
    assert not await subject.send(Plan(writes=writes))
    found = records.pods[GROUP]
    assert (found.digest, found.message, found.times) == (what, f"{writes[0].key}: denied by a policy", 1)


@pytest.mark.parametrize("write", [OBJECT, ANNOTATIONS[0], REMOVAL], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("error", [Unavailable(503, "x", "x"), Forbidden(401, "Unauthorized", "x")], ids=str)
async def test_errors_that_say_nothing_about_the_object_are_raised(error: ApiError, write: Write) -> None:
    """An API server that is away or knows no token refuses no object."""
    subject, records = writer(error)
    with pytest.raises(type(error)):
        await subject.send(Plan(writes=(write,)))
    assert not records.rejected
    assert not records.pods


async def test_a_success_forgets_the_refusal() -> None:
    """The next refusal of the same annotation is the first one again."""
    subject, records = writer(DENIED)
    await subject.send(Plan(writes=ANNOTATIONS))
    subject._client.patch = AsyncMock()  # type: ignore[method-assign]  # of this one
    assert await subject.send(Plan(writes=ANNOTATIONS))
    assert not records.pods
