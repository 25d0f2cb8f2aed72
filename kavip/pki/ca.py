"""
The CA that all replicas share: the content of its Secret, and the patches that change it.

After a renewal the trust bundle has the new CA and the previous ones. Each replica confirms by an annotation of the
Secret that it serves a leaf of the new CA. The previous CAs are dropped when all replicas have confirmed, or when all
leaves of the previous CAs must have expired.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from cryptography import x509

from kavip import names
from kavip.api.cluster import Secret
from kavip.errors import BadInput
from kavip.pki.certificates import CLOCK_SKEW, LEAF_LIFETIME, KeyPair, fingerprint, is_due, new_ca
from kavip.pki.trustbundle import parse_bundle, trust_bundle, unexpired
from kavip.pki.verification import can_issue, has_signed

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
MAX_PREVIOUS: Final = 2  # in addition to a new CA: deleting the Secret again and again must not grow the bundle
GRACE: Final = timedelta(hours=1)  # beyond the lifetime of a leaf, for a leaf issued while the CA was being replaced
_ANNOTATION_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class SharedCA:
    """
    The content of the CA Secret: the CA that issues, and the *previous* ones, which are still trusted.

    *confirmations*: the annotation keys of replicas that have confirmed any CA; *confirmed*: those for this CA.
    *resource_version*: of the Secret, "" before it exists.
    """

    ca: KeyPair
    previous: tuple[x509.Certificate, ...] = ()
    confirmations: frozenset[str] = frozenset()
    confirmed: frozenset[str] = frozenset()
    rotation_requested: bool = False
    resource_version: str = ""

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """All CAs to trust, the issuing one first."""
        return self.ca.certificate, *self.previous

    def trust_bundle(self, now: datetime) -> bytes:
        """The content of ``caBundle``."""
        return trust_bundle(self.trusted, now)

    def trusts(self, leaf: KeyPair) -> bool:
        """Whether one of the trusted CAs has signed *leaf*."""
        return any(has_signed(issuer, leaf.certificate) for issuer in self.trusted)

    def has_issued(self, leaf: KeyPair) -> bool:
        """Whether the issuing CA has signed *leaf*."""
        return has_signed(self.ca.certificate, leaf.certificate)

    def is_due(self, now: datetime) -> bool:
        """Whether to create a new CA: this one is old, or a rotation is requested and none is in progress."""
        return is_due(self.ca.certificate, now) or (self.rotation_requested and len(self.previous) < MAX_PREVIOUS)

    def can_drop_previous(self, replicas: Iterable[str], now: datetime) -> bool:
        """Whether no leaf of a previous CA is in use: all *replicas* have confirmed, or all such leaves expired."""
        keys = {confirmation_key(replica) for replica in replicas}
        if keys and keys <= self.confirmed:
            return True
        return now >= self.ca.certificate.not_valid_before_utc + CLOCK_SKEW + LEAF_LIFETIME + GRACE


def confirmation_key(replica: str) -> str:
    """The annotation by which *replica* confirms that it serves a leaf of the issuing CA."""
    name = replica if _ANNOTATION_NAME.fullmatch(replica) else sha256(replica.encode()).hexdigest()[:32]
    return names.CONFIRMED_PREFIX + name


def read_secret(secret: Secret, now: datetime) -> SharedCA | None:
    """The content of *secret*; None if it has no CA that can issue a leaf."""
    try:
        data = decode_data(secret)
        ca = KeyPair.load(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    except BadInput:
        return None
    if not can_issue(ca):
        return None
    confirmations = {
        key: value
        for key, value in (secret.metadata.annotations or {}).items()
        if key.startswith(names.CONFIRMED_PREFIX)
    }
    current = fingerprint(ca.certificate)
    bundle = unexpired(parse_bundle(data.get(BUNDLE, b"")), now)
    return SharedCA(
        ca,
        previous=tuple(each for each in bundle if each != ca.certificate),
        confirmations=frozenset(confirmations),
        confirmed=frozenset(key for key, value in confirmations.items() if value == current),
        rotation_requested=secret.metadata.annotation(names.ROTATE_ANNOTATION) == "true",
        resource_version=secret.metadata.resource_version,
    )


def decode_data(secret: Secret) -> dict[str, bytes]:
    """The data of *secret*; raises :class:`BadInput` if a value is not base64."""
    found = {}
    for name, text in sorted((secret.data or {}).items()):
        try:
            found[name] = b64decode(text, validate=True)
        except NotBase64:
            raise BadInput("", name, "is not base64") from None
    return found


def renewed(previous: Iterable[x509.Certificate], now: datetime) -> SharedCA:
    """A new CA, and the first of the *previous* ones."""
    return SharedCA(new_ca(now), previous=tuple(unexpired(previous, now))[:MAX_PREVIOUS])


def secret_body(shared: SharedCA, now: datetime) -> dict[str, Any]:
    """The body of a new Secret."""
    return {"type": "kubernetes.io/tls", **_data(shared, now)}


def renewal_patch(shared: SharedCA, secret: Secret, now: datetime) -> dict[str, Any]:
    """The patch that replaces the CA in *secret* by *shared*; it removes confirmations and the rotation request."""
    removed = {
        key: None
        for key in secret.metadata.annotations or {}
        if key == names.ROTATE_ANNOTATION or key.startswith(names.CONFIRMED_PREFIX)
    }
    metadata = {"resourceVersion": secret.metadata.resource_version, "annotations": removed}
    return {"metadata": metadata, **_data(shared, now)}


def confirmation_patch(shared: SharedCA, replica: str) -> dict[str, Any]:
    """The patch by which *replica* confirms the issuing CA; it touches no other confirmation."""
    return {"metadata": {"annotations": {confirmation_key(replica): fingerprint(shared.ca.certificate)}}}


def drop_previous_patch(shared: SharedCA, now: datetime) -> dict[str, Any]:
    """The patch after which only the issuing CA is trusted."""
    removed = dict.fromkeys(sorted(shared.confirmations))
    metadata = {"resourceVersion": shared.resource_version, "annotations": removed}
    return {"metadata": metadata, "data": _encoded({BUNDLE: trust_bundle([shared.ca.certificate], now)})}


def _data(shared: SharedCA, now: datetime) -> dict[str, Any]:
    ca = shared.ca
    content = {CERTIFICATE: ca.certificate_pem, KEY: ca.key_pem, BUNDLE: shared.trust_bundle(now)}
    return {"data": _encoded(content)}


def _encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in data.items()}
