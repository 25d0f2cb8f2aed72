"""Whether an API server would accept a certificate: signatures, chains, validity, names and usages."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import PARSE_ERRORS

_BROKEN_HASHES: Final = hashes.MD5, hashes.SHA1


def has_signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether *issuer* is a CA and has signed *certificate* with a hash that API servers accept."""
    try:
        certificate.verify_directly_issued_by(issuer)
        return is_ca(issuer) and not isinstance(certificate.signature_hash_algorithm, _BROKEN_HASHES)
    except (InvalidSignature, *PARSE_ERRORS):
        return False


def is_trusted(leaf: KeyPair, roots: Iterable[x509.Certificate]) -> bool:
    """Whether a client that trusts *roots* accepts *leaf*: as a root, by its issuer, or by its chain."""
    trusted = list(roots)
    reached, rest = [leaf.certificate], list(leaf.chain)
    while reached:
        each = reached.pop()
        if any(each == root or has_signed(root, each) for root in trusted):
            return True
        reached += [issuer for issuer in rest if has_signed(issuer, each)]
        rest = [issuer for issuer in rest if issuer not in reached]
    return False


def serving_error(leaf: x509.Certificate, host: str, now: datetime) -> str:
    """Why API servers would not accept *leaf* for *host* at *now*; "" if they would."""
    if error := expiry_error(leaf, now):
        return error
    if now < leaf.not_valid_before_utc:
        return f"the certificate is not valid before {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
    if leaf.issuer != leaf.subject and isinstance(_signature_hash(leaf), _BROKEN_HASHES):
        return "the certificate is signed with MD5 or SHA-1; want SHA-256 or better"
    found = hosts(leaf)
    if not {host, f"*.{host.partition('.')[2]}"} & {*found}:
        return f"the certificate is for {', '.join(found) or 'no name'}, not for {host} (subject alternative names)"
    usages = _extended_usages(leaf)
    if usages and not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & usages:
        return "the certificate is not for servers (extended key usage)"
    return ""


def expiry_error(certificate: x509.Certificate, now: datetime) -> str:
    """That *certificate* has expired, and when; "" if it has not."""
    end = certificate.not_valid_after_utc
    return f"the certificate expired at {end:%Y-%m-%dT%H:%M:%SZ}" if now >= end else ""


def hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    """The subject alternative names of *certificate*: DNS names and IP addresses, sorted."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *PARSE_ERRORS):
        return ()
    addresses = (str(each) for each in found.get_values_for_type(x509.IPAddress))
    return tuple(sorted({*found.get_values_for_type(x509.DNSName), *addresses}))


def can_issue(pair: KeyPair) -> bool:
    """Whether *pair* is a CA of the kind that kavip creates, so that kavip can issue leaves with it."""
    certificate = pair.certificate
    if certificate.version is x509.Version.v1 or not isinstance(pair.key, ec.EllipticCurvePrivateKey):
        return False
    try:
        return is_ca(certificate)
    except PARSE_ERRORS:
        return False


def is_ca(issuer: x509.Certificate) -> bool:
    """Whether *issuer* may sign certificates by its extensions; a certificate of version 1 has none and may."""
    if issuer.version is x509.Version.v1:
        return True
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return issuer.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as error:
        return error.oid == x509.KeyUsage.oid


def _extended_usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return {*certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value}
    except (x509.ExtensionNotFound, *PARSE_ERRORS):
        return set()


def _signature_hash(certificate: x509.Certificate) -> hashes.HashAlgorithm | None:
    try:
        return certificate.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return None
