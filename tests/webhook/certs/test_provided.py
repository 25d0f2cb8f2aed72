"""Provided certificates: which one is served, when, and that a change never interrupts TLS."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509

from kavip.api.cluster import Secret
from kavip.errors import NotFound
from kavip.names import Reason
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.provided import ProvidedCertificate
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import UNKNOWN_CA_LIFETIME, encode_pem
from kavip.pki.verification import is_trusted
from kavip.webhook.certs.cabundle import Merge
from kavip.webhook.certs.provided import ProvidedCertificates, PublishedTrust, TrustManager
from kavip.webhook.certs.selfsigned import PROPAGATION
from tests.pki.secrets import HOST, secret_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SOON = timedelta(seconds=10)
SECRET = "kavip/tls"


@dataclass
class FakeCluster:
    """A Secret, the CAs that the API server trusts, and the time."""

    now: datetime = NOW
    secret: Secret | str = "does not exist"
    trusted: list[x509.Certificate] = field(default_factory=list)
    installed: bool = True
    is_registered: bool = True

    async def published(self) -> list[x509.Certificate]:
        """The CAs that the API server trusts."""
        return self.trusted if self.installed else []

    @property
    def awaited(self) -> str:
        """Nothing."""
        return ""

    async def publish(self, merge: Merge) -> Trust:
        """Replace them."""
        if not self.installed:
            raise NotFound(404, "NotFound", "no configuration")
        self.trusted = list(merge(self.trusted))
        return Trust(self.trusted)

    def fill(self, ca: KeyPair, *others: KeyPair) -> KeyPair:
        """Write a new leaf of *ca* into the Secret, with *ca* and *others* as ``ca.crt``."""
        leaf = certificates.new_leaf(ca, [HOST], self.now)
        self.secret = secret_of(leaf, ca=encode_pem(each.certificate for each in (ca, *others)))
        return leaf


@dataclass
class OtherInjector:
    """Another controller injects ``caBundle``."""

    cluster: FakeCluster

    @property
    def awaited(self) -> str:
        """Nothing."""
        return ""

    def trust_error(self, _found: ProvidedCertificate) -> str:
        """Always acceptable."""
        return ""

    async def ensure(self, _found: ProvidedCertificate, _served: KeyPair | None) -> Trust:
        """The injected CAs."""
        return Trust(self.cluster.trusted, is_registered=self.cluster.is_registered)


class Replica:
    """A replica, and a record of the certificates that it served and of its Events."""

    def __init__(self, cluster: FakeCluster, trust: TrustManager | None = None) -> None:
        """A replica that has not read the Secret."""
        self.cluster, self.served, self.events = cluster, list[KeyPair](), list[tuple[Reason, str]]()
        self.manager = ProvidedCertificates(
            lambda: cluster.secret,
            secret=SECRET,
            host=HOST,
            remedy="write a better one",
            serve=self.served.append,
            trust=trust or PublishedTrust(cluster, clock=lambda: cluster.now),
            emit_event=lambda reason, text: self.events.append((reason, text)),
            clock=lambda: cluster.now,
        )

    async def reconcile(self, after: timedelta = timedelta()) -> None:
        """Let *after* pass, and reconcile."""
        self.cluster.now += after
        await self.manager.reconcile()

    @property
    def is_trusted(self) -> bool:
        """Whether the API server accepts the served certificate."""
        return is_trusted(self.served[-1], self.cluster.trusted)


async def test_a_late_secret_makes_the_replica_ready() -> None:
    """
    Without a Secret the replica is not ready and reports the remedy; with one it publishes the CA and serves at once.
    """
    cluster = FakeCluster()
    replica = Replica(cluster)
    assert replica.manager.unready() == "Secret kavip/tls is not read yet"
    await replica.reconcile()
    problem = "Secret kavip/tls: does not exist; write a better one"
    assert replica.manager.unready() == problem
    await replica.reconcile(SOON)
    assert replica.events == [(Reason.CERTIFICATE_UNUSABLE, problem)]
    ca = certificates.new_ca(NOW)
    leaf = cluster.fill(ca)
    await replica.reconcile(SOON)
    assert replica.served == [leaf]
    assert cluster.trusted == [ca.certificate]
    assert replica.manager.unready() == ""
    assert replica.events[-1] == (
        Reason.CERTIFICATE_RENEWED,
        "a new certificate is served; it expires at 2026-05-08T00:00:10Z",
    )


async def test_the_last_valid_certificate_stays_served() -> None:
    """An emptied or deleted Secret is reported; the replica becomes unready when the served certificate expires."""
    cluster = FakeCluster()
    ca = certificates.new_ca(NOW)
    cluster.fill(ca)
    replica = Replica(cluster)
    await replica.reconcile()
    for bad, words in ((Secret(), "tls.crt and tls.key missing"), ("does not exist", "does not exist")):
        cluster.secret = bad
        await replica.reconcile(SOON)
        assert len(replica.served) == 1
        assert cluster.trusted == [ca.certificate]
        assert replica.manager.unready() == ""
        assert replica.events[-1] == (Reason.CERTIFICATE_UNUSABLE, f"Secret kavip/tls: {words}; write a better one")
    cluster.now += certificates.LEAF_LIFETIME
    assert "does not exist" in replica.manager.unready()


async def test_a_renewal_under_the_same_ca_is_served_at_once() -> None:
    """The API server trusts the CA already; each certificate is served once."""
    cluster = FakeCluster()
    ca = certificates.new_ca(NOW)
    cluster.fill(ca)
    replica = Replica(cluster)
    await replica.reconcile()
    await replica.reconcile(PROPAGATION)
    second = cluster.fill(ca)
    await replica.reconcile(SOON)
    await replica.reconcile(SOON)
    assert replica.served[1:] == [second]


async def test_a_new_ca_is_published_before_its_leaf_is_served() -> None:
    """Every served certificate is trusted at every step, although the Secret never has both CAs."""
    cluster = FakeCluster()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    cluster.fill(old)
    early, late = Replica(cluster), Replica(cluster)
    for each in (early, late):
        await each.reconcile()
    second = cluster.fill(new)
    await early.reconcile(SOON)
    assert cluster.trusted == [new.certificate, old.certificate]
    assert len(early.served) == 1
    await early.reconcile(PROPAGATION)
    assert early.served[-1] == second
    for _ in range(3):  # the late replica is seconds behind, then up to date
        await late.reconcile(PROPAGATION / 2)
        await early.reconcile()
        assert early.is_trusted
        assert late.is_trusted
    assert late.served[-1] == second
    await early.reconcile(UNKNOWN_CA_LIFETIME)
    assert cluster.trusted == [new.certificate]
    await late.reconcile()
    assert cluster.trusted == [new.certificate]


async def test_a_late_replica_removes_no_needed_ca() -> None:
    """A replica with the previous version of the Secret manager the CA that another has published."""
    cluster = FakeCluster()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    cluster.fill(old)
    early, late = Replica(cluster), Replica(cluster)
    for each in (early, late):
        await each.reconcile()
        await each.reconcile(2 * UNKNOWN_CA_LIFETIME)
    seen_late = cluster.secret
    cluster.fill(new)
    await early.reconcile()
    cluster.secret, seen_early = seen_late, cluster.secret
    await late.reconcile(SOON)
    assert {*cluster.trusted} == {old.certificate, new.certificate}
    cluster.secret = seen_early
    for _ in range(2):
        await early.reconcile(PROPAGATION)
        await late.reconcile()
        assert early.is_trusted
        assert late.is_trusted
    await early.reconcile(UNKNOWN_CA_LIFETIME)
    assert cluster.trusted == [new.certificate]


async def test_an_unknown_ca_is_removed_after_a_while() -> None:
    """A CA that is in no Secret does not stay trusted forever."""
    cluster = FakeCluster()
    ca, unknown = certificates.new_ca(NOW), certificates.new_ca(NOW)
    cluster.fill(ca)
    replica = Replica(cluster)
    await replica.reconcile()
    cluster.trusted.append(unknown.certificate)
    await replica.reconcile(SOON)
    assert len(cluster.trusted) == 2
    await replica.reconcile(UNKNOWN_CA_LIFETIME)
    assert cluster.trusted == [ca.certificate]


async def test_a_wiped_bundle_is_written_again() -> None:
    """The CA of the served certificate cannot be restored during a change, so the new leaf is served at once."""
    cluster = FakeCluster()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    cluster.fill(old)
    replica = Replica(cluster)
    await replica.reconcile()
    cluster.trusted = []
    await replica.reconcile(SOON)
    assert cluster.trusted == [old.certificate]
    cluster.fill(new)
    await replica.reconcile(SOON)
    cluster.trusted = []
    await replica.reconcile(SOON)
    assert replica.is_trusted


async def test_a_missing_configuration_is_retried() -> None:
    """The certificate is served, the replica is not ready, and the next reconcile retries."""
    cluster = FakeCluster(installed=False)
    cluster.fill(certificates.new_ca(NOW))
    replica = Replica(cluster)
    try:
        await replica.reconcile()
    except NotFound:
        assert len(replica.served) == 1
    assert "caBundle does not trust" in replica.manager.unready()
    cluster.installed = True
    await replica.reconcile(SOON)
    assert replica.manager.unready() == ""


async def test_readiness_waits_for_another_injector() -> None:
    """The certificate is served at once; the replica is ready after the first injection, and stays ready."""
    cluster = FakeCluster()
    ca = certificates.new_ca(NOW)
    cluster.fill(ca)
    replica = Replica(cluster, OtherInjector(cluster))
    await replica.reconcile()
    assert replica.manager.unready() == "caBundle does not trust the certificate yet; write a better one"
    cluster.trusted = [ca.certificate]
    await replica.reconcile(SOON)
    assert replica.manager.unready() == ""
    cluster.trusted = []
    await replica.reconcile(SOON)
    assert replica.manager.unready() == ""


async def test_a_replica_is_ready_before_any_webhook_is_registered() -> None:
    """Nothing is sent to it yet. A webhook that does not trust it makes it unready, until it does."""
    cluster = FakeCluster(is_registered=False)
    ca = certificates.new_ca(NOW)
    cluster.fill(ca)
    replica = Replica(cluster, OtherInjector(cluster))
    assert replica.manager.unready() != "", "it has not read the Secret"
    await replica.reconcile()
    assert replica.manager.unready() == ""
    cluster.is_registered, cluster.trusted = True, [certificates.new_ca(NOW).certificate]
    await replica.reconcile(SOON)
    assert replica.manager.unready() == "caBundle does not trust the certificate yet; write a better one"
    cluster.trusted = [ca.certificate]
    await replica.reconcile(SOON)
    assert replica.manager.unready() == ""


async def test_a_new_leaf_waits_until_its_ca_is_injected() -> None:
    """
    The old leaf stays while only its CA is trusted; if only the new CA is trusted, the new leaf is served at once.
    """
    for injected in ("beside", "instead"):
        cluster = FakeCluster()
        old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
        first = cluster.fill(old)
        cluster.trusted = [old.certificate]
        replica = Replica(cluster, OtherInjector(cluster))
        await replica.reconcile()
        second = cluster.fill(new)
        for _ in range(5):
            await replica.reconcile(PROPAGATION)
        assert replica.served == [first]
        cluster.trusted = [new.certificate, *([old.certificate] if injected == "beside" else [])]
        await replica.reconcile(SOON)
        assert replica.is_trusted
        assert replica.served == ([first] if injected == "beside" else [first, second])
        await replica.reconcile(PROPAGATION)
        assert replica.served == [first, second]


async def test_an_expired_certificate_is_replaced_at_once() -> None:
    """An expired certificate is of no use, so the new one does not wait for trust."""
    cluster = FakeCluster()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    cluster.fill(old)
    cluster.trusted = [old.certificate]
    replica = Replica(cluster, OtherInjector(cluster))
    await replica.reconcile()
    cluster.now += certificates.LEAF_LIFETIME
    second = cluster.fill(new)
    await replica.reconcile()
    assert replica.served[-1] == second
