"""Clients of the webhook's port: API servers with and without a client certificate, Nodes, and others."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from cryptography.x509.oid import ExtendedKeyUsageOID

from kavip import names, telemetry
from kavip.api.address import parse_address
from kavip.errors import SettingsError
from kavip.http.connection import CLOSING_RESPONSE, Limits
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import encode_pem
from kavip.snapshot import Snapshot
from kavip.webhook import body
from kavip.webhook.budget import BodyBudget
from kavip.webhook.certs.clientca import read_client_ca
from kavip.webhook.senders import SenderKind, sender_kinds
from kavip.webhook.server import WebhookServer
from tests.http.client import HOST, Client, closed
from tests.pki.secrets import issued
from tests.support.clock import advance
from tests.webhook.httpclient import review_body

NOW = datetime.now(UTC)
SERVING_CA, CLIENT_CA, STRANGE_CA = certificates.new_ca(NOW), certificates.new_ca(NOW), certificates.new_ca(NOW)
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
BODY = review_body(names.VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}})
HEAD = f"POST {names.VALIDATE_SERVICE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
REVIEW = f"{HEAD}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
ROOM = 4
BUDGET = 3 << 20


@asynccontextmanager
async def webhook(client_ca: str, *, room: int = ROOM) -> AsyncIterator[int]:
    """A webhook with few connections; yields its port."""
    server = WebhookServer(Snapshot(), client_ca=client_ca)
    server._listener._limits = Limits(connections=room, handshake=60, exchange=40)
    async with serving(server) as port:
        yield port


@asynccontextmanager
async def serving(server: WebhookServer) -> AsyncIterator[int]:
    """*server* with a certificate; yields its port."""
    server.serve_certificate(certificates.new_leaf(SERVING_CA, [HOST], NOW))
    port = await server.start(HOST, 0)
    try:
        yield port
    finally:
        await server.stop()


def presenting(folder: Path, pair: KeyPair | None) -> ssl.SSLContext:
    """How a client connects that presents *pair*."""
    trust = ssl.create_default_context(cadata=SERVING_CA.certificate_pem.decode())
    if pair is not None:
        (folder / "client.pem").write_bytes(pair.certificate_pem + pair.key_pem)
        trust.load_cert_chain(folder / "client.pem")
    return trust


async def reviewed(port: int, tls: ssl.SSLContext) -> int:
    """The status of the answer to a review on a new connection; 0 if the server refuses the connection."""
    try:
        client = await Client.connected(port, tls=tls)
        with closed([client]):
            return await client.ask(REVIEW)
    except (OSError, asyncio.IncompleteReadError):
        return 0


PRESENTED = {
    "none": (None, 200),
    "valid": (issued(CLIENT_CA, NOW, purpose=CLIENT), 200),
    "of another CA": (issued(STRANGE_CA, NOW, purpose=CLIENT), 0),
    "self-signed": (issued(None, NOW, purpose=CLIENT), 0),
    "for servers only": (issued(CLIENT_CA, NOW), 0),
    "expired": (issued(CLIENT_CA, NOW - timedelta(days=9), purpose=CLIENT), 0),
    "not valid yet": (issued(CLIENT_CA, NOW + timedelta(days=9), purpose=CLIENT), 0),
}


@pytest.mark.parametrize("presented", PRESENTED)
async def test_a_client_certificate_is_optional_but_must_be_valid(tmp_path: Path, presented: str) -> None:
    """Without ``webhook.clientCA`` none is requested, so none is refused."""
    pair, status = PRESENTED[presented]
    tls = presenting(tmp_path, pair)
    async with webhook(encode_pem([CLIENT_CA.certificate]).decode()) as port:
        assert await reviewed(port, tls) == status
    async with webhook("") as port:
        assert await reviewed(port, tls) == 200


async def test_a_refused_certificate_is_logged_once_a_minute(tmp_path: Path) -> None:
    """With the client and the cause; any client can present one."""
    strange = presenting(tmp_path, issued(None, NOW, purpose=CLIENT))
    with structlog.testing.capture_logs() as logs:
        async with webhook(encode_pem([CLIENT_CA.certificate]).decode()) as port:
            for expected in (1, 1, 2):
                assert await reviewed(port, strange) == 0
                found = [each for each in logs if each["event"] == "client certificate refused"]
                assert [each["client"] for each in found] == [HOST] * expected
                advance(40)


async def test_a_session_is_not_resumed_without_its_certificate(tmp_path: Path) -> None:
    """The server gives no tickets, so each connection is verified."""
    tls = presenting(tmp_path, issued(CLIENT_CA, NOW, purpose=CLIENT))
    async with webhook(encode_pem([CLIENT_CA.certificate]).decode()) as port:
        client = await Client.connected(port, tls=tls)
        with closed([client]):
            assert await client.ask(REVIEW) == 200
            session = client.writer.get_extra_info("ssl_object").session
            assert session is None or not session.has_ticket


async def test_a_connection_with_a_certificate_is_never_displaced(tmp_path: Path) -> None:
    """It displaces others, even of its own address; these divide what is left."""
    verified, plain = presenting(tmp_path, issued(CLIENT_CA, NOW, purpose=CLIENT)), presenting(tmp_path, None)
    async with webhook(encode_pem([CLIENT_CA.certificate]).decode()) as port:
        clients: list[Client] = []
        with closed(clients):
            for tls in (verified, plain, plain, plain, verified, verified):
                clients.append(await Client.connected(port, tls=tls))
                assert await clients[-1].ask(REVIEW) == 200
            assert [await clients[number].rest() for number in (1, 2)] == [CLOSING_RESPONSE] * 2
            for _ in range(2 * ROOM):
                assert await reviewed(port, plain) == 200
            assert [await clients[number].ask(REVIEW) for number in (0, 4, 5)] == [200] * 3


async def test_a_large_body_with_a_certificate_is_never_displaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It displaces those of others, even of its own address."""
    verified, plain = presenting(tmp_path, issued(CLIENT_CA, NOW, purpose=CLIENT)), presenting(tmp_path, None)
    monkeypatch.setattr(body, "DEADLINE", 60.0)
    size = BUDGET // 3
    part = f"{HEAD}Content-Length: {size}\r\n\r\n".encode() + b" " * (size - 1)
    server = WebhookServer(Snapshot(), client_ca=PEM)
    server._listener._limits = Limits(handshake=60, exchange=60)
    server._bodies.budget = BodyBudget(BUDGET)
    clients: list[Client] = []
    async with serving(server) as port:
        with closed(clients):
            for tls in (plain, verified, verified, verified):
                clients.append(await Client.connected(port, tls=tls))
                clients[-1].writer.write(part)
                async with asyncio.timeout(30):
                    while server._bodies.budget.size - server._bodies.budget.left < size * min(len(clients), 3) - 1000:
                        await asyncio.sleep(0.01)
            assert await clients[0].status() == 503
            stranger = await Client.connected(port, tls=plain)
            clients.append(stranger)
            assert await stranger.ask(part) == 503
            for client in clients[1:4]:
                client.writer.write(b" ")
                assert await client.status() == 400, "a body of spaces is no review"


