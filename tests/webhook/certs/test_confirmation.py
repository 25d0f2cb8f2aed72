"""A new CA: published beside the old one, confirmed by every replica, and then alone."""

import asyncio
from base64 import b64encode
from datetime import timedelta

import pytest

from kavip import names
from kavip.errors import Forbidden
from kavip.names import Reason
from kavip.pki import ca, certificates
from kavip.pki.strangers import STAY
from tests.webhook.certs.replicas import MINUTE, NOW, OneSecret, Replica, trusted

TEN = timedelta(seconds=10)


def everywhere(*replicas: Replica) -> bool:
    """Whether each replica's leaf is trusted by what is published."""
    return all(trusted(each.leaf, each.api.trusted) for each in replicas)


def authorities(api: OneSecret) -> int:
    """How many CAs the API server trusts."""
    return len(certificates.read_bundle(api.trusted))


async def started(api: OneSecret, *replica_names: str) -> list[Replica]:
    """Replicas that serve leaves of one CA, behind the Service."""
    replicas = [Replica(api, name) for name in replica_names]
    for each in replicas:
        await each.tick()
    return replicas


async def test_nothing_is_confirmed_while_there_is_one_ca() -> None:
    """A first start writes the Secret once, and no note."""
    api = OneSecret()
    await started(api, "a", "b")
    assert api.annotations == {}
    assert api.calls["confirm"] == 0


async def test_the_old_ca_goes_when_the_last_replica_has_confirmed() -> None:
    """At every step every leaf is trusted; a replica that does not confirm keeps the old CA where it is."""
    api = OneSecret()
    a, b = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    for each in (a, b, a, b):
        await each.tick(TEN)
        assert everywhere(a, b)
    assert authorities(api) == 2
    await a.tick(MINUTE)
    assert list(api.annotations) == [ca.note("a")]
    assert authorities(api) == 2
    assert everywhere(a, b)
    await a.tick(MINUTE)
    assert authorities(api) == 2
    await b.tick(MINUTE)
    assert authorities(api) == 1
    assert everywhere(a, b)
    assert api.annotations == {}
    assert await a.tick(TEN) == ["bundle"]
    assert authorities(api) == 1
    assert (Reason.CERTIFICATE_RENEWED, "CA renewed: asked for by annotation") in a.told


async def test_a_replica_that_is_gone_need_not_confirm() -> None:
    """Who no longer stands behind the Service is not waited for."""
    api = OneSecret()
    a, _gone = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.tick(TEN)
    await a.tick(MINUTE)
    assert authorities(api) == 2
    api.standing.discard("b")
    await a.tick(TEN)
    assert authorities(api) == 1


async def test_a_replica_that_comes_meanwhile_confirms_at_once() -> None:
    """Its first leaf is of the new CA already; the old one stays for those that serve the old."""
    api = OneSecret()
    (a,) = await started(api, "a")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.tick(TEN)
    (b,) = await started(api, "b")
    assert ca.note("b") in api.annotations
    assert authorities(api) == 2
    await a.tick(MINUTE)
    assert authorities(api) == 1
    assert everywhere(a, b)


async def test_where_nobody_can_be_counted_time_decides() -> None:
    """Without EndpointSlices, or with an endpoint of no name, the old CA stays until every leaf of it has ended."""
    for unknown in ({"a", ""}, set[str]()):
        api = OneSecret()
        (a,) = await started(api, "a")
        api.annotate(names.ROTATE_ANNOTATION, "true")
        await a.tick(TEN)
        api.standing = unknown
        await a.tick(MINUTE)
        await a.tick(certificates.LEAF_LIFE)
        assert authorities(api) == 2
        await a.tick(ca.GRACE)
        assert authorities(api) == 1


