"""What a Secret of others must hold, and the words for each thing that is wrong."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ssl import DER_cert_to_PEM_cert

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from kavip.api.cluster import Secret
from kavip.pki import candidate, certificates
from kavip.pki.candidate import Candidate
from kavip.pki.certificates import Pair
from kavip.webhook.certs import tls
from tests.pki.secrets import DAY, HOST, issued, key_pem, secret_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
CA = certificates.new_ca(NOW)
LEAF = issued(CA, NOW)
OF_RSA = issued(issued(None, NOW, key=rsa.generate_private_key(65537, 2048), is_authority=True), NOW)
OTHER = "the certificate is for {}, not for kavip-webhook.kavip.svc (subject alternative names)"


def altered(leaf: Pair, old: str, new: str) -> bytes:
    """The certificate of *leaf* as PEM with some bytes replaced (in hexadecimal): no program writes such ones."""
    der = leaf.certificate.public_bytes(Encoding.DER)
    assert bytes.fromhex(old) in der
    return DER_cert_to_PEM_cert(der.replace(bytes.fromhex(old), bytes.fromhex(new))).encode()


def of_no_version(leaf: Pair) -> bytes:
    """The certificate of *leaf*, as if of version 9."""
    return altered(leaf, "a003020102", "a003020108")


def with_a_key_of_no_curve(leaf: Pair) -> bytes:
    """The certificate of *leaf*, whose key is on a curve that nobody knows."""
    return altered(leaf, "2a8648ce3d030107", "2a8648ce3d03017f")


def locked(leaf: Pair) -> bytes:
    """The key of *leaf* under a password."""
    return leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cr3t"))


FAULTS: dict[str, tuple[Callable[[], Secret], str]] = {
    "nothing": (Secret, "tls.crt and tls.key missing"),
    "no key": (lambda: secret_of(LEAF, tls_key=b""), "tls.key missing"),
    "no base64": (lambda: Secret(data={"tls.crt": "?", "tls.key": "?"}), "'tls.crt': is not base64"),
    "no certificate": (
        lambda: secret_of(LEAF, tls_crt=b"garbage"),
        "'certificate and key': cannot be read as PEM: ValueError",
    ),
    "no PEM": (lambda: secret_of(LEAF, tls_key=b"garbage"), "'certificate and key': cannot be read as PEM: ValueError"),
    "another key": (lambda: secret_of(LEAF, tls_key=CA.key_pem), "'certificate and key': do not belong together"),
    "a key of no use": (
        lambda: secret_of(
            LEAF,
            tls_key=dsa.generate_private_key(1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ),
        "want an ECDSA, RSA or Ed25519 key",
    ),
    "a version of no use": (
        lambda: secret_of(LEAF, tls_crt=of_no_version(LEAF)),
        "'certificate and key': cannot be read as PEM: InvalidVersion",
    ),
    "a curve of no use": (
        lambda: secret_of(LEAF, tls_crt=with_a_key_of_no_curve(LEAF)),
        "'certificate and key': cannot be read as PEM: UnsupportedAlgorithm",
    ),
    "a curve that Go has not": (
        lambda: secret_of(issued(CA, NOW, key=ec.generate_private_key(ec.SECP256K1()))),
        "'secp256k1': want a key of curve P-256, P-384 or P-521",
    ),
    "a password": (lambda: secret_of(LEAF, tls_key=locked(LEAF)), "'key': is protected by a password; want it without"),
    "a chain without end": (
        lambda: secret_of(replace(LEAF, chain=(CA.certificate,) * 17)),
        "'18 certificates': want the certificate and at most 16 behind it",
    ),
    "names that stand twice": (
        lambda: secret_of(LEAF, tls_crt=altered(LEAF, "0603551d25", "0603551d11")),
        OTHER.format("no name"),
    ),
    "signed with SHA-1": (
        lambda: secret_of(OF_RSA, tls_crt=altered(OF_RSA, "2a864886f70d01010b", "2a864886f70d010105")),
        "the certificate is signed by way of MD5 or SHA-1; want SHA-256 or better",
    ),
    "ended": (lambda: secret_of(issued(CA, NOW - 2 * DAY)), "the certificate ended at 2026-04-30T12:00:00Z"),
    "not begun": (lambda: secret_of(issued(CA, NOW + 2 * DAY)), "the certificate begins at 2026-05-02T12:00:00Z only"),
    "other names": (lambda: secret_of(issued(CA, NOW, hosts=("b.svc", "a.svc"))), OTHER.format("a.svc, b.svc")),
    "no name": (lambda: secret_of(issued(CA, NOW, hosts=())), OTHER.format("no name")),
    "for clients": (
        lambda: secret_of(issued(CA, NOW, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)),
        "the certificate is not one for servers (extended key usage)",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_has_its_words(what: str) -> None:
    """What cannot be served is told apart, and no word of it shows a key."""
    made, words = FAULTS[what]
    found = candidate.judged(made(), HOST, NOW)
    assert isinstance(found, str)
    assert words in found
    assert "PRIVATE" not in found


def an_rsa_secret() -> Secret:
    """As OpenShift and older openssl write it."""
    key = rsa.generate_private_key(65537, 2048)
    return secret_of(issued(CA, NOW, key=key), tls_key=key_pem(key, PrivateFormat.TraditionalOpenSSL))


GOOD: dict[str, Callable[[], Secret]] = {
    "ECDSA": lambda: secret_of(LEAF),
    "RSA in PKCS#1": an_rsa_secret,
    "Ed25519": lambda: secret_of(issued(CA, NOW, key=ed25519.Ed25519PrivateKey.generate())),
    "a wildcard": lambda: secret_of(issued(CA, NOW, hosts=("*.kavip.svc",))),
    "no stated purpose": lambda: secret_of(issued(CA, NOW, purpose=None)),
    "any purpose": lambda: secret_of(issued(CA, NOW, purpose=ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)),
}


@pytest.mark.parametrize("what", GOOD)
def test_what_others_make_can_be_served(what: str) -> None:
    """Keys and names as openssl, cert-manager and OpenShift make them; OpenSSL takes them too."""
    found = candidate.judged(GOOD[what](), HOST, NOW)
    assert isinstance(found, Candidate), found
    assert tls.complaint(found.leaf) == ""
    assert "PRIVATE" not in repr(found)


def test_a_key_that_openssl_refuses_is_told_before_it_is_served() -> None:
    """RSA of 1,024 bits is readable, and no TLS server takes it."""
    weak = issued(CA, NOW, key=rsa.generate_private_key(65537, 1024))
    assert tls.complaint(weak) == "OpenSSL does not take the certificate: EE_KEY_TOO_SMALL"


def test_a_ca_must_lead_to_the_certificate() -> None:
    """ca.crt vouches directly, by the chain in tls.crt, or is the certificate itself; ended and other CAs do not."""
    between = issued(CA, NOW, is_authority=True, hosts=(), purpose=None)
    deep = issued(between, NOW)
    chained = replace(deep, chain=(between.certificate,))
    alone = issued(None, NOW)
    stranger, over = certificates.new_ca(NOW), certificates.new_ca(NOW - 2 * certificates.CA_LIFE)
    mute = issued(CA, NOW, hosts=(), purpose=None)  # it may not sign, and API servers see to that
    past = issued(CA, NOW - 2 * DAY, is_authority=True, hosts=(), purpose=None)
    for leaf, ca, words in (
        (LEAF, CA, ""),
        (chained, CA, ""),
        (alone, alone, ""),
        (deep, CA, "no chain that leads there"),
        (issued(mute, NOW), mute, "ca.crt is not the CA of the certificate"),
        (replace(issued(mute, NOW), chain=(mute.certificate,)), CA, "no chain that leads there"),
        (replace(issued(past, NOW), chain=(past.certificate,)), CA, "no chain that leads there"),
        (LEAF, stranger, "ca.crt is not the CA of the certificate"),
        (LEAF, over, "ca.crt is missing, cannot be read, or has ended"),
    ):
        found = candidate.judged(secret_of(leaf, ca=ca.certificate_pem), HOST, NOW)
        assert isinstance(found, Candidate)
        fault = candidate.unpublishable(found)
        assert words in fault
        assert bool(words) is bool(fault)


def test_the_chain_is_served_with_the_certificate() -> None:
    """An API server that trusts only the root has to be told what lies between."""
    between = issued(CA, NOW, is_authority=True, hosts=(), purpose=None)
    deep = replace(issued(between, NOW), chain=(between.certificate,))
    found = candidate.judged(secret_of(deep), HOST, NOW)
    assert isinstance(found, Candidate)
    assert found.leaf == deep
    assert certificates.read_bundle(found.leaf.certificate_pem) == [deep.certificate, between.certificate]


@pytest.mark.parametrize("alter", [of_no_version, with_a_key_of_no_curve])
def test_an_authority_that_cannot_be_read_vouches_for_nothing(alter: Callable[[Pair], bytes]) -> None:
    """It stands in ca.crt or caBundle, where anybody may have written it."""
    found = candidate.judged(secret_of(LEAF, ca=alter(CA)), HOST, NOW)
    assert isinstance(found, Candidate)
    assert candidate.unpublishable(found)
    assert certificates.read_bundle(of_no_version(CA)) == []
