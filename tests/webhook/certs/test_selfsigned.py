"""Rotation: one CA for all replicas, leaves in time, and the bundle before the leaf."""

import asyncio
from base64 import b64decode, b64encode
from datetime import timedelta

import pytest

from kavip.errors import NotFound, Unavailable
from kavip.pki import certificates
from kavip.webhook.certs.selfsigned import CHECK_EVERY
from tests.pki.secrets import issued
from tests.webhook.certs.replicas import MINUTE, NOW, OneSecret, Replica, trusted


async def test_replicas_that_start_at_once_agree_on_one_ca() -> None:
    """Whoever loses the race to create the Secret takes the winner's CA, and all leaves are trusted by all."""
    api = OneSecret()
    replicas = [Replica(api) for _ in range(4)]
    await asyncio.gather(*(replica.tick() for replica in replicas))
    assert api.calls["create"] == len(replicas)
    assert len({replica.bundle for replica in replicas}) == 1
    assert all(trusted(replica.leaf, replicas[0].bundle) for replica in replicas)


async def test_nothing_is_done_when_nothing_is_due() -> None:
    """A minute later the leaf is the same, and the Secret has been read, not written."""
    api = OneSecret()
    replica = Replica(api)
    assert await replica.tick() == ["leaf", "bundle"]
    assert await replica.tick(MINUTE) == ["bundle"]
    assert api.calls["create"] + api.calls["patch"] == 1


async def test_a_leaf_is_renewed_in_time_after_a_pause() -> None:
    """A process that slept through the moment of renewal renews at the next look."""
    replica = Replica(OneSecret())
    await replica.tick()
    first = replica.leaf
    assert await replica.tick(certificates.LEAF_LIFE) == ["bundle", "leaf"]
    assert replica.leaf != first
    assert not certificates.due(replica.leaf.certificate, replica.now)


async def test_a_renewed_ca_is_published_beside_the_old_one_and_served_later() -> None:
    """At every moment of a renewal every replica's leaf is trusted by whatever any replica has published."""
    api = OneSecret()
    renewal = certificates.CA_LIFE * 2 / 3
    one, other = Replica(api), Replica(api)
    await one.tick()
    await other.tick()
    for replica in (one, other):  # leaves are fresh, so that only the CA is due
        await replica.tick(renewal - timedelta(days=1))
    bundles, leaves = {one.bundle}, [one.leaf, other.leaf]
    old = one.bundle
    for replica in (one, other, one, other):
        assert "leaf" not in await replica.tick(timedelta(days=1) if replica.bundle == old else timedelta(seconds=10))
        bundles.add(replica.bundle)
        assert all(trusted(leaf, replica.bundle) for leaf in leaves)
    assert len(bundles) == 2
    assert len(certificates.read_bundle(one.bundle)) == 2
    for replica in (one, other):
        assert await replica.tick(MINUTE) == ["bundle", "leaf"]
        assert all(trusted(each.leaf, one.bundle) for each in (one, other))
        assert not trusted(replica.leaf, old)
    assert api.calls["patch"] == 1


async def test_a_secret_that_cannot_be_used_is_replaced() -> None:
    """An empty one, garbage, the key of another CA, a CA that may not sign: a new CA is made, and a leaf follows."""
    other = certificates.new_ca(NOW)
    mixed = {"tls.crt": certificates.new_ca(NOW).certificate_pem, "tls.key": other.key_pem}
    mute = issued(None, NOW)  # it may sign nothing
    fruitless = {"tls.crt": mute.certificate_pem, "tls.key": mute.key_pem}
    for data in ({}, {"tls.crt": b"garbage", "tls.key": b"garbage"}, mixed, fruitless):
        api = OneSecret()
        await api.create(None, "", {"data": {name: b64encode(value).decode() for name, value in data.items()}})
        replica = Replica(api)
        await replica.tick()
        assert trusted(replica.leaf, replica.bundle)
        assert api.calls["patch"] == 1


async def test_a_deleted_secret_is_a_renewal_without_a_gap() -> None:
    """When somebody deletes the Secret, every leaf stays trusted, even where a replica without a past is the first."""
    api = OneSecret()
    old = [Replica(api), Replica(api)]
    for replica in old:
        await replica.tick()
    first = old[0].bundle
    api.secret = None
    fresh = Replica(api)
    for replica in (fresh, *old):
        await replica.tick()
        assert all(trusted(each.leaf, api.trusted) for each in (fresh, *old))
    assert not trusted(fresh.leaf, first)
    for replica in old:
        assert await replica.tick(MINUTE) == ["bundle", "leaf"]
        assert trusted(replica.leaf, api.trusted)
        assert not trusted(replica.leaf, first)


async def test_a_secret_deleted_again_and_again_does_not_grow_the_bundle() -> None:
    """Two authorities are kept beside the new one."""
    api = OneSecret()
    replica = Replica(api)
    for _ in range(5):
        api.secret = None
        await replica.tick(MINUTE)
    assert len(certificates.read_bundle(api.trusted)) == 3


async def test_an_old_authority_is_taken_out_by_hand() -> None:
    """Without ca.crt in the Secret, the CA itself is all that is trusted; nobody has to change his leaf."""
    api = OneSecret()
    replica = Replica(api)
    await replica.tick()
    api.lose()
    for _ in range(2):
        await replica.tick(MINUTE)
    assert len(certificates.read_bundle(api.trusted)) == 2
    assert api.secret is not None
    await api.patch(None, "", {"metadata": {}, "data": {"ca.crt": None}})
    assert await replica.tick(MINUTE) == ["bundle"]
    assert len(certificates.read_bundle(api.trusted)) == 1
    assert trusted(replica.leaf, api.trusted)


async def test_a_secret_of_a_stranger_is_followed_at_once() -> None:
    """When the Secret is replaced by one that does not name our CA, nobody trusts our leaf any more."""
    api = OneSecret()
    replica = Replica(api)
    await replica.tick()
    stranger = OneSecret()
    await Replica(stranger).tick()
    api.secret = stranger.secret
    assert await replica.tick(MINUTE) == ["leaf", "bundle"]
    assert trusted(replica.leaf, replica.bundle)


async def test_a_leaf_is_served_though_nothing_can_be_published() -> None:
    """Without webhook configurations kavip still serves, and goes on trying."""
    api = OneSecret()
    replica = Replica(api)
    replica.publishing = NotFound(404, "NotFound", "no configuration")
    with pytest.raises(NotFound):
        await replica.tick()
    assert api.secret is not None
    assert trusted(replica.leaf, b64decode((api.secret.data or {})["ca.crt"]))


@pytest.mark.looptime
async def test_a_failure_is_tried_again_soon_and_success_is_checked_now_and_then() -> None:
    """Two seconds after a failure, longer after success."""
    replica = Replica(OneSecret())
    replica.publishing = Unavailable(0, "Unavailable", "no answer")
    task = asyncio.create_task(replica.rotation.run())
    await asyncio.sleep(1)
    replica.publishing = None
    assert [what for what, _ in replica.done] == ["leaf"]
    await asyncio.sleep(2)
    assert [what for what, _ in replica.done] == ["leaf", "bundle"]
    await asyncio.sleep(2 * CHECK_EVERY)
    assert [what for what, _ in replica.done] == ["leaf", "bundle", "bundle", "bundle"]
    task.cancel()
