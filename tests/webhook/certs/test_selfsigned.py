"""The dynamic authority: one CA for all replicas, leaves in time, and the bundle before the leaf."""

import asyncio
from base64 import b64decode, b64encode
from datetime import timedelta

import pytest

from kavip.errors import NotFound, Unavailable
from kavip.pki import certificates
from kavip.pki.trustbundle import parse_bundle
from kavip.webhook.certs.selfsigned import RECONCILE_SECONDS
from tests.pki.secrets import issued
from tests.webhook.certs.replicas import MINUTE, NOW, OneSecret, Replica, is_trusted


async def test_replicas_that_start_at_once_agree_on_one_ca() -> None:
    """Replicas that lose the race to create the Secret use the CA of the winner."""
    api = OneSecret()
    replicas = [Replica(api) for _ in range(4)]
    await asyncio.gather(*(replica.reconcile() for replica in replicas))
    assert api.calls["create"] == len(replicas)
    assert len({replica.bundle for replica in replicas}) == 1
    assert all(is_trusted(replica.leaf, replicas[0].bundle) for replica in replicas)


async def test_nothing_is_done_when_nothing_is_due() -> None:
    """A minute later the leaf is the same, and the Secret has only been read."""
    api = OneSecret()
    replica = Replica(api)
    assert await replica.reconcile() == ["leaf", "bundle"]
    assert await replica.reconcile(MINUTE) == ["bundle"]
    assert api.calls["create"] + api.calls["patch"] == 1


async def test_a_leaf_is_renewed_after_a_suspension() -> None:
    """A process that was suspended at the time of renewal renews at the next reconcile."""
    replica = Replica(OneSecret())
    await replica.reconcile()
    first = replica.leaf
    assert await replica.reconcile(certificates.LEAF_LIFETIME) == ["bundle", "leaf"]
    assert replica.leaf != first
    assert not certificates.is_due(replica.leaf.certificate, replica.now)


async def test_a_renewed_ca_is_published_beside_the_old_one_and_served_later() -> None:
    """During a renewal every leaf is trusted by every published bundle."""
    api = OneSecret()
    renewal = certificates.CA_LIFETIME * 2 / 3
    one, other = Replica(api), Replica(api)
    await one.reconcile()
    await other.reconcile()
    for replica in (one, other):  # the leaves are new, so only the CA is due
        await replica.reconcile(renewal - timedelta(days=1))
    bundles, leaves = {one.bundle}, [one.leaf, other.leaf]
    old = one.bundle
    for replica in (one, other, one, other):
        assert "leaf" not in await replica.reconcile(
            timedelta(days=1) if replica.bundle == old else timedelta(seconds=10)
        )
        bundles.add(replica.bundle)
        assert all(is_trusted(leaf, replica.bundle) for leaf in leaves)
    assert len(bundles) == 2
    assert len(parse_bundle(one.bundle)) == 2
    for replica in (one, other):
        assert await replica.reconcile(MINUTE) == ["bundle", "leaf"]
        assert all(is_trusted(each.leaf, one.bundle) for each in (one, other))
        assert not is_trusted(replica.leaf, old)
    assert api.calls["patch"] == 1


async def test_an_unusable_secret_is_replaced() -> None:
    """Empty, malformed, with the key of another CA, or with a certificate that is no CA: a new CA is created."""
    other = certificates.new_ca(NOW)
    mixed = {"tls.crt": certificates.new_ca(NOW).certificate_pem, "tls.key": other.key_pem}
    mute = issued(None, NOW)  # not a CA
    fruitless = {"tls.crt": mute.certificate_pem, "tls.key": mute.key_pem}
    for data in ({}, {"tls.crt": b"garbage", "tls.key": b"garbage"}, mixed, fruitless):
        api = OneSecret()
        await api.create(None, "", {"data": {name: b64encode(value).decode() for name, value in data.items()}})
        replica = Replica(api)
        await replica.reconcile()
        assert is_trusted(replica.leaf, replica.bundle)
        assert api.calls["patch"] == 1


async def test_a_deleted_secret_does_not_interrupt_tls() -> None:
    """Every leaf stays trusted, also if a new replica creates the Secret again."""
    api = OneSecret()
    old = [Replica(api), Replica(api)]
    for replica in old:
        await replica.reconcile()
    first = old[0].bundle
    api.secret = None
    fresh = Replica(api)
    for replica in (fresh, *old):
        await replica.reconcile()
        assert all(is_trusted(each.leaf, api.trusted) for each in (fresh, *old))
    assert not is_trusted(fresh.leaf, first)
    for replica in old:
        assert await replica.reconcile(MINUTE) == ["bundle", "leaf"]
        assert is_trusted(replica.leaf, api.trusted)
        assert not is_trusted(replica.leaf, first)


async def test_a_secret_deleted_again_and_again_does_not_grow_the_bundle() -> None:
    """Two previous CAs are kept beside the new one."""
    api = OneSecret()
    replica = Replica(api)
    for _ in range(5):
        api.secret = None
        await replica.reconcile(MINUTE)
    assert len(parse_bundle(api.trusted)) == 3


async def test_removing_ca_crt_drops_the_previous_cas() -> None:
    """Without ``ca.crt`` only the issuing CA is trusted; no leaf changes."""
    api = OneSecret()
    replica = Replica(api)
    await replica.reconcile()
    api.delete()
    for _ in range(2):
        await replica.reconcile(MINUTE)
    assert len(parse_bundle(api.trusted)) == 2
    assert api.secret is not None
    await api.patch(None, "", {"metadata": {}, "data": {"ca.crt": None}})
    assert await replica.reconcile(MINUTE) == ["bundle"]
    assert len(parse_bundle(api.trusted)) == 1
    assert is_trusted(replica.leaf, api.trusted)


async def test_a_replaced_secret_is_used_at_once() -> None:
    """The previous leaf is no longer trusted, so a new one is served as soon as its CA is published."""
    api = OneSecret()
    replica = Replica(api)
    await replica.reconcile()
    unrelated = OneSecret()
    await Replica(unrelated).reconcile()
    api.secret = unrelated.secret
    assert await replica.reconcile(MINUTE) == ["bundle", "leaf"]
    assert is_trusted(replica.leaf, replica.bundle)


async def test_a_leaf_is_served_without_webhook_configurations() -> None:
    """kavip serves, and retries the publication."""
    api = OneSecret()
    replica = Replica(api)
    replica.publishing = NotFound(404, "NotFound", "no configuration")
    with pytest.raises(NotFound):
        await replica.reconcile()
    assert api.secret is not None
    assert is_trusted(replica.leaf, b64decode((api.secret.data or {})["ca.crt"]))


@pytest.mark.looptime
async def test_a_failure_is_retried_soon() -> None:
    """After two seconds; after a success the next reconcile is later."""
    replica = Replica(OneSecret())
    replica.publishing = Unavailable(0, "Unavailable", "no answer")
    task = asyncio.create_task(replica.authority.run())
    await asyncio.sleep(1)
    replica.publishing = None
    assert [what for what, _ in replica.done] == ["leaf"]
    await asyncio.sleep(2)
    assert [what for what, _ in replica.done] == ["leaf", "bundle"]
    await asyncio.sleep(2 * RECONCILE_SECONDS)
    assert [what for what, _ in replica.done] == ["leaf", "bundle", "bundle", "bundle"]
    task.cancel()
