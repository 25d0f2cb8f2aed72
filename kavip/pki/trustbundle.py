"""
Trust bundles: the CAs of a ``caBundle`` as PEM, and the unknown ones among them.

A replica must not remove an unknown CA at once. It may belong to replicas in another mode, or to a version of the
Secret that this replica has not seen yet. Both are over well within :data:`UNKNOWN_CA_LIFETIME`. If another replica
has removed the CA already, it stays removed.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

UNKNOWN_CA_LIFETIME: Final = timedelta(minutes=5)
MAX_UNKNOWN: Final = 200  # each may be in use, and ca.crt may be the bundle of a Linux distribution

PARSE_ERRORS: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What :mod:`cryptography` raises for a malformed certificate; some parts are parsed only on access."""


class UnknownCAs:
    """The unknown CAs in a bundle, and when each was observed first."""

    def __init__(self) -> None:
        """No CA has been seen."""
        self._first_seen: dict[x509.Certificate, datetime] = {}

    def retained(
        self, published: Sequence[x509.Certificate], known: Collection[x509.Certificate], now: datetime
    ) -> list[x509.Certificate]:
        """Record the CAs of *published* that are not in *known*; return those that must stay in the bundle."""
        unknown = [each for each in unexpired(published, now) if each not in known]
        self._first_seen = {each: self._first_seen.get(each, now) for each in unknown}
        return [each for each in unknown if now - self._first_seen[each] < UNKNOWN_CA_LIFETIME][:MAX_UNKNOWN]


def parse_bundle(pem: bytes) -> list[x509.Certificate]:
    """The certificates in *pem*; empty if it is malformed."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except PARSE_ERRORS:
        return []


def encode_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """The PEM of *certificates*, concatenated."""
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def trust_bundle(certificates: Iterable[x509.Certificate], now: datetime) -> bytes:
    """The PEM of the unexpired *certificates*, in the given order and without duplicates."""
    return encode_pem(unexpired(certificates, now))


def unexpired(certificates: Iterable[x509.Certificate], now: datetime) -> list[x509.Certificate]:
    """The unexpired *certificates*, in the given order and without duplicates."""
    return list(dict.fromkeys(each for each in certificates if now < each.not_valid_after_utc))