async def test_a_confirmation_of_another_ca_does_not_count() -> None:
    """A note that names the fingerprint of an older CA is none for the one that signs now."""
    api = OneSecret()
    (a,) = await started(api, "a")
    api.standing.add("b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.tick(TEN)
    api.annotate(ca.note("b"), "0" * 64)
    await a.tick(MINUTE)
    assert authorities(api) == 2


async def test_two_replicas_that_conclude_at_once_write_once() -> None:
    """The slower one finds the Secret changed, and all is well at its next look."""
    api = OneSecret()
    a, b = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.tick(TEN)
    await b.tick(TEN)
    await asyncio.gather(a.tick(MINUTE), b.tick(MINUTE))
    await asyncio.gather(a.tick(TEN), b.tick(TEN))
    assert authorities(api) == 1
    assert everywhere(a, b)
    assert api.annotations == {}


async def test_rotations_one_after_the_other_cut_nobody_off() -> None:
    """A wish while two old CAs stand already waits; the leaf of a slow replica stays trusted."""
    api = OneSecret()
    fast, slow = await started(api, "fast", "slow")
    for _ in range(4):
        api.annotate(names.ROTATE_ANNOTATION, "true")
        await fast.tick(MINUTE)
        assert everywhere(fast, slow)
    assert authorities(api) == 3
    assert names.ROTATE_ANNOTATION in api.annotations
    for each in (slow, fast) * 2:
        await each.tick(MINUTE)
    assert names.ROTATE_ANNOTATION not in api.annotations
    assert everywhere(fast, slow)


async def test_a_wish_is_the_word_true() -> None:
    """Any other value of the annotation changes nothing."""
    api = OneSecret()
    (a,) = await started(api, "a")
    api.annotate(names.ROTATE_ANNOTATION, "false")
    await a.tick(TEN)
    assert authorities(api) == 1
    assert api.calls["patch"] == 0


async def test_the_notes_of_others_stay() -> None:
    """Annotations that are none of kavip's survive a rotation and its end."""
    api = OneSecret()
    (a,) = await started(api, "a")
    api.annotate("example.com/owner", "ops")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    for _ in range(3):
        await a.tick(MINUTE)
    assert authorities(api) == 1
    assert api.annotations == {"example.com/owner": "ops"}


async def test_replicas_of_another_mode_are_not_cut_off() -> None:
    """What caBundle holds of others stays for a while; whoever takes it out first is followed."""
    api = OneSecret()
    await started(api, "earlier")
    api.standing.clear()
    others = [certificates.new_ca(NOW).certificate for _ in range(5)]  # a ca.crt may hold many
    api.trusted = certificates.pem(others)
    a, b = await started(api, "a", "b")
    assert {*others} <= {*certificates.read_bundle(api.trusted)}
    assert everywhere(a, b)
    assert list(api.annotations) == []
    await a.tick(STAY - TEN)
    assert {*others} <= {*certificates.read_bundle(api.trusted)}
    await a.tick(TEN)
    await b.tick()
    assert authorities(api) == 1
    assert everywhere(a, b)


def test_any_name_of_a_replica_makes_a_key() -> None:
    """A name that no annotation may carry is replaced by a digest of it; others are seen."""
    assert ca.note("kavip-7d4b9-x2x") == "confirmed.kavip.io/kavip-7d4b9-x2x"
    for odd in ("a/b", "x" * 64, "", "-a", "ä"):
        key = ca.note(odd).removeprefix("confirmed.kavip.io/")
        assert len(key) == 32
        assert int(key, 16)


async def test_a_leaf_is_no_authority() -> None:
    """A Secret with a certificate that may not sign is replaced: no API server would trust what it signs."""
    api = OneSecret()
    leaf = certificates.new_leaf(certificates.new_ca(NOW), ["kavip"], NOW)
    data = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    await api.create(None, "", {"data": {key: b64encode(value).decode() for key, value in data.items()}})
    (a,) = await started(api, "a")
    assert everywhere(a)
    assert api.calls["patch"] == 1
    assert (Reason.CERTIFICATE_RENEWED, "CA renewed: the Secret held none that can be used") in a.told


@pytest.mark.looptime
async def test_what_is_wrong_is_told_once_and_shown_by_readiness() -> None:
    """An error that time does not mend makes one Event, however often it comes; readiness gives the reason."""
    replica = Replica(OneSecret(), "a")
    replica.publishing = Forbidden(403, "Forbidden", "not yours")
    for _ in range(2):
        await replica.attempt()
    assert [reason for reason, _ in replica.told].count(Reason.CERTIFICATE_UNUSABLE) == 1
    assert replica.rotation.unready() == "caBundle not published yet: 403 Forbidden: not yours"
    replica.publishing = None
    await replica.attempt()
    assert replica.rotation.unready() == ""
    replica.now += certificates.LEAF_LIFE
    assert replica.rotation.unready().startswith("the certificate ended at 2026-05-08T")
