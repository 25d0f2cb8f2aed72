"""A new CA: published beside the previous one, confirmed by every replica, and then alone."""

import asyncio
from base64 import b64encode
from datetime import timedelta

import pytest

from kavip import names
from kavip.errors import Forbidden
from kavip.kube.resources import SECRETS
from kavip.names import Reason
from kavip.pki import ca, certificates
from kavip.pki.trustbundle import UNKNOWN_CA_LIFETIME, encode_pem, parse_bundle
from tests.webhook.certs.replicas import MINUTE, NOW, OneSecret, Replica, is_trusted
from tests.webhook.certs.splitcluster import SplitCluster

TEN = timedelta(seconds=10)


@pytest.fixture(name="api", params=[OneSecret, SplitCluster])
def _api(request: pytest.FixtureRequest) -> OneSecret:
    """A cluster in which replicas publish themselves, and one in which the controller does."""
    found = request.param()
    assert isinstance(found, OneSecret)
    return found


def everywhere(*replicas: Replica) -> bool:
    """Whether the published bundle trusts the leaf of each replica."""
    return all(is_trusted(each.leaf, each.api.trusted) for each in replicas)


def authorities(api: OneSecret) -> int:
    """How many CAs the API server trusts."""
    return len(parse_bundle(api.trusted))


async def started(api: OneSecret, *replica_names: str) -> list[Replica]:
    """Replicas behind the Service that serve leaves of one CA."""
    replicas = [Replica(api, name) for name in replica_names]
    for each in replicas:
        await each.reconcile()
    return replicas


async def test_nothing_is_confirmed_while_there_is_one_ca(api: OneSecret) -> None:
    """The first start writes the Secret once, without a confirmation."""
    await started(api, "a", "b")
    assert api.annotations == {}
    assert api.calls["confirm"] == 0


async def test_the_previous_ca_is_dropped_after_the_last_confirmation(api: OneSecret) -> None:
    """At every step every leaf is trusted; without one confirmation the previous CA stays."""
    a, b = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    for each in (a, b, a, b):
        await each.reconcile(TEN)
        assert everywhere(a, b)
    assert authorities(api) == 2
    await a.reconcile(MINUTE)
    assert list(api.annotations) == [ca.confirmation_key("a")]
    assert authorities(api) == 2
    assert everywhere(a, b)
    await a.reconcile(MINUTE)
    assert authorities(api) == 2
    await b.reconcile(MINUTE)
    assert authorities(api) == 1
    assert everywhere(a, b)
    assert api.annotations == {}
    assert "leaf" not in await a.reconcile(TEN)
    assert authorities(api) == 1
    assert (Reason.CERTIFICATE_RENEWED, "CA renewed: requested by annotation") in a.events


async def test_an_ended_replica_need_not_confirm(api: OneSecret) -> None:
    """A replica that has left the Service needs no confirmation."""
    a, _gone = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.reconcile(TEN)
    await a.reconcile(MINUTE)
    assert authorities(api) == 2
    api.replicas.discard("b")
    await a.reconcile(TEN)
    assert authorities(api) == 1


async def test_a_replica_that_starts_during_a_rotation_confirms_at_once(api: OneSecret) -> None:
    """Its first leaf is of the new CA; the previous CA stays for the other replica."""
    (a,) = await started(api, "a")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.reconcile(TEN)
    (b,) = await started(api, "b")
    assert ca.confirmation_key("b") in api.annotations
    assert authorities(api) == 2
    await a.reconcile(MINUTE)
    assert authorities(api) == 1
    assert everywhere(a, b)


@pytest.mark.parametrize("unknown", [{"a", ""}, set()])
async def test_without_endpoints_the_previous_ca_expires(api: OneSecret, unknown: set[str]) -> None:
    """Without EndpointSlices, or with a nameless endpoint, the previous CA stays until all its leaves have expired."""
    (a,) = await started(api, "a")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.reconcile(TEN)
    api.replicas = unknown
    await a.reconcile(MINUTE)
    await a.reconcile(certificates.LEAF_LIFETIME)
    assert authorities(api) == 2
    await a.reconcile(ca.GRACE)
    assert authorities(api) == 1


