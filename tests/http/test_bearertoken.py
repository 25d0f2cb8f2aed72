"""A secured port: TLS, and pages only for tokens that are allowed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from kavip.http import ports, tls
from kavip.http.bearertoken import MAX_TOKEN, Access
from kavip.pki.certificates import new_self_signed
from tests.http.client import HOST, Client, unverifying
from tests.support import manifests
from tests.support.clock import advance

HEAD = "GET /livez HTTP/1.1\r\nHost: x\r\n"
CONTEXT = tls.serving_context(new_self_signed("localhost", datetime.now(UTC)))


@dataclass
class Tokens:
    """Who each token belongs to, in effect; records what it was asked."""

    known: dict[str, Access]
    asked: list[tuple[str, bytes]] = field(default_factory=list)

    async def access(self, token: str, sender: bytes) -> Access:
        """The access of *token*."""
        self.asked.append((token, sender))
        return self.known.get(token, Access.UNAUTHENTICATED)


@pytest.fixture
def tokens() -> Tokens:
    """Four tokens."""
    return Tokens(
        {
            "prometheus": Access.ALLOWED,
            "tenant": Access.FORBIDDEN,
            "busy": Access.THROTTLED,
            "down": Access.UNAVAILABLE,
        }
    )


@pytest.fixture
async def port(tokens: Tokens) -> AsyncIterator[int]:
    """A secured port."""
    security = ports.Security(lambda: CONTEXT, tokens)
    async with ports.serving(ports.probes(lambda: ()), HOST, 0, name="metrics", security=security) as bound:
        yield bound


async def ask(port: int, *headers: str) -> int:
    """The status of the page for a client that sends *headers*."""
    client = await Client.connected(port, tls=unverifying())
    try:
        return await client.ask("".join([HEAD, *(f"{each}\r\n" for each in headers), "\r\n"]).encode())
    finally:
        client.close()


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Authorization: Bearer prometheus", 200),
        ("authorization: bearer  prometheus", 200),
        ("Authorization: Bearer tenant", 403),
        ("Authorization: Bearer busy", 429),
        ("Authorization: Bearer down", 503),
        ("Authorization: Bearer other", 401),
    ],
)
async def test_the_token_decides(port: int, tokens: Tokens, header: str, status: int) -> None:
    """The status says whether the token is unknown, without the right, or cannot be judged now."""
    assert await ask(port, header) == status
    assert tokens.asked == [(header.rsplit(maxsplit=1)[-1], bytes([127, 0, 0, 1]))]


def test_the_refusal_names_a_role_that_exists() -> None:
    """The answer to an account without the right names the ClusterRole that the chart and config create."""
    (role,) = manifests.objects(manifests.CONFIG / "metrics" / "reader.yaml")
    assert Access.FORBIDDEN.value[1].endswith(f" bind this account to the ClusterRole {role['metadata']['name']}")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Basic prometheus"],
        ["Authorization: prometheus"],
        ["Authorization: Bearer prometheus prometheus"],
        ["Authorization: Bearer prometheus", "Authorization: Bearer prometheus"],
        ["Authorization: Bearer pr\u00e9"],
        [f"Authorization: Bearer {'x' * (MAX_TOKEN + 1)}"],
    ],
    ids=["none", "scheme", "blank", "basic", "bare", "two words", "two headers", "not ascii", "long"],
)
async def test_a_malformed_token_is_not_asked_about(port: int, tokens: Tokens, headers: list[str]) -> None:
    """The answer is 401, and costs the API server nothing."""
    assert await ask(port, *headers) == 401
    assert tokens.asked == []


async def test_a_refusal_names_the_scheme_and_closes(port: int) -> None:
    """A 401 has WWW-Authenticate, as HTTP demands; no client rests on the connection."""
    client = await Client.connected(port, tls=unverifying())
    client.writer.write(f"{HEAD}\r\n".encode())
    answer = (await client.rest()).lower()
    client.close()
    assert b"\r\nwww-authenticate: bearer\r\n" in answer
    assert b"\r\nconnection: close\r\n" in answer


async def test_plain_http_gets_no_page(port: int) -> None:
    """A request without TLS ends the connection."""
    client = await Client.connected(port)
    client.writer.write(f"{HEAD}Authorization: Bearer prometheus\r\n\r\n".encode())
    assert b"200" not in await client.rest()
    client.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handshake is too slow."""
    monkeypatch.setattr(ports, "LIMITS", replace(ports.LIMITS, handshake=600.0))


@pytest.mark.usefixtures("patient")
async def test_silent_handshakes_keep_no_scrape_out(port: int) -> None:
    """A new connection displaces the oldest one that has not finished its handshake."""
    clients = [await Client.connected(port) for _ in range(ports.LIMITS.connections)]
    try:
        assert await ask(port, "Authorization: Bearer prometheus") == 200
        await clients[0].rest()
        assert not clients[-1].reader.at_eof()
    finally:
        for client in clients:
            client.close()


async def test_a_handshake_has_a_deadline(port: int) -> None:
    """A client that sends no handshake is disconnected."""
    client = await Client.connected(port)
    advance(ports.LIMITS.handshake)
    assert await client.rest() == b""
    client.close()
