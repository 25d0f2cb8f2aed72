"""How a lease is judged, on virtual time, over a store that knows nothing but versions."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from kavip.api.lease import Lease, LeaseSpec
from kavip.api.meta import Metadata
from kavip.errors import AlreadyExists, Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.lease import ApiLease

pytestmark = pytest.mark.looptime

KEY = "kavip/kavip-controller"


class Store:
    """One Lease, written as the API server writes it."""

    def __init__(self, **spec: Any) -> None:
        self.version = 1
        self.spec: dict[str, Any] | None = spec or None

    async def get(self, resource: Any, key: str) -> Lease:
        """The Lease, or NotFound."""
        assert key == KEY
        if self.spec is None:
            raise NotFound(404, "NotFound", key)
        metadata = Metadata(name="kavip-controller", namespace="kavip", resource_version=str(self.version))
        return Lease(metadata=metadata, spec=msgspec.convert(self.spec, LeaseSpec))

    async def create(self, resource: Any, key: str, body: dict[str, Any]) -> Lease:
        """Write the first version."""
        if self.spec is not None:
            raise AlreadyExists(409, "AlreadyExists", key)
        self.spec = body["spec"]
        return await self.get(resource, key)

    async def patch(self, resource: Any, key: str, body: dict[str, Any]) -> Lease:
        """Write the next version, if the one that was read still stands."""
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", key)
        self.touch(**body["spec"])
        return await self.get(resource, key)

    def touch(self, **spec: Any) -> None:
        """Change the Lease from outside."""
        self.version += 1
        self.spec = {**(self.spec or {}), **spec}

    def __getitem__(self, name: str) -> Any:
        assert self.spec is not None
        return self.spec[name]


def lease(store: Store, identity: str = "ours", *, duration: float = 15.0) -> ApiLease:
    """A candidate."""
    return ApiLease(cast(Client, store), KEY, identity=identity, duration=duration)


async def test_an_absent_lease_is_created_and_renewed() -> None:
    """A renewal changes its time and nothing else."""
    store = Store()
    ours = lease(store)
    assert await ours.try_hold()
    before = dict(store.spec or {})
    assert before["holderIdentity"] == "ours"
    assert before["leaseTransitions"] == 0
    assert await ours.try_hold()
    assert {**(store.spec or {}), "renewTime": ""} == {**before, "renewTime": ""}


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
async def test_only_our_own_clock_says_that_a_holder_is_dead(renewed: str) -> None:
    """The time in the record may be centuries off: what counts is how long we have seen it unchanged."""
    store = Store(holderIdentity="theirs", leaseDurationSeconds=20, renewTime=renewed, leaseTransitions=3)
    ours = lease(store)
    assert not await ours.try_hold()
    await asyncio.sleep(19.9)
    assert not await ours.try_hold()  # their duration, not ours
    await asyncio.sleep(0.2)
    assert await ours.try_hold()
    assert (store["holderIdentity"], store["leaseTransitions"], store["leaseDurationSeconds"]) == ("ours", 4, 15)


async def test_a_holder_that_renews_keeps_the_lease() -> None:
    """Any change of the record starts the wait again; a change of its metadata is none."""
    store = Store(holderIdentity="theirs", leaseDurationSeconds=15, renewTime="0")
    ours = lease(store)
    for beat in range(20):
        store.touch(renewTime=str(beat))
        assert not await ours.try_hold()
        await asyncio.sleep(10)
    store.touch()
    assert not await ours.try_hold()
    await asyncio.sleep(5.1)
    assert await ours.try_hold()


async def test_a_record_without_a_duration_lasts_as_long_as_ours() -> None:
    """Somebody else's client may leave it out."""
    store = Store(holderIdentity="theirs")
    ours = lease(store)
    assert not await ours.try_hold()
    await asyncio.sleep(14.9)
    assert not await ours.try_hold()
    await asyncio.sleep(0.2)
    assert await ours.try_hold()


async def test_who_is_too_slow_does_not_hold() -> None:
    """Between reading and writing another has come: 409."""
    store = Store(holderIdentity="", leaseDurationSeconds=1)
    read = store.get

    async def overtaken(resource: Any, key: str) -> Lease:
        found = await read(resource, key)
        store.touch(holderIdentity="faster")
        return found

    store.get = overtaken  # type: ignore[method-assign]  # of this one alone
    with pytest.raises(Conflict):
        await lease(store).try_hold()
    assert store["holderIdentity"] == "faster"


async def test_releasing_frees_what_is_ours_and_nothing_else() -> None:
    """The next candidate need not wait; a lease that has another holder by now is left alone."""
    store = Store()
    ours, next_ = lease(store), lease(store, "next")
    await ours.release()
    assert store.spec is None
    await ours.try_hold()
    await next_.release()
    assert store["holderIdentity"] == "ours"
    await ours.release()
    assert store["holderIdentity"] == ""
    assert await next_.try_hold()
    assert store["leaseTransitions"] == 1


@pytest.mark.parametrize("given_back", [True, False])
async def test_what_somebody_else_has_had_is_not_renewed(given_back: bool) -> None:
    """Neither while he holds it nor after he has given it back: that is a new term, to be begun as one."""
    store = Store()
    ours, theirs = lease(store), lease(store, "theirs")
    assert await ours.try_hold()
    assert await ours.try_renew()
    assert not await theirs.try_hold()
    await asyncio.sleep(15.1)
    assert await theirs.try_hold()
    if given_back:
        await theirs.release()
    assert not await ours.try_renew()
    assert await ours.try_hold() is given_back
    assert await ours.try_renew() is given_back


async def test_a_lease_that_is_gone_is_not_renewed() -> None:
    """Somebody has deleted it: whoever creates it next may be another."""
    store = Store()
    ours = lease(store)
    assert await ours.try_hold()
    store.spec = None
    assert not await ours.try_renew()
