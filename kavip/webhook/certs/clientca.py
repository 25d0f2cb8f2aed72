"""The setting ``webhook_client_ca``: the CA of the certificates by which API servers authenticate to the webhook."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from kavip import telemetry
from kavip.errors import SettingsError
from kavip.http import tls
from kavip.pki.trustbundle import PARSE_ERRORS, encode_pem, parse_bundle, unexpired
from kavip.pki.verification import is_ca
from kavip.settings import flag_and_variable

_WANTED: Final = "want CA certificates as PEM, or the path of a file with them"
_PEM: Final = "-----BEGIN "

log: Final = structlog.get_logger(__name__)


def read_client_ca(value: str) -> str:
    """
    The certificates of the setting *value*, as PEM; "" if it is empty.

    Raises :class:`SettingsError` if there are none. Sets the metric with their expiry, and logs one that has expired:
    with that CA the handshakes of API servers fail.
    """
    if not value.strip():
        return ""
    shown = "PEM" if _PEM in value else repr(value)
    found = parse_bundle(value.encode() if _PEM in value else _read(value))
    if not found:
        raise _error(shown, f"has no readable certificate; {_WANTED}")
    if problem := next(filter(None, map(_problem, found)), ""):
        raise _error(shown, f"{problem}; {_WANTED}")
    pem = encode_pem(found).decode()
    try:
        tls.server_context(pem)
    except ssl.SSLError as error:
        raise _error(shown, f"OpenSSL rejects it: {error.reason or error}") from None
    telemetry.CERTIFICATE_EXPIRY.labels("client-ca").set(min(each.not_valid_after_utc for each in found).timestamp())
    for each in {*found} - {*unexpired(found, datetime.now(UTC))}:
        log.warning("client CA expired", subject=each.subject.rfc4514_string())
    return pem


def _problem(certificate: x509.Certificate) -> str:
    try:
        return "" if is_ca(certificate) else f"{certificate.subject.rfc4514_string()} is not a CA"
    except PARSE_ERRORS:
        return "a certificate is malformed"


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise _error(repr(path), f"cannot be read: {getattr(error, 'strerror', None) or error}; {_WANTED}") from None


def _error(shown: str, problem: str) -> SettingsError:
    return SettingsError(f"{flag_and_variable('webhook_client_ca')}: {shown}: {problem}")
