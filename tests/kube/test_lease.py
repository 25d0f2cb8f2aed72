"""The lease lock on virtual time, over a fake API with resourceVersions."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from kavip.api.lease import Lease, LeaseSpec
from kavip.api.meta import Metadata
from kavip.errors import AlreadyExists, Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.lease import LeaseLock

pytestmark = pytest.mark.looptime

KEY = "kavip/kavip-controller"


class FakeLeases:
    """One Lease, with the resourceVersions of an API server."""

    def __init__(self, **spec: Any) -> None:
        self.version = 1
        self.annotations: dict[str, str] = {}
        self.spec: dict[str, Any] | None = spec or None

    async def get(self, resource: Any, key: str) -> Lease:
        """Return the Lease; raises NotFound."""
        assert key == KEY
        if self.spec is None:
            raise NotFound(404, "NotFound", key)
        metadata = Metadata(name="kavip-controller", namespace="kavip", resource_version=str(self.version))
        metadata = msgspec.structs.replace(metadata, annotations=dict(self.annotations) or None)
        return Lease(metadata=metadata, spec=msgspec.convert(self.spec, LeaseSpec))

    async def create(self, resource: Any, key: str, body: dict[str, Any]) -> Lease:
        """Write the first version."""
        if self.spec is not None:
            raise AlreadyExists(409, "AlreadyExists", key)
        self.spec = body["spec"]
        return await self.get(resource, key)

    async def patch(self, resource: Any, key: str, body: dict[str, Any]) -> Lease:
        """Write the next version if the one that was read is current."""
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", key)
        self.annotations |= body["metadata"].get("annotations", {})
        self.change_lease(**body["spec"])
        return await self.get(resource, key)

    def change_lease(self, **spec: Any) -> None:
        """Change the Lease from outside."""
        self.version += 1
        self.spec = {**(self.spec or {}), **spec}

    def __getitem__(self, name: str) -> Any:
        assert self.spec is not None
        return self.spec[name]


def lease(store: FakeLeases, identity: str = "ours", *, duration: float = 15.0) -> LeaseLock:
    """A lock."""
    return LeaseLock(cast(Client, store), KEY, identity=identity, duration=duration)


async def test_an_absent_lease_is_created_and_renewed() -> None:
    """A renewal changes only its time."""
    store = FakeLeases()
    ours = lease(store)
    assert await ours.try_acquire()
    before = dict(store.spec or {})
    assert before["holderIdentity"] == "ours"
    assert before["leaseTransitions"] == 0
    assert await ours.try_acquire()
    assert {**(store.spec or {}), "renewTime": ""} == {**before, "renewTime": ""}


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
async def test_a_holder_expires_by_the_candidates_own_clock(renewed: str) -> None:
    """The times in the record are ignored; the time for which the record is unchanged counts."""
    store = FakeLeases(holderIdentity="theirs", leaseDurationSeconds=20, renewTime=renewed, leaseTransitions=3)
    ours = lease(store)
    assert not await ours.try_acquire()
    await asyncio.sleep(19.9)
    assert not await ours.try_acquire()  # the holder's duration, not the candidate's
    await asyncio.sleep(0.2)
    assert await ours.try_acquire()
    assert (store["holderIdentity"], store["leaseTransitions"], store["leaseDurationSeconds"]) == ("ours", 4, 15)


async def test_a_holder_that_renews_keeps_the_lease() -> None:
    """Any change of the record restarts the wait; a change of its metadata does not."""
    store = FakeLeases(holderIdentity="theirs", leaseDurationSeconds=15, renewTime="0")
    ours = lease(store)
    for beat in range(20):
        store.change_lease(renewTime=str(beat))
        assert not await ours.try_acquire()
        await asyncio.sleep(10)
    store.change_lease()
    assert not await ours.try_acquire()
    await asyncio.sleep(5.1)
    assert await ours.try_acquire()


async def test_a_record_without_a_duration_has_the_candidates_own() -> None:
    """If the record has no duration, the candidate waits for its own duration."""
    store = FakeLeases(holderIdentity="theirs")
    ours = lease(store)
    assert not await ours.try_acquire()
    await asyncio.sleep(14.9)
    assert not await ours.try_acquire()
    await asyncio.sleep(0.2)
    assert await ours.try_acquire()


async def test_a_lost_race_is_a_conflict() -> None:
    """A write of another candidate between the read and the write raises Conflict."""
    store = FakeLeases(holderIdentity="", leaseDurationSeconds=1)
    read = store.get

    async def overtaken(resource: Any, key: str) -> Lease:
        found = await read(resource, key)
        store.change_lease(holderIdentity="faster")
        return found

    store.get = overtaken  # type: ignore[method-assign]  # only of this object
    with pytest.raises(Conflict):
        await lease(store).try_acquire()
    assert store["holderIdentity"] == "faster"


async def test_only_the_holder_releases() -> None:
    """The next candidate need not wait; the lease of another holder is not changed."""
    store = FakeLeases()
    ours, next_ = lease(store), lease(store, "next")
    await ours.release()
    assert store.spec is None
    await ours.try_acquire()
    await next_.release()
    assert store["holderIdentity"] == "ours"
    await ours.release()
    assert store["holderIdentity"] == ""
    assert await next_.try_acquire()
    assert store["leaseTransitions"] == 1


@pytest.mark.parametrize("given_back", [True, False])
async def test_a_lease_of_another_term_is_not_renewed(given_back: bool) -> None:
    """The lease is not renewed while another candidate holds it, nor after that candidate's release."""
    store = FakeLeases()
    ours, theirs = lease(store), lease(store, "theirs")
    assert await ours.try_acquire()
    assert await ours.try_renew()
    assert not await theirs.try_acquire()
    await asyncio.sleep(15.1)
    assert await theirs.try_acquire()
    if given_back:
        await theirs.release()
    assert not await ours.try_renew()
    assert await ours.try_acquire() is given_back
    assert await ours.try_renew() is given_back


async def test_a_deleted_lease_is_not_renewed() -> None:
    """A renewal fails after a deletion, because another candidate may create the lease next."""
    store = FakeLeases()
    ours = lease(store)
    assert await ours.try_acquire()
    store.spec = None
    assert not await ours.try_renew()
