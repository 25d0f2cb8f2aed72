"""A certificate that another program wrote into a Secret: the certificate, or why it cannot be served."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from cryptography import x509

from kavip.api.cluster import Secret
from kavip.errors import BadInput
from kavip.pki.ca import BUNDLE, CERTIFICATE, KEY, decode_data
from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import parse_bundle, unexpired
from kavip.pki.verification import is_trusted, serving_error

OLM_BUNDLE: Final = "olmCAKey"
"""The key under which OLM writes the CA, in place of ``ca.crt``."""


@dataclass(frozen=True, slots=True)
class ProvidedCertificate:
    """A certificate that can be served, and the unexpired *cas* of ``ca.crt``, or of OLM's key."""

    leaf: KeyPair
    cas: tuple[x509.Certificate, ...] = ()

    @property
    def issuers(self) -> tuple[x509.Certificate, ...]:
        """The CAs by which clients trust the certificate."""
        return tuple(each for each in self.cas if is_trusted(self.leaf, [each]))


def read_secret(secret: Secret, host: str, now: datetime) -> ProvidedCertificate | str:
    """The certificate in *secret* for *host* at *now*, or why it cannot be served."""
    try:
        data = decode_data(secret)
        if missing := [key for key in (CERTIFICATE, KEY) if not data.get(key)]:
            return f"{' and '.join(missing)} missing"
        leaf = KeyPair.load(data[CERTIFICATE], data[KEY])
    except BadInput as error:
        return str(error)
    if problem := serving_error(leaf.certificate, host, now):
        return problem
    leaf = replace(leaf, chain=tuple(unexpired(leaf.chain, now)))
    bundle = data.get(BUNDLE) or data.get(OLM_BUNDLE, b"")
    return ProvidedCertificate(leaf, tuple(unexpired(parse_bundle(bundle), now)))


def trust_error(found: ProvidedCertificate) -> str:
    """Why clients that trust ``ca.crt`` would not trust the certificate; "" if they would."""
    if not found.cas:
        return "ca.crt is missing, malformed or expired; want the CA of the certificate"
    if not found.issuers:
        return "ca.crt is not the CA of the certificate, and tls.crt has no chain to it"
    return ""
