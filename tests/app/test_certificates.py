"""Each certs mode on a real API server that calls kavip by its Service, with the rights of the chart."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from cryptography import x509

from hack.testbed import process, runs
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import encode_pem, parse_bundle
from kavip.pki.verification import has_signed
from kavip.webhook.certs.selfsigned import RECONCILE_SECONDS
from tests.app import deployment as deployments
from tests.app.deployment import Deployment, Replica, Writer
from tests.support.rbac import granted, used
from tests.test_rights import roles_of

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(900)]

ENOUGH = 20
HOST = "kavip-webhook.kavip.svc"
OTHERS = "kavip-webhook-tls"  # the provided Secret
LEAF = 'kavip_certificate_expiry_timestamp_seconds{certificate="leaf"}'
ALLOWED = f'kavip_webhook_requests_total{{path="{names.VALIDATE_SERVICE_PATH}",verdict="allowed"}}'
VALIDATING = "validatingwebhookconfigurations"
CONCERNED = ("secrets", "endpointslices", "mutatingwebhookconfigurations", VALIDATING)


@pytest.fixture
def deployment(programs: Programs) -> Iterator[Deployment]:
    """A deployment in its own network namespace."""
    with runs.temporary() as state, deployments.running(programs, state) as found:
        yield found
        print("--- API server", process.tail(state / "kube-apiserver.log", 30), sep="\n")  # noqa: T201 - shown by pytest -rP or after a failure
        for log in sorted(state.glob("kavip-*.log")):
            print(f"--- {log.name}\n{log.read_text()[-6000:]}")  # noqa: T201 - shown when the test fails
            assert "PRIVATE" not in log.read_text()


def test_self(deployment: Deployment) -> None:
    """Replicas that start together share a CA; rotations by annotation and by deletion lose no write."""
    deployment.install()
    one, other = deployment.start(), deployment.start()
    ready(one, other)
    first = deployment.bundle()
    assert first == parse_bundle(deployment.data(names.CA_SECRET_NAME)["tls.crt"])
    assert rotated(deployment, [])
    with deployment.writing() as writer:
        deployment.plane.kubectl(
            "annotate", "secret", names.CA_SECRET_NAME, deployments.OWN, f"{names.ROTATE_ANNOTATION}=true"
        )
        until("the CA is another, and alone", lambda: rotated(deployment, first))
        second = deployment.bundle()
        deployment.plane.kubectl("delete", "secret", names.CA_SECRET_NAME, deployments.OWN)
        until("old and new CA are trusted", lambda: len(deployment.bundle()) == 2)
        until("enough is written", lambda: writer.written > ENOUGH)
    answered(writer, one, other)
    deployment.kill(other)
    until("the rotation ends without the killed replica", lambda: rotated(deployment, second))
    confirmed = [
        note for each in deployment.requests() if each.resource == "secrets" for note in confirmations(each.body)
    ]
    assert {*confirmed} == {names.CONFIRMED_PREFIX + name for name in ("kavip-0", "kavip-1")}
    restored(deployment, one)
    assert "CA renewed: requested by annotation" in deployment.event_notes("CertificateRenewed")
    rights_are_those_that_are_used(deployment)


def test_provided(deployment: Deployment) -> None:
    """kavip is not ready until the Secret is valid; a new CA loses no write; an invalid Secret changes nothing."""
    deployment.install("certs.mode=provided")
    one, other = deployment.start(), deployment.start()
    missing = "Secret kavip/kavip-webhook-tls: does not exist; write tls.crt, tls.key and ca.crt for"
    until("readiness says why", lambda: f"{missing} {HOST} into it" in one.unready())
    until("an Event reports it too", lambda: missing in deployment.event_notes("CertificateUnusable"))
    old, new = certificates.new_ca(datetime.now(UTC)), certificates.new_ca(datetime.now(UTC))
    deployment.write_secret(OTHERS, filled(old, "elsewhere.example"))
    until("readiness says what is wrong", lambda: f"is for elsewhere.example, not for {HOST}" in one.unready())
    deployment.write_secret(OTHERS, filled(old))
    ready(one, other)
    assert deployment.bundle() == [old.certificate]
    with deployment.writing() as writer:
        deployment.write_secret(OTHERS, filled(new))
        until("both serve the new one", lambda: serve_leaves_of(new, one, other))
        ends = one.metric(LEAF)
        deployment.write_secret(OTHERS, {**filled(new), "tls.key": old.key_pem})
        until(
            "an Event says what is wrong",
            lambda: "do not belong together" in deployment.event_notes("CertificateUnusable"),
        )
        assert (one.unready(), one.metric(LEAF)) == ("", ends)
        assert serve_leaves_of(new, one)
        until("enough is written", lambda: writer.written > ENOUGH)
    answered(writer, one, other)
    deployment.write_secret(OTHERS, filled(new, lifetime=timedelta(days=3)))
    until("the next good one is served", lambda: one.metric(LEAF) < ends)
    restored(deployment, one)
    rights_are_those_that_are_used(deployment)


@pytest.mark.parametrize("mode", ["cert-manager", "service-ca"])
def test_injected(deployment: Deployment, mode: str) -> None:
    """The test acts as the other controllers: kavip serves, waits for trust, and writes neither Secret nor caBundle."""
    deployment.install(f"certs.mode={mode}")
    one, other = deployment.start(), deployment.start()
    old, new = certificates.new_ca(datetime.now(UTC)), certificates.new_ca(datetime.now(UTC))
    deployment.write_secret(OTHERS, filled(old))
    until("it waits to be trusted", lambda: "caBundle does not trust the certificate yet" in one.unready())
    deployment.write_bundle(encode_pem([old.certificate]))
    ready(one, other)
    with deployment.writing() as writer:
        renewed = filled(old, lifetime=timedelta(days=3))
        deployment.write_secret(OTHERS, renewed)
        until("a renewed leaf is served", lambda: serves(renewed, one, other))
        replaced = filled(new)
        deployment.write_secret(OTHERS, replaced)
        deployment.write_bundle(encode_pem([new.certificate, old.certificate]))
        until("the leaf of a new CA is served", lambda: serves(replaced, one, other))
        deployment.write_bundle(encode_pem([new.certificate]))
        until("writes go on", further(writer))
        until("enough is written", lambda: writer.written > ENOUGH)
    answered(writer, one, other)
    # if the old CA disappears at the same moment, writes may be lost, but only for a moment
    hasty = filled(old)
    deployment.write_secret(OTHERS, hasty)
    deployment.write_bundle(encode_pem([old.certificate]))
    until("the leaf follows the bundle", lambda: serves(hasty, one, other))
    until("writes pass again", lambda: not deployment.writer().write().returncode)
    rights_are_those_that_are_used(deployment)


# --- what the tests share ---------------------------------------------------------------------------------------------
def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until *holds*; a change of a CA takes PROPAGATION, thirty seconds, and reconciles are ten seconds apart."""
    wait_for(what, holds, timeout=180, interval=0.1)


