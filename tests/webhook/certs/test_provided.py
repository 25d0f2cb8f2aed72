"""Certificates of others: what is served, when, and that nobody is cut off by a change."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509

from kavip.api.cluster import Secret
from kavip.errors import NotFound
from kavip.names import Reason
from kavip.pki import certificates
from kavip.pki.candidate import Candidate
from kavip.pki.certificates import Pair
from kavip.pki.strangers import STAY
from kavip.webhook.certs.provided import Provided, Published, Trust
from kavip.webhook.certs.selfsigned import SETTLE
from tests.pki.secrets import HOST, secret_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SOON = timedelta(seconds=10)
SECRET = "kavip/tls"


@dataclass
class Scene:
    """A Secret, what the API server trusts, and replicas that look at both."""

    now: datetime = NOW
    secret: Secret | str = "does not exist"
    trusted: list[x509.Certificate] = field(default_factory=list)
    installed: bool = True

    async def published(self) -> bytes:
        """What the API server trusts."""
        if not self.installed:
            raise NotFound(404, "NotFound", "no configuration")
        return certificates.pem(self.trusted)

    async def publish(self, bundle: bytes) -> None:
        """Let it trust something else."""
        await self.published()
        self.trusted = certificates.read_bundle(bundle)

    def fill(self, ca: Pair, *others: Pair) -> Pair:
        """Put a new leaf of *ca* into the Secret, with *ca* and *others* as ca.crt."""
        leaf = certificates.new_leaf(ca, [HOST], self.now)
        self.secret = secret_of(leaf, ca=certificates.pem(each.certificate for each in (ca, *others)))
        return leaf


@dataclass
class Injected:
    """Somebody else writes what the API server trusts."""

    scene: Scene

    def fault(self, _found: Candidate) -> str:
        """Theirs to know."""
        return ""

    async def settle(self, _found: Candidate, _serving: Pair | None) -> list[x509.Certificate]:
        """What they have written."""
        return self.scene.trusted


class Replica:
    """One kavip, and what it presents."""

    def __init__(self, scene: Scene, trust: Trust | None = None) -> None:
        """A replica that has not looked yet."""
        self.scene, self.presented, self.told = scene, list[Pair](), list[tuple[Reason, str]]()
        self.keeps = Provided(
            lambda: scene.secret,
            secret=SECRET,
            host=HOST,
            remedy="write a better one",
            present=self.presented.append,
            trust=trust or Published(scene, clock=lambda: scene.now),
            tell=lambda reason, text: self.told.append((reason, text)),
            clock=lambda: scene.now,
        )

    async def tick(self, after: timedelta = timedelta()) -> None:
        """Let *after* pass, and look."""
        self.scene.now += after
        await self.keeps.tick()

    @property
    def is_trusted(self) -> bool:
        """Whether the API server accepts what it presents."""
        return certificates.vouched(self.presented[-1], self.scene.trusted)


async def test_a_secret_that_comes_late_makes_it_ready() -> None:
    """Without a Secret it is not ready and says what to do; with one it publishes the CA and serves at once."""
    scene = Scene()
    replica = Replica(scene)
    assert replica.keeps.unready() == "Secret kavip/tls is not read yet"
    await replica.tick()
    complaint = "Secret kavip/tls: does not exist; write a better one"
    assert replica.keeps.unready() == complaint
    await replica.tick(SOON)
    assert replica.told == [(Reason.CERTIFICATE_UNUSABLE, complaint)]
    ca = certificates.new_ca(NOW)
    leaf = scene.fill(ca)
    await replica.tick(SOON)
    assert replica.presented == [leaf]
    assert scene.trusted == [ca.certificate]
    assert replica.keeps.unready() == ""
    assert replica.told[-1] == (
        Reason.CERTIFICATE_RENEWED,
        "a new certificate is served; it ends at 2026-05-08T00:00:10Z",
    )


async def test_the_last_good_one_is_served_on() -> None:
    """An emptied or deleted Secret changes nothing but what is told; when that certificate ends, it is unready."""
    scene = Scene()
    ca = certificates.new_ca(NOW)
    scene.fill(ca)
    replica = Replica(scene)
    await replica.tick()
    for bad, words in ((Secret(), "tls.crt and tls.key missing"), ("does not exist", "does not exist")):
        scene.secret = bad
        await replica.tick(SOON)
        assert len(replica.presented) == 1
        assert scene.trusted == [ca.certificate]
        assert replica.keeps.unready() == ""
        assert replica.told[-1] == (Reason.CERTIFICATE_UNUSABLE, f"Secret kavip/tls: {words}; write a better one")
    scene.now += certificates.LEAF_LIFE
    assert "does not exist" in replica.keeps.unready()


async def test_a_renewal_under_the_same_ca_is_served_at_once() -> None:
    """The API server has known the CA for long; nothing is served twice."""
    scene = Scene()
    ca = certificates.new_ca(NOW)
    scene.fill(ca)
    replica = Replica(scene)
    await replica.tick()
    await replica.tick(SETTLE)
    second = scene.fill(ca)
    await replica.tick(SOON)
    await replica.tick(SOON)
    assert replica.presented[1:] == [second]


async def test_a_new_ca_is_published_before_its_leaf_and_the_old_one_goes_last() -> None:
    """At every step what each replica serves is trusted, though the Secret never held both CAs."""
    scene = Scene()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    scene.fill(old)
    early, late = Replica(scene), Replica(scene)
    for each in (early, late):
        await each.tick()
    second = scene.fill(new)
    await early.tick(SOON)
    assert scene.trusted == [new.certificate, old.certificate]
    assert len(early.presented) == 1
    await early.tick(SETTLE)
    assert early.presented[-1] == second
    for _ in range(3):  # the late one is seconds behind, and then even
        await late.tick(SETTLE / 2)
        await early.tick()
        assert early.is_trusted
        assert late.is_trusted
    assert late.presented[-1] == second
    await early.tick(STAY)
    assert scene.trusted == [new.certificate]
    await late.tick()
    assert scene.trusted == [new.certificate]


async def test_a_replica_that_is_late_takes_nothing_away() -> None:
    """Who has not seen the new Secret yet leaves what another has published; later it is the old CA that goes."""
    scene = Scene()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    scene.fill(old)
    early, late = Replica(scene), Replica(scene)
    for each in (early, late):
        await each.tick()
        await each.tick(2 * STAY)
    seen_late = scene.secret
    scene.fill(new)
    await early.tick()
    scene.secret, seen_early = seen_late, scene.secret
    await late.tick(SOON)
    assert {*scene.trusted} == {old.certificate, new.certificate}
    scene.secret = seen_early
    for _ in range(2):
        await early.tick(SETTLE)
        await late.tick()
        assert early.is_trusted
        assert late.is_trusted
    await early.tick(STAY)
    assert scene.trusted == [new.certificate]


async def test_what_others_add_is_taken_out_after_a_while() -> None:
    """A CA that is in no Secret of ours is not trusted for ever."""
    scene = Scene()
    ca, stranger = certificates.new_ca(NOW), certificates.new_ca(NOW)
    scene.fill(ca)
    replica = Replica(scene)
    await replica.tick()
    scene.trusted.append(stranger.certificate)
    await replica.tick(SOON)
    assert len(scene.trusted) == 2
    await replica.tick(STAY)
    assert scene.trusted == [ca.certificate]


async def test_a_wiped_bundle_is_written_again() -> None:
    """At the next look; that of a CA that is being replaced is lost, so the new leaf does not wait."""
    scene = Scene()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    scene.fill(old)
    replica = Replica(scene)
    await replica.tick()
    scene.trusted = []
    await replica.tick(SOON)
    assert scene.trusted == [old.certificate]
    scene.fill(new)
    await replica.tick(SOON)
    scene.trusted = []
    await replica.tick(SOON)
    assert replica.is_trusted


async def test_it_serves_though_there_is_no_configuration() -> None:
    """Without webhook configurations it serves, is not ready, and goes on trying."""
    scene = Scene(installed=False)
    scene.fill(certificates.new_ca(NOW))
    replica = Replica(scene)
    try:
        await replica.tick()
    except NotFound:
        assert len(replica.presented) == 1
    assert "caBundle does not vouch" in replica.keeps.unready()
    scene.installed = True
    await replica.tick(SOON)
    assert replica.keeps.unready() == ""


async def test_where_others_inject_it_waits_for_them() -> None:
    """Served at once but not ready until caBundle vouches for it; from then on it is ready whatever they do."""
    scene = Scene()
    ca = certificates.new_ca(NOW)
    scene.fill(ca)
    replica = Replica(scene, Injected(scene))
    await replica.tick()
    assert replica.keeps.unready() == "caBundle does not vouch for the certificate yet; write a better one"
    scene.trusted = [ca.certificate]
    await replica.tick(SOON)
    assert replica.keeps.unready() == ""
    scene.trusted = []
    await replica.tick(SOON)
    assert replica.keeps.unready() == ""


async def test_a_new_ca_of_others_is_served_when_they_have_injected_it() -> None:
    """As long as only the old one is trusted the old leaf stays; where only the new one is, the new comes at once."""
    for injected in ("beside", "instead"):
        scene = Scene()
        old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
        first = scene.fill(old)
        scene.trusted = [old.certificate]
        replica = Replica(scene, Injected(scene))
        await replica.tick()
        second = scene.fill(new)
        for _ in range(5):
            await replica.tick(SETTLE)
        assert replica.presented == [first]
        scene.trusted = [new.certificate, *([old.certificate] if injected == "beside" else [])]
        await replica.tick(SOON)
        assert replica.is_trusted
        assert replica.presented == ([first] if injected == "beside" else [first, second])
        await replica.tick(SETTLE)
        assert replica.presented == [first, second]


async def test_a_certificate_that_has_ended_is_replaced_whoever_trusts_the_next() -> None:
    """Nothing is worse than what nobody accepts."""
    scene = Scene()
    old, new = certificates.new_ca(NOW), certificates.new_ca(NOW)
    scene.fill(old)
    scene.trusted = [old.certificate]
    replica = Replica(scene, Injected(scene))
    await replica.tick()
    scene.now += certificates.LEAF_LIFE
    second = scene.fill(new)
    await replica.tick()
    assert replica.presented[-1] == second
