"""A webhook that hands its bundle to the controller: no CA is lost, and the controller injects nothing but CAs."""

import asyncio
from datetime import timedelta

import pytest
import structlog

from kavip import names
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.pki import cabundleconfigmap, certificates
from kavip.pki.trustbundle import UNKNOWN_CA_LIFETIME, encode_pem, parse_bundle
from kavip.webhook.certs.provided import ProvidedCertificates, PublishedTrust
from kavip.webhook.certs.selfsigned import PROPAGATION
from tests.pki.secrets import HOST, secret_of
from tests.webhook.certs.replicas import MINUTE, NOW, Replica, is_trusted
from tests.webhook.certs.splitcluster import KEY, SplitCluster

TEN = timedelta(seconds=10)
AWAITED = f"caBundle not published yet: the leader of the controller has not injected ConfigMap {KEY}; see its log"


async def test_a_replica_is_ready_when_the_controller_has_injected() -> None:
    """The replica serves and hands its CA over at once; readiness says what it waits for."""
    api = SplitCluster()
    api.has_controller = False
    replica = Replica(api, "a")
    assert await replica.reconcile() == ["leaf"]
    assert api.trusted == b""
    assert replica.authority.unready() == AWAITED
    api.has_controller = True
    await replica.reconcile(MINUTE)
    assert is_trusted(replica.leaf, api.trusted)
    assert replica.authority.unready() == ""


async def test_a_restarted_replica_needs_no_controller() -> None:
    """caBundle has the CA of the Secret already, so the new replica is ready at its first reconcile."""
    api = SplitCluster()
    await Replica(api, "a").reconcile()
    api.has_controller, before = False, api.text()
    replica = Replica(api, "b")
    await replica.reconcile()
    assert replica.authority.unready() == ""
    assert is_trusted(replica.leaf, api.trusted)
    assert api.text() == before


async def test_propagation_begins_when_ca_bundle_has_the_new_ca() -> None:
    """During a rotation without a controller every replica keeps its leaf; 30 s after the injection it changes."""
    api = SplitCluster()
    replica = Replica(api, "a")
    await replica.reconcile()
    first = replica.leaf
    api.has_controller = False
    api.annotate(names.ROTATE_ANNOTATION, "true")
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            assert await replica.reconcile(MINUTE) == []
            assert replica.authority.unready() == ""
    waits = [each["awaited"] for each in logs if each["event"] == "new CA waits for its injection"]
    assert waits == [AWAITED.partition(": ")[2]], "logged once"
    assert len(cabundleconfigmap.decode(api.text() or "")) == 2
    api.has_controller = True
    assert await replica.reconcile() == []
    assert await replica.reconcile(PROPAGATION - TEN) == []
    assert is_trusted(first, api.trusted)
    assert await replica.reconcile(TEN) == ["leaf"]
    assert is_trusted(replica.leaf, api.trusted)
    assert parse_bundle(api.trusted) == cabundleconfigmap.decode(api.text() or "")
    assert len(parse_bundle(api.trusted)) == 1


async def test_an_expired_leaf_is_replaced_without_a_controller() -> None:
    """An expired leaf is of no use, so the new one does not wait."""
    api = SplitCluster()
    replica = Replica(api, "a")
    await replica.reconcile()
    api.has_controller = False
    api.annotate(names.ROTATE_ANNOTATION, "true")
    assert await replica.reconcile(certificates.LEAF_LIFETIME * 3 / 4) == []
    assert await replica.reconcile(certificates.LEAF_LIFETIME / 4) == ["leaf"]


async def test_an_emptied_bundle_is_restored() -> None:
    """The controller restores it from the ConfigMap, and the replica the ConfigMap; the replica stays ready."""
    api = SplitCluster()
    replica = Replica(api, "a")
    await replica.reconcile()
    first, text = api.trusted, api.text()
    api.trusted = b""
    assert await replica.reconcile(TEN) == []
    assert api.trusted == first
    for rubbish in ("", "rubbish", None):
        if rubbish is None:
            api.configmap = None
        else:
            api.write(rubbish)
        await replica.reconcile(TEN)
        assert api.text() == text
        assert api.trusted == first
        assert replica.authority.unready() == ""


async def test_two_replicas_that_write_at_once_lose_no_ca() -> None:
    """Each has another version of the Secret; the slower write is refused, and merged again."""
    for existing in (False, True):
        api = SplitCluster()
        if existing:
            api.write(encode_pem([certificates.new_ca(NOW).certificate]).decode())
        cas = [certificates.new_ca(NOW) for _ in range(4)]
        managers = []
        for each in cas:
            secret = secret_of(certificates.new_leaf(each, [HOST], NOW), ca=each.certificate_pem)
            trust = PublishedTrust(api.publisher_of(Replica(api)), clock=lambda: NOW)

            def read(secret: object = secret) -> object:
                return secret

            managers.append(
                ProvidedCertificates(
                    read,  # type: ignore[arg-type]  # a Secret
                    secret="kavip/tls",
                    host=HOST,
                    remedy="write a better one",
                    serve=lambda _: None,
                    trust=trust,
                    clock=lambda: NOW,
                )
            )
        await asyncio.gather(*(manager.reconcile() for manager in managers))
        assert {each.certificate for each in cas} <= {*cabundleconfigmap.decode(api.text() or "")}
        assert managers[0].unready() == f"caBundle does not trust the certificate yet; {AWAITED.partition(': ')[2]}"
        await api.run_controller(NOW)
        await asyncio.gather(*(manager.reconcile() for manager in managers))
        assert [manager.unready() for manager in managers] == [""] * len(managers)


