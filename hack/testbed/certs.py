"""
Certificates and kubeconfigs of one control plane: a CA of its own, and the certificates that it signs.

A user of the API is a client certificate: the common name is the user's name, the organizations are the groups. So a
user can be added at any time without a restart of the API server.
"""

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=30)
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Store them as NAME.crt and NAME.key."""
        crt, key = folder / f"{name}.crt", folder / f"{name}.key"
        write_private(key, self.key)
        crt.write_bytes(self.certificate)
        return crt, key


class Authority:
    """A certificate authority, kept in a directory so that another process can also add users."""

    def __init__(self, folder: Path) -> None:
        """Load the authority of the directory, or make one."""
        self._name = _name("kavip-testbed", ())
        key, certificate = folder / "ca.key", folder / "ca.crt"
        if not certificate.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _create(self._name).write(folder, "ca")
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        self._key = loaded
        self.pem = certificate.read_bytes()

    def issue(self, name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Pair:
        """A certificate for a server (hosts), a client (name and groups) or both."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self._name, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_key(key))

    def kubeconfig(self, server: str, user: str, groups: Sequence[str] = ()) -> str:
        """The kubeconfig of a user, as JSON, which is YAML."""
        pair = self.issue(user, groups)
        cluster = {"server": server, "certificate-authority-data": _b64(self.pem)}
        credentials = {"client-certificate-data": _b64(pair.certificate), "client-key-data": _b64(pair.key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }
        return json.dumps(config, indent=1)


def _create(name: x509.Name) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_key(key))


def private_key(key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    """A private key in the PEM form that Kubernetes also takes for service accounts; a new one by default."""
    return (key or ec.generate_private_key(ec.SECP256R1())).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )


def _name(name: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
