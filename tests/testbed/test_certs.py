"""Users are client certificates."""

import base64
import json
import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from hack.testbed.certs import Authority, write_private


def test_a_kubeconfig_carries_name_and_groups(tmp_path: Path) -> None:
    """The certificate in it has the user's name, as the API server reads it."""
    authority = Authority(tmp_path)
    config = json.loads(authority.kubeconfig("https://127.0.0.1:1", "bob", ["a", "b"]))
    pem = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    certificate = x509.load_pem_x509_certificate(pem)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pem))
    assert [part.value for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["bob"]
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [part.value for part in groups] == ["a", "b"]


def test_an_authority_is_kept(tmp_path: Path) -> None:
    """An authority that is opened later on the same directory signs with the same CA."""
    first, again = Authority(tmp_path / "new"), Authority(tmp_path / "new")
    assert again.pem == first.pem
    certificate = x509.load_pem_x509_certificate(again.issue("bob").certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(first.pem))


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """No other user of the machine can become administrator of the testbed."""
    path = write_private(tmp_path / "key", b"secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