async def test_no_connection_is_displaced_if_all_have_certificates(tmp_path: Path) -> None:
    """A new one waits until one of them ends."""
    verified, plain = presenting(tmp_path, issued(CLIENT_CA, NOW, purpose=CLIENT)), presenting(tmp_path, None)
    async with webhook(encode_pem([CLIENT_CA.certificate]).decode()) as port:
        clients: list[Client] = []
        with closed(clients):
            for _ in range(ROOM):
                clients.append(await Client.connected(port, tls=verified))
                assert await clients[-1].ask(REVIEW) == 200
            late = asyncio.create_task(reviewed(port, plain))
            assert [await client.ask(REVIEW) for client in clients] == [200] * ROOM
            assert not late.done()
            clients.pop().close()
            assert await late == 200


def test_senders_are_known_by_the_addresses_of_the_cluster() -> None:
    """An API server on a Node is an API server; the address of a group or Service is no sender's."""
    snapshot = Snapshot()
    snapshot.ledger.reserve(names.API_SERVER, [parse_address("192.0.2.1"), parse_address("2001:db8::1")])
    snapshot.ledger.reserve(f"{names.NODE} n1", [parse_address("192.0.2.1")])
    snapshot.ledger.reserve(f"{names.NODE} n2", [parse_address("192.0.2.2")])
    snapshot.ledger.reserve(f"{names.KEEPALIVED_GROUP} lb/edge", [parse_address("192.0.2.3")])
    kind_of = sender_kinds(snapshot)
    found = {peer: kind_of(peer) for peer in ("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "192.0.2.2")}
    assert set(found.values()) == {SenderKind.API_SERVER, SenderKind.NODE}
    assert found["192.0.2.2"] is SenderKind.NODE
    assert {kind_of(peer) for peer in ("192.0.2.3", "192.0.2.4", "fe80::1%eth0", "")} == {SenderKind.OTHER}


# --- the setting --------------------------------------------------------------------------------------------------
PEM = encode_pem([CLIENT_CA.certificate]).decode()


def test_the_client_ca_is_pem_or_a_file(tmp_path: Path) -> None:
    """The metric has its expiry."""
    file = tmp_path / "ca.crt"
    file.write_text(f"Issuer: CN=us\n{PEM}")
    assert read_client_ca(PEM) == read_client_ca(str(file)) == PEM
    expiry = telemetry.CERTIFICATE_EXPIRY.labels("client-ca")._value.get()
    assert expiry == CLIENT_CA.certificate.not_valid_after_utc.timestamp()
    assert read_client_ca(" \n") == ""


LEAF = issued(None, NOW)
WANTED = "want CA certificates as PEM, or the path of a file with them"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("/nowhere/ca.crt", f"'/nowhere/ca.crt': cannot be read: No such file or directory; {WANTED}"),
        ("ca\0crt", f"'ca\\x00crt': cannot be read: embedded null byte; {WANTED}"),
        ("/dev/null", f"'/dev/null': has no readable certificate; {WANTED}"),
        (PEM.replace("M", "N"), f"PEM: has no readable certificate; {WANTED}"),
        (
            encode_pem([LEAF.certificate]).decode(),
            f"PEM: {LEAF.certificate.subject.rfc4514_string()} is not a CA; {WANTED}",
        ),
    ],
    ids=["no file", "no path", "empty", "malformed", "no CA"],
)
def test_a_bad_client_ca_is_named(value: str, problem: str) -> None:
    """With flag, variable and remedy."""
    with pytest.raises(SettingsError) as refused:
        read_client_ca(value)
    assert str(refused.value) == f"--webhook-client-ca (KAVIP_WEBHOOK_CLIENT_CA): {problem}"
