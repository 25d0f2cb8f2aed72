"""
Certificates as values: a CA, the leaves that it signs, and when they are due; and what is wrong with those of others.

What kavip makes is ECDSA P-256; what others make may be RSA or Ed25519 as well. A certificate is due for renewal when
two thirds of its life are over; a leaf never outlives its CA. Time is an argument; so a test can stand at any moment of
a certificate's life.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
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

CA_LIFE: Final = timedelta(days=365)
LEAF_LIFE: Final = timedelta(days=7)
SKEW: Final = timedelta(minutes=5)  # a node whose clock is late accepts a new certificate all the same
RENEW_AFTER: Final = 2 / 3  # of a life


PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
"""Those that every API server can verify; of elliptic curves only :data:`_CURVES`."""
_CURVES: Final = ec.SECP256R1, ec.SECP384R1, ec.SECP521R1
_BROKEN: Final = hashes.MD5, hashes.SHA1
_MOST: Final = 16  # certificates in a chain: each is tried with each

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What reading raises; of a certificate parts are read only when they are asked for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key, which no representation shows, and the *chain* between it and its CA."""

    certificate: x509.Certificate
    key: PrivateKey = field(compare=False)  # the certificate says which
    chain: tuple[x509.Certificate, ...] = ()

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Read both from PEM; :class:`BadInput` where either is unreadable or the two do not belong together."""
        try:
            found, *chain = x509.load_pem_x509_certificates(certificate)
            public = _der(found.public_key())
            private = load_pem_private_key(key, password=None)
        except TypeError:
            raise BadInput("", "key", "is protected by a password; want it without") from None
        except _UNREADABLE as error:
            raise BadInput("", "certificate and key", f"cannot be read as PEM: {type(error).__name__}") from None
        if not isinstance(private, PrivateKey):
            raise BadInput("", type(private).__name__, "want an ECDSA, RSA or Ed25519 key")
        if isinstance(private, ec.EllipticCurvePrivateKey) and not isinstance(private.curve, _CURVES):
            raise BadInput("", private.curve.name, "want a key of curve P-256, P-384 or P-521")
        if _der(private.public_key()) != public:
            raise BadInput("", "certificate and key", "do not belong together")
        if len(chain) > _MOST:
            raise BadInput("", f"{len(chain) + 1} certificates", f"want the certificate and at most {_MOST} behind it")
        return cls(found, private, tuple(chain))

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM, with its chain."""
        return pem((self.certificate, *self.chain))

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM; for the Secret and the TLS context only."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        """Name the certificate; never the key."""
        return f"Pair({self.certificate.subject.rfc4514_string()}, {self.certificate.serial_number:x})"


def signed(issuer: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether *issuer* has signed *leaf*, and an API server takes its word."""
    try:
        leaf.verify_directly_issued_by(issuer)
        return _may_sign(issuer) and not isinstance(leaf.signature_hash_algorithm, _BROKEN)
    except (InvalidSignature, *_UNREADABLE):
        return False


def vouched(leaf: Pair, trusted: Iterable[x509.Certificate]) -> bool:
    """Whether who trusts *trusted* trusts *leaf*: itself, or by whoever signed it or a certificate of its chain."""
    roots = list(trusted)
    reached, rest = [leaf.certificate], list(leaf.chain)
    while reached:
        one = reached.pop()
        if any(one == root or signed(root, one) for root in roots):
            return True
        reached += [each for each in rest if signed(each, one)]
        rest = [each for each in rest if each not in reached]
    return False


def fault(leaf: x509.Certificate, host: str, now: datetime) -> str:
    """Why no API server would accept *leaf* for *host* at *now*; "" where it would."""
    if over := ended(leaf, now):
        return over
    if now < leaf.not_valid_before_utc:
        return f"the certificate begins at {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} only"
    if leaf.issuer != leaf.subject and isinstance(_hashed(leaf), _BROKEN):
        return "the certificate is signed by way of MD5 or SHA-1; want SHA-256 or better"
    found = hosts(leaf)
    if not {host, f"*.{host.partition('.')[2]}"} & {*found}:
        return f"the certificate is for {', '.join(found) or 'no name'}, not for {host} (subject alternative names)"
    purposes = _purposes(leaf)
    if purposes and not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & purposes:
        return "the certificate is not one for servers (extended key usage)"
    return ""


def ended(certificate: x509.Certificate, now: datetime) -> str:
    """That *certificate* is over, where it is; else ""."""
    end = certificate.not_valid_after_utc
    return f"the certificate ended at {end:%Y-%m-%dT%H:%M:%SZ}" if now >= end else ""


def alive(certificates: Iterable[x509.Certificate], now: datetime) -> list[x509.Certificate]:
    """Those *certificates* that have not ended, in the order given, each once."""
    return list(dict.fromkeys(one for one in certificates if now < one.not_valid_after_utc))


def hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    """The subject alternative names of *certificate*: DNS names and IP addresses, sorted."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *_UNREADABLE):  # an extension that is not what it says
        return ()
    addresses = (str(each) for each in found.get_values_for_type(x509.IPAddress))
    return tuple(sorted({*found.get_values_for_type(x509.DNSName), *addresses}))


def is_authority(pair: Pair) -> bool:
    """Whether *pair* may sign leaves, and is of the kind that kavip makes."""
    certificate = pair.certificate
    if certificate.version is x509.Version.v1 or not isinstance(pair.key, ec.EllipticCurvePrivateKey):
        return False
    try:
        return _may_sign(certificate)
    except _UNREADABLE:
        return False


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of *certificate*, in hexadecimal: what ``openssl x509 -fingerprint -sha256`` shows with colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()


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
    return pem(alive(certificates, now))


def pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """The PEM of *certificates*, one after the other."""
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def read_bundle(pem: bytes) -> list[x509.Certificate]:
    """The certificates in *pem*; none where it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except _UNREADABLE:
        return []


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


def _purposes(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return {*certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value}
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return set()


def _may_sign(issuer: x509.Certificate) -> bool:
    """Whether *issuer* is a CA by its own words; one of version 1 has none."""
    if issuer.version is x509.Version.v1:
        return True
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return issuer.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as error:
        return error.oid == x509.KeyUsage.oid


def _hashed(certificate: x509.Certificate) -> hashes.HashAlgorithm | None:
    try:
        return certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return None


def _der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
