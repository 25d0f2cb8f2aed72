"""The certificate of the metrics: signed by kavip itself, or from files that change."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kavip.http.listener import Listener
from kavip.http.servingcertificate import CERTIFICATE_FILE, KEY_FILE, ServingCertificate
from kavip.pki.certificates import CA_LIFETIME, KeyPair, new_self_signed
from kavip.pki.verification import serving_error
from tests.http.client import HOST, unverifying

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NAME = "kavip-metrics.kavip.svc"


def write(folder: Path, leaf: KeyPair) -> None:
    """Write *leaf* as kubelet mounts a Secret of type kubernetes.io/tls."""
    folder.mkdir(exist_ok=True)
    (folder / CERTIFICATE_FILE).write_bytes(leaf.certificate_pem)
    (folder / KEY_FILE).write_bytes(leaf.key_pem)


async def served(certificate: ServingCertificate) -> x509.Certificate | None:
    """The certificate that a new connection gets; None if the handshake fails."""
    listener = Listener(lambda _: asyncio.Future(), tls=certificate.context)
    port = await listener.start(HOST, 0)
    try:
        _, writer = await asyncio.open_connection(HOST, port, ssl=unverifying())
    except (ssl.SSLError, ConnectionError):
        return None
    else:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return x509.load_der_x509_certificate(found)
    finally:
        await listener.stop()


async def test_a_self_signed_one_is_renewed_in_time() -> None:
    """It is for the Service's name, and replaced after two thirds of its lifetime."""
    times = [NOW]
    certificate = ServingCertificate("metrics", folder="", host=NAME, clock=lambda: times[-1])
    await certificate.update()
    first = await served(certificate)
    assert first is not None
    assert serving_error(first, NAME, NOW) == ""
    await certificate.update()
    assert await served(certificate) == first
    times.append(NOW + CA_LIFETIME - timedelta(days=60))
    await certificate.update()
    second = await served(certificate)
    assert second is not None
    assert serving_error(second, NAME, NOW + CA_LIFETIME) == ""


async def test_files_are_read_again_after_a_change(tmp_path: Path) -> None:
    """The next connection gets the new certificate."""
    certificate = ServingCertificate("metrics", folder=str(tmp_path / "certs"), host=NAME)
    await certificate.update()
    assert await served(certificate) is None
    updating = asyncio.create_task(certificate.run(every=0.01))
    for leaf in (new_self_signed(NAME, NOW), new_self_signed("other", NOW)):
        await asyncio.to_thread(write, tmp_path / "certs", leaf)
        async with asyncio.timeout(60):
            while await served(certificate) != leaf.certificate:
                await asyncio.sleep(0.01)
    updating.cancel()


@pytest.mark.parametrize("content", [None, b"", b"no PEM", b"a key of another certificate"])
async def test_unusable_files_leave_the_last_certificate(tmp_path: Path, content: bytes | None) -> None:
    """Also halfway through a change, when the key is not that of the certificate."""
    leaf = new_self_signed(NAME, NOW)
    await asyncio.to_thread(write, tmp_path, leaf)
    certificate = ServingCertificate("metrics", folder=str(tmp_path), host=NAME)
    await certificate.update()
    if content is None:
        await asyncio.to_thread((tmp_path / KEY_FILE).unlink)
    else:
        other = new_self_signed(NAME, NOW).key_pem if b"key" in content else content
        await asyncio.to_thread((tmp_path / KEY_FILE).write_bytes, other)
    await certificate.update()
    assert await served(certificate) == leaf.certificate
    assert certificate._problem
