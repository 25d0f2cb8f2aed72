"""
The CA bundle in the ConfigMap ``kavip-webhook-ca``, which the webhook writes and the controller reads: its PEM texts.

``ca.crt`` has the CAs to trust. ``dropped.crt`` has those that it had before, as long as ``caBundle`` has them: any
leader of the controller knows by it that they are no foreign CAs.
The account of the webhook can write anything into the ConfigMap, and API servers trust what the controller publishes.
So the controller decodes the text, and publishes only certificates that it has read.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cryptography import x509

from kavip import names
from kavip.errors import BadInput
from kavip.pki.certificates import fingerprint
from kavip.pki.trustbundle import PARSE_ERRORS, encode_pem, parse_bundle
from kavip.pki.verification import is_ca

MAX_CERTIFICATES: Final = 250
MAX_BYTES: Final = 256 * 1024
"""Of PEM. A webhook configuration has it four times in base64, and etcd accepts requests of 1.5 MiB."""
_BEGIN: Final = "-----BEGIN "


def encode(certificates: Iterable[x509.Certificate]) -> str:
    """*certificates* as PEM, the newest first; without those that :func:`decode` refuses, or that do not fit."""
    return encode_pem(fitting(each for each in certificates if _is_anchor(each))).decode()


def fitting(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """The first of *certificates* that are within the bounds, without duplicates and the newest first."""
    kept, size = [], 0
    for each in list(dict.fromkeys(certificates))[:MAX_CERTIFICATES]:
        size += len(encode_pem([each]))
        if size > MAX_BYTES:
            break
        kept.append(each)
    return sorted(kept, key=lambda each: (-each.not_valid_before_utc.timestamp(), fingerprint(each)))


def decode(text: str, *, key: str = names.CA_BUNDLE_KEY) -> list[x509.Certificate]:
    """The certificates in *text* of *key*; raises :class:`BadInput` unless all are CAs, and within the bounds."""

    def bad(problem: str) -> BadInput:
        return BadInput("", key, problem)

    if len(text) > MAX_BYTES:
        raise bad(f"has {len(text)} characters; want at most {MAX_BYTES}")
    if (blocks := text.count(_BEGIN)) > MAX_CERTIFICATES:
        raise bad(f"has {blocks} PEM blocks; want at most {MAX_CERTIFICATES}")
    found = parse_bundle(text.encode())
    if not found or len(found) != blocks:
        raise bad("is malformed; want certificates as PEM, and nothing else")
    for number, each in enumerate(found, start=1):
        if not _is_anchor(each):
            raise bad(f"certificate {number} is malformed, or not a CA")
    return found


def decode_dropped(data: Mapping[str, str]) -> list[x509.Certificate]:
    """The dropped CAs in the *data* of the ConfigMap; raises :class:`BadInput` as :func:`decode` does."""
    text = data.get(names.DROPPED_CAS_KEY)
    return [] if text is None else decode(text, key=names.DROPPED_CAS_KEY)


def _is_anchor(certificate: x509.Certificate) -> bool:
    """Whether *certificate* is a CA, or its own issuer."""
    try:
        return is_ca(certificate) or certificate.subject == certificate.issuer
    except PARSE_ERRORS:
        return False