async def test_a_ca_that_was_not_handed_over_stays_for_a_while() -> None:
    """It may belong to replicas that inject caBundle themselves, also if the ConfigMap is older than these."""
    api = SplitCluster()
    outdated, direct = (certificates.new_ca(NOW).certificate for _ in range(2))
    api.write(cabundleconfigmap.encode([outdated]))
    api.trusted = encode_pem([direct])
    await api.run_controller(NOW)
    assert {*parse_bundle(api.trusted)} == {outdated, direct}
    dropped = {names.DROPPED_CAS_KEY: cabundleconfigmap.encode([outdated])}
    api.write(cabundleconfigmap.encode([certificates.new_ca(NOW).certificate]), **dropped)
    await api.run_controller(NOW + UNKNOWN_CA_LIFETIME - TEN)
    assert direct in parse_bundle(api.trusted)
    assert outdated not in parse_bundle(api.trusted), "what the ConfigMap had is removed at once"
    await api.run_controller(NOW + UNKNOWN_CA_LIFETIME)
    assert direct not in parse_bundle(api.trusted)


async def test_malformed_dropped_cas_change_nothing() -> None:
    """The problem names the key; the webhook's next reconcile removes it."""
    api = SplitCluster()
    replica = Replica(api, "a")
    await replica.reconcile()
    before, data = api.trusted, api.data()
    for rubbish in ("", "rubbish"):
        api.write(api.text() or "", **{names.DROPPED_CAS_KEY: rubbish})
        with pytest.raises(BadInput, match=r"'dropped\.crt': is malformed; want certificates as PEM"):
            await api.run_controller(NOW)
        assert api.trusted == before
        api.has_controller = False
        await replica.reconcile(TEN)
        api.has_controller = True
        assert api.data() == data


async def test_another_leader_continues() -> None:
    """Its first look at the ConfigMap comes when the previous CA is dropped: it removes that CA at once."""
    api = SplitCluster()
    replica = Replica(api, "a")
    await replica.reconcile()
    api.annotate(names.ROTATE_ANNOTATION, "true")
    await replica.reconcile(TEN)
    api.has_controller = False
    await replica.reconcile(MINUTE)
    assert api.annotations == {}
    assert len(cabundleconfigmap.decode(api.text() or "")) == 1
    assert len(parse_bundle(api.trusted)) == 2
    assert names.DROPPED_CAS_KEY in (api.data() or {})
    api.restart_controller()
    api.has_controller = True
    await replica.reconcile()
    assert len(parse_bundle(api.trusted)) == 1
    assert is_trusted(replica.leaf, api.trusted)
    await replica.reconcile(TEN)
    assert names.DROPPED_CAS_KEY not in (api.data() or {}), "caBundle no longer has it"


async def test_an_injection_is_logged_once() -> None:
    """One line with the number of CAs when they change, and none at the reconciles that change nothing."""
    api = SplitCluster()
    with structlog.testing.capture_logs() as logs:
        for cas in ([certificates.new_ca(NOW).certificate], [certificates.new_ca(NOW).certificate for _ in range(2)]):
            api.write(cabundleconfigmap.encode(cas))
            api.trusted = b""
            for _ in range(3):
                await api.run_controller(NOW)
    injected = [each["authorities"] for each in logs if each["event"] == "caBundle injected"]
    assert injected == [1, 2]


@pytest.mark.looptime
async def test_rubbish_is_reported_once_and_changes_nothing() -> None:
    """One Event for each problem, however often it is seen; the last bundle stays."""
    api = SplitCluster()
    await Replica(api, "a").reconcile()
    before = api.trusted
    api.write("rubbish")
    with pytest.raises(BadInput):
        await api.injector.reconcile()
    task = asyncio.create_task(api.injector.run())
    await asyncio.sleep(60)
    assert api.trusted == before
    problem = f"ConfigMap {KEY}: 'ca.crt': is malformed; want certificates as PEM, and nothing else"
    assert api.events == [(Reason.CERTIFICATE_UNUSABLE, problem)]
    api.write(cabundleconfigmap.encode(parse_bundle(before)))
    await asyncio.sleep(60)
    api.write("rubbish")
    await asyncio.sleep(60)
    assert api.events == [(Reason.CERTIFICATE_UNUSABLE, problem)] * 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
