"""A replica that shuts down, and one with a crowded webhook, at their real ports."""

import socket
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path

import msgspec
import pytest

from kavip import names
from kavip.http.connection import Limits
from tests.app.conftest import Installation, Replica, a_group, wait_for
from tests.http.connectionload import connection_load
from tests.support.build import service
from tests.webhook.httpclient import review_body

pytestmark = pytest.mark.apiserver

CONNECTIONS = 1_500
FREE = 24  # connections for the API server and the first clients
ROUNDS = 50
PATH = names.VALIDATE_SERVICE_PATH
BODY = review_body(PATH, msgspec.to_builtins(service("shop/web")))
REVIEW = (
    f"POST {PATH} HTTP/1.1\r\nHost: kavip\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
).encode() + BODY


def probed(replica: Replica, path: str) -> tuple[int, str]:
    """The answer of a probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{replica.probe_port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def resident(replica: Replica) -> int:
    """The peak memory in KiB."""
    lines = Path(f"/proc/{replica.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def trust_of(installation: Installation) -> ssl.SSLContext:
    """The CAs that the API server trusts."""
    (found, *_) = installation.get("validatingwebhookconfiguration", "kavip")["webhooks"]
    return ssl.create_default_context(cadata=b64decode(found["clientConfig"]["caBundle"]).decode())


def connected(installation: Installation, trust: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection to the webhook, as the API server opens one."""
    plain = socket.create_connection(("127.0.0.1", installation.webhook_port), timeout=60)
    return trust.wrap_socket(plain, server_hostname="127.0.0.1")


def answer(client: ssl.SSLSocket) -> tuple[int, str | None, bytes]:
    """Status, ``Connection`` and body of the next response."""
    found = HTTPResponse(client)
    found.begin()
    return found.status, found.getheader("Connection"), found.read()


def test_a_replica_that_shuts_down_answers_first(installation: Installation) -> None:
    """It is unready at once, evaluates a review that was half sent, closes its connection, and exits with status 0."""
    replica = installation.start("--drain-seconds=20")
    with connected(installation, trust_of(installation)) as client:
        client.sendall(REVIEW)
        status, closing, judged = answer(client)
        assert (status, closing) == (200, None)
        replica.process.terminate()
        wait_for("it is not ready", lambda: probed(replica, names.READY_PATH)[0] == 503)
        # the controller stops first, then the webhook too
        wait_for("the webhook ends", lambda: probed(replica, names.READY_PATH) == (503, "shutting down\n" * 2))
        client.sendall(REVIEW[:40])
        assert probed(replica, names.LIVE_PATH)[0] == 200
        client.sendall(REVIEW[40:])
        assert answer(client) == (200, "close", judged)
        assert client.recv(1) == b""
    assert replica.process.wait(timeout=90) == 0


def test_probes_are_answered_while_the_webhook_is_crowded(installation: Installation, tmp_path: Path) -> None:
    """Probes and reviews are answered; idle connections are closed, counted, and need little memory."""
    replica = installation.start()
    evicted = 'kavip_connections_evicted_total{port="webhook"}'
    assert replica.metric(evicted) == 0
    before = resident(replica)
    trust = trust_of(installation)
    with ExitStack() as idle:
        # on a slow machine few connect at a time: most connections have finished the handshake and are idle
        for _ in range(Limits().connections - FREE):
            with suppress(OSError):
                idle.enter_context(connected(installation, trust))
        opened = idle.enter_context(
            connection_load("127.0.0.1", installation.webhook_port, CONNECTIONS, log=tmp_path / "load.log")
        )
        found = {
            (turn, probed(replica, path)) for turn in range(ROUNDS) for path in (names.LIVE_PATH, names.READY_PATH)
        }
        done = installation.try_apply(a_group("new"), flags=("--dry-run=server",))
        wait_for("a connection is replaced", lambda: replica.metric(evicted) > 0)
        wait_for("more have come", lambda: opened() > CONNECTIONS)
    assert found == {(turn, (200, "ok\n")) for turn in range(ROUNDS)}
    assert done.returncode == 0, done.stderr
    assert resident(replica) - before < 192 << 10  # more than half of the limit