async def test_a_confirmation_of_another_ca_does_not_count(api: OneSecret) -> None:
    """An annotation with the fingerprint of another CA is ignored."""
    (a,) = await started(api, "a")
    api.replicas.add("b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.reconcile(TEN)
    api.annotate(ca.confirmation_key("b"), "0" * 64)
    await a.reconcile(MINUTE)
    assert authorities(api) == 2


async def test_two_replicas_drop_the_previous_ca_together(api: OneSecret) -> None:
    """The slower replica gets a conflict, and succeeds at the next reconcile."""
    a, b = await started(api, "a", "b")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await a.reconcile(TEN)
    await b.reconcile(TEN)
    await asyncio.gather(a.reconcile(MINUTE), b.reconcile(MINUTE))
    await asyncio.gather(a.reconcile(TEN), b.reconcile(TEN))
    assert authorities(api) == 1
    assert everywhere(a, b)
    assert api.annotations == {}


async def test_repeated_rotations_keep_every_leaf_trusted(api: OneSecret) -> None:
    """With two previous CAs a further request waits, so the leaf of a slow replica stays trusted."""
    fast, slow = await started(api, "fast", "slow")
    for _ in range(4):
        api.annotate(names.ROTATE_ANNOTATION, "true")
        await fast.reconcile(MINUTE)
        assert everywhere(fast, slow)
    assert authorities(api) == 3
    assert names.ROTATE_ANNOTATION in api.annotations
    for each in (slow, fast) * 2:
        await each.reconcile(MINUTE)
    assert names.ROTATE_ANNOTATION not in api.annotations
    assert everywhere(fast, slow)


async def test_only_true_requests_a_rotation(api: OneSecret) -> None:
    """Any other value of the annotation changes nothing."""
    (a,) = await started(api, "a")
    api.annotate(names.ROTATE_ANNOTATION, "false")
    await a.reconcile(TEN)
    assert authorities(api) == 1
    assert api.calls["patch"] == 0


async def test_other_annotations_stay(api: OneSecret) -> None:
    """A rotation removes only kavip's own annotations."""
    (a,) = await started(api, "a")
    api.annotate("example.com/owner", "ops")
    api.annotate(names.ROTATE_ANNOTATION, "true")
    for _ in range(3):
        await a.reconcile(MINUTE)
    assert authorities(api) == 1
    assert api.annotations == {"example.com/owner": "ops"}


async def test_unknown_cas_stay_for_a_while(api: OneSecret) -> None:
    """They may belong to replicas in another mode; a CA that one replica has removed stays removed."""
    await started(api, "earlier")
    api.replicas.clear()
    others = [certificates.new_ca(NOW).certificate for _ in range(5)]  # a ca.crt can have many
    api.trusted = encode_pem(others)
    a, b = await started(api, "a", "b")
    assert {*others} <= {*parse_bundle(api.trusted)}
    assert everywhere(a, b)
    assert list(api.annotations) == []
    await a.reconcile(UNKNOWN_CA_LIFETIME - TEN)
    assert {*others} <= {*parse_bundle(api.trusted)}
    await a.reconcile(TEN)
    await b.reconcile()
    assert authorities(api) == 1
    assert everywhere(a, b)


def test_every_replica_name_gives_a_valid_annotation_key() -> None:
    """A name that is not valid in a key is replaced by a hash."""
    assert ca.confirmation_key("kavip-7d4b9-x2x") == "confirmed.kavip.io/kavip-7d4b9-x2x"
    for odd in ("a/b", "x" * 64, "", "-a", "ä"):
        key = ca.confirmation_key(odd).removeprefix("confirmed.kavip.io/")
        assert len(key) == 32
        assert int(key, 16)


async def test_a_leaf_in_the_secret_is_replaced(api: OneSecret) -> None:
    """The Secret must have a CA: API servers reject leaves that a leaf has signed."""
    leaf = certificates.new_leaf(certificates.new_ca(NOW), ["kavip"], NOW)
    data = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    await api.create(SECRETS, "", {"data": {key: b64encode(value).decode() for key, value in data.items()}})
    (a,) = await started(api, "a")
    assert everywhere(a)
    assert api.calls["patch"] == 1
    assert (Reason.CERTIFICATE_RENEWED, "CA renewed: the Secret had no usable CA") in a.events


@pytest.mark.looptime
async def test_a_problem_is_one_event_and_shown_by_readiness() -> None:
    """A persistent error gives one Event, however often it repeats; readiness has the cause."""
    replica = Replica(OneSecret(), "a")
    replica.publishing = Forbidden(403, "Forbidden", "not yours")
    for _ in range(2):
        await replica.attempt()
    assert [reason for reason, _ in replica.events].count(Reason.CERTIFICATE_UNUSABLE) == 1
    assert replica.authority.unready() == "caBundle not published yet: 403 Forbidden: not yours"
    replica.publishing = None
    await replica.attempt()
    assert replica.authority.unready() == ""
    replica.now += certificates.LEAF_LIFETIME
    assert replica.authority.unready().startswith("the certificate expired at 2026-05-08T")
