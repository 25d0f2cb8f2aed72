"""
Certificates as values: a CA, the leaves that it signs, and when they are due.

ECDSA P-256 throughout. A certificate is due for renewal when two thirds of its life are over; a leaf never outlives its
CA. Time is an argument; so a test can stand at any moment of a certificate's life.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kavip.errors import BadInput

CA_LIFE: Final = timedelta(days=365)
LEAF_LIFE: Final = timedelta(days=7)
SKEW: Final = timedelta(minutes=5)  # a node whose clock is late accepts a new certificate all the same
RENEW_AFTER: Final = 2 / 3  # of a life


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, which no representation shows."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read both from PEM; :class:`BadInput` where either is unreadable or the two do not belong together."""
        try:
            found, private = x509.load_pem_x509_certificate(certificate), load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise BadInput("", "certificate and key", f"cannot be read as PEM: {type(error).__name__}") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise BadInput("", type(private).__name__, "want an ECDSA key")
        if _public(private.public_key()) != found.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        ):
            raise BadInput("", "certificate and key", "do not belong together")
        return cls(found, private)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM; for the Secret and the TLS context only."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        """Name the certificate; never the key."""
        return f"Pair({self.certificate.subject.rfc4514_string()}, {self.certificate.serial_number:x})"


def signed(issuer: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether *issuer* has signed *leaf*."""
    try:
        leaf.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether *certificate* should be renewed: two thirds of its life are over, or it has not begun."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not start <= now < start + (end - start) * RENEW_AFTER


def new_ca(now: datetime, *, life: timedelta = CA_LIFE) -> Pair:
    """Make a CA that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Old and new CA stand side by side in a caBundle: the date keeps their names apart for whoever looks.
    name = _name(f"kavip webhook CA {now:%Y-%m-%dT%H:%M:%SZ}")
    builder = _begin(name, name, key, start=now - SKEW, end=now + life)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(ca: Pair, hosts: Sequence[str], now: datetime, *, life: timedelta = LEAF_LIFE) -> Pair:
    """Make a server certificate for *hosts* (DNS names and IP addresses), signed by *ca*."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + life, ca.certificate.not_valid_after_utc)
    # A common name holds 64 characters and is for people only: clients read the subject alternative names.
    builder = _begin(_name("kavip webhook"), ca.certificate.subject, key, start=now - SKEW, end=end)
    builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
    )
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def bundle(certificates: Iterable[x509.Certificate], now: datetime) -> bytes:
    """The PEM of those *certificates* that have not ended, in the order given, each once."""
    alive = {one: None for one in certificates if now < one.not_valid_after_utc}
    return b"".join(one.public_bytes(Encoding.PEM) for one in alive)


def read_bundle(pem: bytes) -> list[x509.Certificate]:
    """The certificates in *pem*; none where it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def service_hosts(service: str, namespace: str) -> tuple[str, ...]:
    """The names under which the API server and people reach a Service; the API server uses ``name.namespace.svc``."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}"


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _public(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
