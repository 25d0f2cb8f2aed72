"""Key pairs, CAs and leaves: content, renewal times, and that real TLS accepts them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kavip.errors import BadInput
from kavip.http import tls
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import parse_bundle, trust_bundle
from kavip.pki.verification import has_signed

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOSTS = ("kavip-webhook.kavip.svc", "127.0.0.1", "2001:db8::1")


def test_a_certificate_is_due_after_two_thirds_of_its_lifetime() -> None:
    """Also before the lifetime begins: then a clock was set back."""
    leaf = certificates.new_leaf(certificates.new_ca(NOW), HOSTS, NOW).certificate
    life = certificates.LEAF_LIFETIME + certificates.CLOCK_SKEW
    moment = NOW - certificates.CLOCK_SKEW + life * 2 / 3
    assert not certificates.is_due(leaf, NOW)
    assert not certificates.is_due(leaf, moment - timedelta(seconds=1))
    assert certificates.is_due(leaf, moment)
    assert certificates.is_due(leaf, NOW - timedelta(days=1))


def test_a_leaf_does_not_outlive_its_ca() -> None:
    """A leaf of a CA that expires soon expires with it."""
    ca = certificates.new_ca(NOW, lifetime=timedelta(days=1))
    leaf = certificates.new_leaf(ca, HOSTS, NOW)
    assert leaf.certificate.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_a_leaf_has_its_hosts() -> None:
    """DNS names and addresses are subject alternative names of their type."""
    leaf = certificates.new_leaf(certificates.new_ca(NOW), HOSTS, NOW).certificate
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kavip-webhook.kavip.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "2001:db8::1"]


def test_a_leaf_is_signed_by_one_ca() -> None:
    """A leaf is signed by its CA and by no other."""
    ca, other = certificates.new_ca(NOW), certificates.new_ca(NOW)
    leaf = certificates.new_leaf(ca, HOSTS, NOW).certificate
    assert has_signed(ca.certificate, leaf)
    assert not has_signed(other.certificate, leaf)


def test_a_key_pair_is_read_from_its_own_pem() -> None:
    """PEM is read back to the same certificate."""
    ca = certificates.new_ca(NOW)
    assert certificates.KeyPair.load(ca.certificate_pem, ca.key_pem).certificate == ca.certificate


def test_a_mismatched_key_is_refused() -> None:
    """A certificate with the key of another one is refused."""
    ca, other = certificates.new_ca(NOW), certificates.new_ca(NOW)
    with pytest.raises(BadInput, match="do not belong together"):
        certificates.KeyPair.load(ca.certificate_pem, other.key_pem)
    with pytest.raises(BadInput, match="cannot be read as PEM"):
        certificates.KeyPair.load(b"", b"")


def test_a_key_is_never_shown() -> None:
    """The repr of a key pair has no key."""
    ca = certificates.new_ca(NOW)
    assert "PRIVATE" not in repr(ca)
    assert repr(ca).startswith("KeyPair(CN=kavip webhook CA 2026-05-01")


def test_a_bundle_has_each_unexpired_ca_once() -> None:
    """Expired CAs and duplicates are omitted; malformed PEM is an empty bundle."""
    old, new = certificates.new_ca(NOW - timedelta(days=400)), certificates.new_ca(NOW)
    found = trust_bundle([new.certificate, old.certificate, new.certificate], NOW)
    assert parse_bundle(found) == [new.certificate]
    assert parse_bundle(b"garbage") == []


def test_every_key_is_of_p_256() -> None:
    """CA and leaf have ECDSA keys on a curve that every API server supports."""
    ca = certificates.new_ca(NOW)
    for pair in (ca, certificates.new_leaf(ca, HOSTS, NOW)):
        assert isinstance(pair.key, ec.EllipticCurvePrivateKey)
        assert pair.key.curve.name == "secp256r1"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_accepts_a_leaf_by_its_bundle(version: ssl.TLSVersion) -> None:
    """A client that trusts both CAs accepts their leaves by name and by address, with TLS 1.2 and 1.3."""
    now = datetime.now(UTC)
    old, new = certificates.new_ca(now), certificates.new_ca(now)
    trust = trust_bundle([new.certificate, old.certificate], now).decode()
    client = ssl.create_default_context(cadata=trust)
    client.maximum_version = version
    for ca in (old, new):
        leaf = certificates.new_leaf(ca, HOSTS, now)
        for host in HOSTS:
            assert _handshake(leaf, client, host) == version.name.replace("_", ".")


def test_older_tls_is_disabled() -> None:
    """The minimum version of a server context is TLS 1.2."""
    assert tls.server_context().minimum_version is ssl.TLSVersion.TLSv1_2


def _handshake(leaf: KeyPair, client: ssl.SSLContext, host: str) -> str | None:
    server = tls.serving_context(leaf)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=lambda: server.wrap_socket(theirs, server_side=True).close())
        thread.start()
        with client.wrap_socket(ours, server_hostname=host) as channel:
            version = channel.version()
        thread.join(10)
    return version
