"""Provided certificates: what is accepted, and the message of each error."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ssl import DER_cert_to_PEM_cert

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from kavip.api.cluster import Secret
from kavip.http import tls
from kavip.pki import certificates, provided
from kavip.pki.certificates import KeyPair
from kavip.pki.provided import ProvidedCertificate
from kavip.pki.trustbundle import parse_bundle
from tests.pki.secrets import DAY, HOST, issued, key_pem, secret_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
CA = certificates.new_ca(NOW)
LEAF = issued(CA, NOW)
OF_RSA = issued(issued(None, NOW, key=rsa.generate_private_key(65537, 2048), is_authority=True), NOW)
OTHER = "the certificate is for {}, not for kavip-webhook.kavip.svc (subject alternative names)"


def altered(leaf: KeyPair, old: str, new: str) -> bytes:
    """The certificate of *leaf* as PEM with some bytes (in hexadecimal) replaced."""
    der = leaf.certificate.public_bytes(Encoding.DER)
    assert bytes.fromhex(old) in der
    return DER_cert_to_PEM_cert(der.replace(bytes.fromhex(old), bytes.fromhex(new))).encode()


def with_unknown_version(leaf: KeyPair) -> bytes:
    """The certificate of *leaf* with version 9."""
    return altered(leaf, "a003020102", "a003020108")


def with_unknown_curve(leaf: KeyPair) -> bytes:
    """The certificate of *leaf* with a key on an unknown curve."""
    return altered(leaf, "2a8648ce3d030107", "2a8648ce3d03017f")


def encrypted(leaf: KeyPair) -> bytes:
    """The key of *leaf*, encrypted with a password."""
    return leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cr3t"))


ERRORS: dict[str, tuple[Callable[[], Secret], str]] = {
    "an empty Secret": (Secret, "tls.crt and tls.key missing"),
    "no key": (lambda: secret_of(LEAF, tls_key=b""), "tls.key missing"),
    "invalid base64": (lambda: Secret(data={"tls.crt": "?", "tls.key": "?"}), "'tls.crt': is not base64"),
    "no certificate": (
        lambda: secret_of(LEAF, tls_crt=b"garbage"),
        "'certificate and key': cannot be read as PEM: ValueError",
    ),
    "no key in PEM": (
        lambda: secret_of(LEAF, tls_key=b"garbage"),
        "'certificate and key': cannot be read as PEM: ValueError",
    ),
    "another key": (lambda: secret_of(LEAF, tls_key=CA.key_pem), "'certificate and key': do not belong together"),
    "an unsupported key": (
        lambda: secret_of(
            LEAF,
            tls_key=dsa.generate_private_key(1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ),
        "want an ECDSA, RSA or Ed25519 key",
    ),
    "an unknown version": (
        lambda: secret_of(LEAF, tls_crt=with_unknown_version(LEAF)),
        "'certificate and key': cannot be read as PEM: InvalidVersion",
    ),
    "an unknown curve": (
        lambda: secret_of(LEAF, tls_crt=with_unknown_curve(LEAF)),
        "'certificate and key': cannot be read as PEM: UnsupportedAlgorithm",
    ),
    "a curve that Go does not support": (
        lambda: secret_of(issued(CA, NOW, key=ec.generate_private_key(ec.SECP256K1()))),
        "'secp256k1': want a key of curve P-256, P-384 or P-521",
    ),
    "an encrypted key": (
        lambda: secret_of(LEAF, tls_key=encrypted(LEAF)),
        "'key': is encrypted; want a key without a password",
    ),
    "a long chain": (
        lambda: secret_of(replace(LEAF, chain=(CA.certificate,) * 17)),
        "'18 certificates': want at most 16 in the chain",
    ),
    "a duplicate extension": (
        lambda: secret_of(LEAF, tls_crt=altered(LEAF, "0603551d25", "0603551d11")),
        OTHER.format("no name"),
    ),
    "signed with SHA-1": (
        lambda: secret_of(OF_RSA, tls_crt=altered(OF_RSA, "2a864886f70d01010b", "2a864886f70d010105")),
        "the certificate is signed with MD5 or SHA-1; want SHA-256 or better",
    ),
    "expired": (lambda: secret_of(issued(CA, NOW - 2 * DAY)), "the certificate expired at 2026-04-30T12:00:00Z"),
    "not valid yet": (
        lambda: secret_of(issued(CA, NOW + 2 * DAY)),
        "the certificate is not valid before 2026-05-02T12:00:00Z",
    ),
    "other names": (lambda: secret_of(issued(CA, NOW, hosts=("b.svc", "a.svc"))), OTHER.format("a.svc, b.svc")),
    "no name": (lambda: secret_of(issued(CA, NOW, hosts=())), OTHER.format("no name")),
    "a client certificate": (
        lambda: secret_of(issued(CA, NOW, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)),
        "the certificate is not for servers (extended key usage)",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_each_error_has_its_message(what: str) -> None:
    """No message shows a key."""
    made, expected = ERRORS[what]
    found = provided.read_secret(made(), HOST, NOW)
    assert isinstance(found, str)
    assert expected in found
    assert "PRIVATE" not in found


def an_rsa_secret() -> Secret:
    """A Secret as OpenShift and older versions of openssl write it."""
    key = rsa.generate_private_key(65537, 2048)
    return secret_of(issued(CA, NOW, key=key), tls_key=key_pem(key, PrivateFormat.TraditionalOpenSSL))


VALID: dict[str, Callable[[], Secret]] = {
    "ECDSA": lambda: secret_of(LEAF),
    "RSA in PKCS#1": an_rsa_secret,
    "Ed25519": lambda: secret_of(issued(CA, NOW, key=ed25519.Ed25519PrivateKey.generate())),
    "a wildcard": lambda: secret_of(issued(CA, NOW, hosts=("*.kavip.svc",))),
    "no extended key usage": lambda: secret_of(issued(CA, NOW, purpose=None)),
    "any extended key usage": lambda: secret_of(issued(CA, NOW, purpose=ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)),
}


@pytest.mark.parametrize("what", VALID)
def test_certificates_of_other_programs_are_accepted(what: str) -> None:
    """Keys and names as openssl, cert-manager and OpenShift issue them; OpenSSL accepts them too."""
    found = provided.read_secret(VALID[what](), HOST, NOW)
    assert isinstance(found, ProvidedCertificate), found
    assert tls.openssl_error(found.leaf) == ""
    assert "PRIVATE" not in repr(found)


def test_a_key_that_openssl_rejects_is_reported() -> None:
    """RSA with 1,024 bits can be read, but no TLS server accepts it."""
    weak = issued(CA, NOW, key=rsa.generate_private_key(65537, 1024))
    assert tls.openssl_error(weak) == "OpenSSL rejects the certificate: EE_KEY_TOO_SMALL"


def test_a_ca_must_lead_to_the_certificate() -> None:
    """The CA is the issuer, the root of the chain, or the certificate itself; others are refused."""
    intermediate = issued(CA, NOW, is_authority=True, hosts=(), purpose=None)
    deep = issued(intermediate, NOW)
    chained = replace(deep, chain=(intermediate.certificate,))
    alone = issued(None, NOW)
    unrelated, expired = certificates.new_ca(NOW), certificates.new_ca(NOW - 2 * certificates.CA_LIFETIME)
    no_ca = issued(CA, NOW, hosts=(), purpose=None)  # not a CA, which API servers check
    past = issued(CA, NOW - 2 * DAY, is_authority=True, hosts=(), purpose=None)
    for leaf, ca, expected in (
        (LEAF, CA, ""),
        (chained, CA, ""),
        (alone, alone, ""),
        (deep, CA, "no chain to it"),
        (issued(no_ca, NOW), no_ca, "ca.crt is not the CA of the certificate"),
        (replace(issued(no_ca, NOW), chain=(no_ca.certificate,)), CA, "no chain to it"),
        (replace(issued(past, NOW), chain=(past.certificate,)), CA, "no chain to it"),
        (LEAF, unrelated, "ca.crt is not the CA of the certificate"),
        (LEAF, expired, "ca.crt is missing, malformed or expired"),
    ):
        found = provided.read_secret(secret_of(leaf, ca=ca.certificate_pem), HOST, NOW)
        assert isinstance(found, ProvidedCertificate)
        error = provided.trust_error(found)
        assert expected in error
        assert bool(expected) is bool(error)


def test_olm_writes_the_ca_under_a_key_of_its_own() -> None:
    """``ca.crt`` wins."""
    found = provided.read_secret(secret_of(LEAF, olmCAKey=CA.certificate_pem), HOST, NOW)
    assert isinstance(found, ProvidedCertificate)
    assert found.cas == (CA.certificate,)
    other = secret_of(LEAF, ca=CA.certificate_pem, olmCAKey=b"garbage")
    assert provided.read_secret(other, HOST, NOW) == found


def test_the_chain_is_served_with_the_certificate() -> None:
    """An API server that trusts only the root needs the intermediate certificate."""
    intermediate = issued(CA, NOW, is_authority=True, hosts=(), purpose=None)
    deep = replace(issued(intermediate, NOW), chain=(intermediate.certificate,))
    found = provided.read_secret(secret_of(deep), HOST, NOW)
    assert isinstance(found, ProvidedCertificate)
    assert found.leaf == deep
    assert parse_bundle(found.leaf.certificate_pem) == [deep.certificate, intermediate.certificate]


@pytest.mark.parametrize("alter", [with_unknown_version, with_unknown_curve])
def test_a_malformed_ca_is_not_trusted(alter: Callable[[KeyPair], bytes]) -> None:
    """``ca.crt`` and ``caBundle`` may have any content."""
    found = provided.read_secret(secret_of(LEAF, ca=alter(CA)), HOST, NOW)
    assert isinstance(found, ProvidedCertificate)
    assert provided.trust_error(found)
    assert parse_bundle(with_unknown_version(CA)) == []