def ready(*replicas: Replica) -> None:
    """Wait until all *replicas* are ready."""
    for each in replicas:

        def is_ready(each: Replica = each) -> bool:
            return each.unready() == ""

        until(f"{each.name} is ready", is_ready)


def filled(ca: KeyPair, host: str = HOST, *, lifetime: timedelta = certificates.LEAF_LIFETIME) -> dict[str, bytes]:
    """The data of a Secret with a new leaf of *ca* for *host*."""
    leaf = certificates.new_leaf(ca, [host], datetime.now(UTC), lifetime=lifetime)
    return {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "ca.crt": ca.certificate_pem}


def serves(data: dict[str, bytes], *replicas: Replica) -> bool:
    """Whether all *replicas* serve the certificate in *data*."""
    return all(each.leaf() == x509.load_pem_x509_certificate(data["tls.crt"]) for each in replicas)


def serve_leaves_of(ca: KeyPair, *replicas: Replica) -> bool:
    """Whether all *replicas* serve a leaf of *ca*."""
    return all(has_signed(ca.certificate, each.leaf()) for each in replicas)


def rotated(deployment: Deployment, before: list[x509.Certificate]) -> bool:
    """Whether one CA that is not in *before* is trusted, and every replica serves a leaf of it."""
    found = deployment.bundle()
    alone = len(found) == 1 and found != before
    return alone and all(has_signed(found[0], each.leaf()) for each in deployment.replicas)


def answered(writer: Writer, *replicas: Replica) -> None:
    """Assert that no write failed and that kavip reviewed each."""
    assert writer.failures == []
    assert writer.written > ENOUGH
    assert sum(each.metric(ALLOWED) for each in replicas) >= writer.written


def further(writer: Writer) -> Callable[[], bool]:
    """A function that returns whether *writer* has made ten more writes."""
    goal = writer.written + 10
    return lambda: writer.written >= goal


def restored(deployment: Deployment, replica: Replica) -> None:
    """Assert that kavip restores an emptied caBundle with the CA of the served certificate, and stays ready."""
    before = deployment.bundle()
    assert before
    for other in [each for each in deployment.replicas if each is not replica]:
        deployment.kill(other)
    for _ in range(5):
        deployment.write_bundle(b"")
        until("the bundle is back", lambda: deployment.bundle()[:1] == before[:1])
    # faster than the period, so the watch caused the reconcile
    mends = restores_of(deployment)[-5:]
    assert min(later - sooner for sooner, later in pairwise(mends)).total_seconds() < RECONCILE_SECONDS, mends
    assert replica.unready() == ""


def restores_of(deployment: Deployment) -> list[datetime]:
    """The times at which kavip restored the bundle after another writer, by the API server's clock."""
    found: list[datetime] = []
    is_empty = False
    for each in deployment.plane.audit.events(verb="patch", resource=VALIDATING):
        if each.user == deployments.ACCOUNT and is_empty:
            found.append(datetime.fromisoformat(each.received))
        is_empty = each.user != deployments.ACCOUNT
    return found


def confirmations(body: object) -> Iterator[str]:
    """The confirmations that a patch writes."""
    metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
    yield from (key for key, value in (metadata.get("annotations") or {}).items() if value and "confirmed" in key)


def rights_are_those_that_are_used(deployment: Deployment) -> None:
    """Assert that the chart grants exactly the used rights on CONCERNED resources, and that no request is refused."""
    sent = deployment.requests()
    assert [f"{event.verb} {event.uri}" for event in sent if event.code in (401, 403)] == []
    needed = {right for right in used(sent) if right.resource in CONCERNED}
    held = {right for right in granted(roles_of(deployment.plane, "kavip")) if right.resource in CONCERNED}
    assert {right for right in needed if not any(one.covers(right) for one in held)} == set()
    assert {str(right) for right in held if not any(right.covers(one) for one in needed)} == set()
