"""
A certificate with its private key, and how kavip issues CAs and leaves.

kavip issues ECDSA P-256; other programs may provide RSA or Ed25519 too. A certificate is renewed after two thirds of
its lifetime, and a leaf never outlives its CA. The time is an argument, so a test can use any time in the lifetime of
a certificate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kavip.errors import BadInput
from kavip.pki.trustbundle import PARSE_ERRORS, encode_pem

CA_LIFETIME: Final = timedelta(days=365)
LEAF_LIFETIME: Final = timedelta(days=7)
CLOCK_SKEW: Final = timedelta(minutes=5)  # a node whose clock is late accepts a new certificate too
RENEW_AFTER: Final = 2 / 3  # of a lifetime

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
"""The types that every API server can verify; of elliptic curves only :data:`_CURVES`."""
_CURVES: Final = ec.SECP256R1, ec.SECP384R1, ec.SECP521R1
_MAX_CHAIN: Final = 16  # certificates: each is verified against each


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, its private key, and the *chain* of certificates up to its CA. Its repr never shows the key."""

    certificate: x509.Certificate
    key: PrivateKey = field(compare=False)  # the certificate determines it
    chain: tuple[x509.Certificate, ...] = ()

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read both from PEM; raises :class:`BadInput` if one is malformed or the two do not match."""
        try:
            found, *chain = x509.load_pem_x509_certificates(certificate)
            public = _der(found.public_key())
            private = load_pem_private_key(key, password=None)
        except TypeError:
            raise BadInput("", "key", "is encrypted; want a key without a password") from None
        except PARSE_ERRORS as error:
            raise BadInput("", "certificate and key", f"cannot be read as PEM: {type(error).__name__}") from None
        if not isinstance(private, PrivateKey):
            raise BadInput("", type(private).__name__, "want an ECDSA, RSA or Ed25519 key")
        if isinstance(private, ec.EllipticCurvePrivateKey) and not isinstance(private.curve, _CURVES):
            raise BadInput("", private.curve.name, "want a key of curve P-256, P-384 or P-521")
        if _der(private.public_key()) != public:
            raise BadInput("", "certificate and key", "do not belong together")
        if len(chain) > _MAX_CHAIN:
            raise BadInput("", f"{len(chain) + 1} certificates", f"want at most {_MAX_CHAIN} in the chain")
        return cls(found, private, tuple(chain))

    @property
    def certificate_pem(self) -> bytes:
        """The certificate and its chain as PEM."""
        return encode_pem((self.certificate, *self.chain))

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM; for the Secret and the TLS context only."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        """Subject and serial number; never the key."""
        return f"KeyPair({self.certificate.subject.rfc4514_string()}, {self.certificate.serial_number:x})"


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether to renew *certificate*: two thirds of its lifetime are over, or it is not valid yet."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not start <= now < start + (end - start) * RENEW_AFTER


def fingerprint(certificate: x509.Certificate) -> str:
    """The SHA-256 of *certificate* in hexadecimal; ``openssl x509 -fingerprint -sha256`` prints it with colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def new_ca(now: datetime, *, lifetime: timedelta = CA_LIFETIME) -> KeyPair:
    """Create a self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A caBundle can have an old and a new CA: the date in the name distinguishes them.
    name = _name(f"kavip webhook CA {now:%Y-%m-%dT%H:%M:%SZ}")
    builder = _builder(name, name, key, start=now - CLOCK_SKEW, end=now + lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(ca: KeyPair, hosts: Sequence[str], now: datetime, *, lifetime: timedelta = LEAF_LIFETIME) -> KeyPair:
    """Issue a server certificate for *hosts* (DNS names and IP addresses), signed by *ca*."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + lifetime, ca.certificate.not_valid_after_utc)
    # A common name has at most 64 characters and is for people only: clients read the subject alternative names.
    builder = _builder(_name("kavip webhook"), ca.certificate.subject, key, start=now - CLOCK_SKEW, end=end)
    builder = _for_servers(builder, hosts).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
    )
    return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)


def new_self_signed(host: str, now: datetime, *, lifetime: timedelta = CA_LIFETIME) -> KeyPair:
    """Create a server certificate for *host* that no CA has signed, for clients that do not verify it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("kavip")
    builder = _builder(name, name, key, start=now - CLOCK_SKEW, end=now + lifetime)
    return KeyPair(_for_servers(builder, [host]).sign(key, hashes.SHA256()), key)


def _for_servers(builder: x509.CertificateBuilder, hosts: Sequence[str]) -> x509.CertificateBuilder:
    builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    return builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)


def _builder(
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


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def _der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
