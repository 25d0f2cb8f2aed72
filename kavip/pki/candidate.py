"""What a Secret that others fill holds: a certificate that can be served, or why not."""

from dataclasses import dataclass, replace
from datetime import datetime

from cryptography import x509

from kavip.api.cluster import Secret
from kavip.errors import BadInput
from kavip.pki import ca, certificates
from kavip.pki.certificates import Pair


@dataclass(frozen=True, slots=True)
class Candidate:
    """A certificate that can be served, and the *authorities* of ``ca.crt`` beside it that have not ended."""

    leaf: Pair
    authorities: tuple[x509.Certificate, ...] = ()

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """Those *authorities* that vouch for the certificate."""
        return tuple(one for one in self.authorities if certificates.vouched(self.leaf, [one]))


def judged(secret: Secret, host: str, now: datetime) -> Candidate | str:
    """What *secret* holds for *host* at *now*, or why it cannot be served."""
    try:
        data = ca.contents(secret)
        if lacking := [key for key in (ca.CERTIFICATE, ca.KEY) if not data.get(key)]:
            return f"{' and '.join(lacking)} missing"
        leaf = Pair.load(data[ca.CERTIFICATE], data[ca.KEY])
    except BadInput as error:
        return str(error)
    if fault := certificates.fault(leaf.certificate, host, now):
        return fault
    leaf = replace(leaf, chain=tuple(certificates.alive(leaf.chain, now)))
    return Candidate(leaf, tuple(certificates.alive(certificates.read_bundle(data.get(ca.BUNDLE, b"")), now)))


def unpublishable(found: Candidate) -> str:
    """Why *found* cannot become trusted by way of its ``ca.crt``; "" where it can."""
    if not found.authorities:
        return "ca.crt is missing, cannot be read, or has ended; want the CA of the certificate"
    if not found.roots:
        return "ca.crt is not the CA of the certificate, and tls.crt holds no chain that leads there"
    return ""
