"""
The CA that all replicas share: what its Secret holds, and what is written there.

After a renewal the bundle holds the new CA and those before it. Each replica notes on the Secret that it serves a leaf
of the new one; the old ones go when every replica that stands has noted it, or when every leaf of theirs must have
ended.
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
from kavip.pki import certificates
from kavip.pki.certificates import Pair

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
KEPT: Final = 2  # authorities beside a new one: who deletes the Secret every minute does not grow the bundle for ever
GRACE: Final = timedelta(hours=1)  # beyond the life of a leaf: for a replica that signs while the CA is being replaced
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")  # what may follow the slash of a key


@dataclass(frozen=True, slots=True)
class Authority:
    """
    What the Secret holds: the CA that signs, and those before it, which are still trusted.

    *noted*: the keys of the notes on the Secret, of whichever CA; *confirmed*: those of replicas that serve a leaf of
    this one. *asked*: somebody wishes for a new CA. *version*: of the Secret, "" where it does not stand there yet.
    """

    ca: Pair
    before: tuple[x509.Certificate, ...] = ()
    noted: frozenset[str] = frozenset()
    confirmed: frozenset[str] = frozenset()
    asked: bool = False
    version: str = ""

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """All CAs that are to be trusted, the one that signs first."""
        return self.ca.certificate, *self.before

    def bundle(self, now: datetime) -> bytes:
        """What is to stand in ``caBundle``."""
        return certificates.bundle(self.trusted, now)

    def trusts(self, leaf: Pair) -> bool:
        """Whether *leaf* is of a CA that is to be trusted."""
        return any(certificates.signed(issuer, leaf.certificate) for issuer in self.trusted)

    def has_signed(self, leaf: Pair) -> bool:
        """Whether *leaf* is of the CA that signs now."""
        return certificates.signed(self.ca.certificate, leaf.certificate)

    def is_due(self, now: datetime) -> bool:
        """Whether a new CA is to be made: this one is old, or somebody asks for one and not too many stand already."""
        return certificates.due(self.ca.certificate, now) or (self.asked and len(self.before) < KEPT)

    def outlives(self, standing: Iterable[str], now: datetime) -> bool:
        """Whether nobody serves a leaf of an older CA: all that are *standing* have confirmed, or time is over."""
        replicas = frozenset(standing)
        if replicas and {note(replica) for replica in replicas} <= self.confirmed:
            return True
        return now >= self.ca.certificate.not_valid_before_utc + certificates.SKEW + certificates.LEAF_LIFE + GRACE


def note(replica: str) -> str:
    """The annotation by which *replica* confirms that it serves a leaf of the CA."""
    name = replica if _NAME.fullmatch(replica) else sha256(replica.encode()).hexdigest()[:32]
    return names.CONFIRMED_PREFIX + name


def read(secret: Secret, now: datetime) -> Authority | None:
    """What *secret* holds; None where no leaf can be signed with it."""
    try:
        data = contents(secret)
        ca = Pair.load(data.get(CERTIFICATE, b""), data.get(KEY, b""))
    except BadInput:
        return None
    if not certificates.is_authority(ca):
        return None
    notes = {
        key: value
        for key, value in (secret.metadata.annotations or {}).items()
        if key.startswith(names.CONFIRMED_PREFIX)
    }
    current = certificates.fingerprint(ca.certificate)
    bundle = certificates.alive(certificates.read_bundle(data.get(BUNDLE, b"")), now)
    return Authority(
        ca,
        before=tuple(each for each in bundle if each != ca.certificate),
        noted=frozenset(notes),
        confirmed=frozenset(key for key, value in notes.items() if value == current),
        asked=secret.metadata.annotation(names.ROTATE_ANNOTATION) == "true",
        version=secret.metadata.resource_version,
    )


def contents(secret: Secret) -> dict[str, bytes]:
    """The data of *secret*; :class:`BadInput` where it is not base64."""
    found = {}
    for name, text in sorted((secret.data or {}).items()):
        try:
            found[name] = b64decode(text, validate=True)
        except NotBase64:
            raise BadInput("", name, "is not base64") from None
    return found


def renewed(before: Iterable[x509.Certificate], now: datetime) -> Authority:
    """A new CA, beside the newest of those *before*."""
    return Authority(certificates.new_ca(now), before=tuple(certificates.alive(before, now))[:KEPT])


def made(authority: Authority, now: datetime) -> dict[str, Any]:
    """The body of a new Secret."""
    return {"type": "kubernetes.io/tls", **_data(authority, now)}


def replacing(authority: Authority, secret: Secret, now: datetime) -> dict[str, Any]:
    """The patch by which *authority* takes the place of what *secret* holds: notes and wishes are over."""
    notes = {key: None for key in secret.metadata.annotations or {} if _is_ours(key)}
    return {
        "metadata": {"resourceVersion": secret.metadata.resource_version, "annotations": notes},
        **_data(authority, now),
    }


def confirming(authority: Authority, replica: str) -> dict[str, Any]:
    """The patch by which *replica* says that it serves a leaf of *authority*; it disturbs nobody else's."""
    return {"metadata": {"annotations": {note(replica): certificates.fingerprint(authority.ca.certificate)}}}


def concluding(authority: Authority, now: datetime) -> dict[str, Any]:
    """The patch after which only the CA of *authority* is trusted."""
    metadata = {"resourceVersion": authority.version, "annotations": dict.fromkeys(sorted(authority.noted))}
    return {"metadata": metadata, "data": _encoded({BUNDLE: certificates.bundle([authority.ca.certificate], now)})}


def _is_ours(key: str) -> bool:
    return key == names.ROTATE_ANNOTATION or key.startswith(names.CONFIRMED_PREFIX)


def _data(authority: Authority, now: datetime) -> dict[str, Any]:
    ca = authority.ca
    return {"data": _encoded({CERTIFICATE: ca.certificate_pem, KEY: ca.key_pem, BUNDLE: authority.bundle(now)})}


def _encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in data.items()}
