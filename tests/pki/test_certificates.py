"""Certificates: what they hold, when they are due, and that real TLS accepts them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kavip.errors import BadInput
from kavip.pki import certificates
from kavip.pki.certificates import Pair
from kavip.webhook.certs import tls

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOSTS = ("kavip-webhook.kavip.svc", "127.0.0.1", "2001:db8::1")


def test_a_certificate_is_due_when_two_thirds_of_its_life_are_over() -> None:
    """A certificate is due at two thirds of its life, and also where its life has not begun: a clock went back."""
    leaf = certificates.new_leaf(certificates.new_ca(NOW), HOSTS, NOW).certificate
    life = certificates.LEAF_LIFE + certificates.SKEW
    moment = NOW - certificates.SKEW + life * 2 / 3
    assert not certificates.due(leaf, NOW)
    assert not certificates.due(leaf, moment - timedelta(seconds=1))
    assert certificates.due(leaf, moment)
    assert certificates.due(leaf, NOW - timedelta(days=1))


def test_a_leaf_does_not_outlive_its_ca() -> None:
    """A leaf that a dying CA signs ends with it."""
    ca = certificates.new_ca(NOW, life=timedelta(days=1))
    leaf = certificates.new_leaf(ca, HOSTS, NOW)
    assert leaf.certificate.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_a_leaf_names_its_hosts() -> None:
    """DNS names and addresses stand as subject alternative names, each of its kind."""
    leaf = certificates.new_leaf(certificates.new_ca(NOW), HOSTS, NOW).certificate
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kavip-webhook.kavip.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "2001:db8::1"]


def test_a_ca_knows_its_own_leaves() -> None:
    """A leaf belongs to the CA that signed it and to no other."""
    ca, other = certificates.new_ca(NOW), certificates.new_ca(NOW)
    leaf = certificates.new_leaf(ca, HOSTS, NOW).certificate
    assert certificates.signed(ca.certificate, leaf)
    assert not certificates.signed(other.certificate, leaf)


def test_a_pair_survives_its_secret() -> None:
    """What was written as PEM is read back the same."""
    ca = certificates.new_ca(NOW)
    assert certificates.Pair.load(ca.certificate_pem, ca.key_pem).certificate == ca.certificate


def test_a_pair_that_does_not_belong_together_is_refused() -> None:
    """A Secret with the key of another certificate is told apart from a good one."""
    ca, other = certificates.new_ca(NOW), certificates.new_ca(NOW)
    with pytest.raises(BadInput, match="do not belong together"):
        certificates.Pair.load(ca.certificate_pem, other.key_pem)
    with pytest.raises(BadInput, match="cannot be read as PEM"):
        certificates.Pair.load(b"", b"")


def test_a_key_is_never_shown() -> None:
    """Logs that print a pair print no key."""
    ca = certificates.new_ca(NOW)
    assert "PRIVATE" not in repr(ca)
    assert repr(ca).startswith("Pair(CN=kavip webhook CA 2026-05-01")


def test_a_bundle_holds_the_living_once() -> None:
    """An ended CA and a repeated one are left out of the bundle; garbage is an empty one."""
    old, new = certificates.new_ca(NOW - timedelta(days=400)), certificates.new_ca(NOW)
    found = certificates.bundle([new.certificate, old.certificate, new.certificate], NOW)
    assert certificates.read_bundle(found) == [new.certificate]
    assert certificates.read_bundle(b"garbage") == []


def test_every_key_is_of_p_256() -> None:
    """CA and leaf have ECDSA keys on the curve that every API server knows."""
    ca = certificates.new_ca(NOW)
    for pair in (ca, certificates.new_leaf(ca, HOSTS, NOW)):
        assert isinstance(pair.key, ec.EllipticCurvePrivateKey)
        assert pair.key.curve.name == "secp256r1"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_accepts_a_leaf_by_its_bundle(version: ssl.TLSVersion) -> None:
    """A client that trusts old and new CA accepts leaves of both, by name and by address, with TLS 1.2 and 1.3."""
    now = datetime.now(UTC)
    old, new = certificates.new_ca(now), certificates.new_ca(now)
    trust = certificates.bundle([new.certificate, old.certificate], now).decode()
    client = ssl.create_default_context(cadata=trust)
    client.maximum_version = version
    for ca in (old, new):
        leaf = certificates.new_leaf(ca, HOSTS, now)
        for host in HOSTS:
            assert _handshake(leaf, client, host) == version.name.replace("_", ".")


def test_older_tls_is_not_spoken() -> None:
    """What a server's context begins with: nothing below TLS 1.2."""
    assert tls.context().minimum_version is ssl.TLSVersion.TLSv1_2


def _handshake(leaf: Pair, client: ssl.SSLContext, host: str) -> str | None:
    server = tls.showing(leaf)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=lambda: server.wrap_socket(theirs, server_side=True).close())
        thread.start()
        with client.wrap_socket(ours, server_hostname=host) as channel:
            version = channel.version()
        thread.join(10)
    return version
