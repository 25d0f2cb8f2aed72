"""Builders of Secrets with certificates, as other programs write them."""

from base64 import b64encode
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kavip.api.cluster import Secret
from kavip.pki.certificates import KeyPair, PrivateKey

HOST = "kavip-webhook.kavip.svc"
DAY = timedelta(days=1)


def secret_of(leaf: KeyPair, *, ca: bytes = b"", **data: bytes) -> Secret:
    """A Secret with *leaf* and *ca*; *data* (``tls_key=...``) overrides both."""
    given = {name.replace("_", "."): value for name, value in data.items()}
    full = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "ca.crt": ca, **given}
    return Secret(data={name: b64encode(value).decode() for name, value in full.items() if value})


def issued(
    issuer: KeyPair | None,
    now: datetime,
    *,
    hosts: tuple[str, ...] = (HOST,),
    key: PrivateKey | None = None,
    is_authority: bool = False,
    purpose: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.SERVER_AUTH,
) -> KeyPair:
    """A certificate as other programs issue it; without *issuer* it is self-signed."""
    own: PrivateKey = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{x509.random_serial_number():x}"[:16])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    if purpose:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    signer = issuer.key if issuer else own
    digest = hashes.SHA256() if isinstance(signer, ec.EllipticCurvePrivateKey) or hasattr(signer, "key_size") else None
    return KeyPair(builder.sign(signer, digest), own)


def key_pem(key: PrivateKey, form: PrivateFormat) -> bytes:
    """*key* in another PEM format."""
    return key.private_bytes(Encoding.PEM, form, NoEncryption())
