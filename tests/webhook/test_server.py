"""The server over real TLS: every request gets a response of the right kind."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from yarl import URL

from hack import refusals
from kavip import names, telemetry
from kavip.admission import services
from kavip.http.connection import Limits
from kavip.pki import certificates
from kavip.snapshot import Snapshot
from kavip.webhook import body
from kavip.webhook import server as serving
from kavip.webhook.server import ROUTES, Route, WebhookServer
from tests.pki.secrets import issued
from tests.support.build import group, pool, service
from tests.webhook.httpclient import HOSTS, Connection, connected, review_body

pytestmark = pytest.mark.usefixtures("generous_timeouts")

PATHS = sorted(ROUTES)
SERVICE_PATH = names.VALIDATE_SERVICE_PATH


def wire(obj: Any) -> Any:
    """*obj* as JSON values."""
    return msgspec.to_builtins(obj)


@pytest.mark.parametrize(
    ("path", "sound"),
    [
        (names.VALIDATE_SERVICE_PATH, service("shop/web", group="lb/edge")),
        (names.VALIDATE_GROUP_PATH, group("lb/new")),
        (names.VALIDATE_POOL_PATH, pool("new", "203.0.113.0/24")),
        (names.MUTATE_SERVICE_PATH, service("shop/web")),
        (names.MUTATE_GROUP_PATH, group("lb/new")),
    ],
)
async def test_a_valid_object_is_allowed_on_each_path(webhook: Connection, path: str, sound: object) -> None:
    """The response has the UID, and a patch for a group without its defaults only."""
    response = await webhook.review(path, review_body(path, wire(sound), uid="u-17"))
    assert (response["uid"], response["allowed"]) == ("u-17", True)
    assert ("patch" in response) == (path == names.MUTATE_GROUP_PATH)


async def test_a_refusal_has_code_message_and_causes(webhook: Connection) -> None:
    """kubectl can print the Status."""
    requested = wire(service("shop/web", group="lb/edeg", annotations={names.SPREAD_ANNOTATION: "yes"}))
    response = await webhook.review(SERVICE_PATH, review_body(SERVICE_PATH, requested))
    status = response["status"]
    assert (response["allowed"], status["code"], status["reason"], status["status"]) == (
        False,
        422,
        "Invalid",
        "Failure",
    )
    assert (status["details"]["name"], status["details"]["kind"]) == ("web", "Service")
    assert [(cause["reason"], cause["field"], cause["message"]) for cause in status["details"]["causes"]] == [
        ("GroupNotFound", services.GROUP_FIELD, 'group "lb/edeg" does not exist; did you mean "lb/edge"?'),
        ("InvalidRequest", services.SPREAD_FIELD, '"yes": want "true" or "false"'),
    ]


async def test_a_pool_in_use_is_not_deleted(webhook: Connection) -> None:
    """A DELETE has no new object; the old one is evaluated."""
    path = names.VALIDATE_POOL_PATH
    response = await webhook.review(path, review_body(path, None, wire(pool("edge")), operation="DELETE"))
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["metadata.name"]


async def test_a_malformed_object_is_refused_by_validators_only(webhook: Connection) -> None:
    """A validator reports the path of the error without the content; a mutator changes nothing."""
    broken = {"metadata": {"name": "web"}, "spec": {"ports": "secret"}}
    response = await webhook.review(SERVICE_PATH, review_body(SERVICE_PATH, broken))
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert "$.spec.ports" in response["status"]["message"]
    assert "secret" not in response["status"]["message"]
    path = names.MUTATE_SERVICE_PATH
    assert await webhook.review(path, review_body(path, broken)) == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"{}", {}, 400),
        (review_body(SERVICE_PATH, {}), {"Content-Type": "text/plain"}, 415),
        (b"[" * 10_000, {}, 400),
        (b'"' + b"x" * (body.LIMIT + 1) + b'"', {}, 413),
    ],
    ids=["nothing", "half", "no review", "no JSON by its own word", "too deep", "too long"],
)
async def test_a_bad_request_is_an_http_error(
    webhook: Connection, data: bytes, headers: dict[str, str], status: int
) -> None:
    """A request without a review gets a 4xx with one line, so the failurePolicy decides."""
    code, body = await webhook.post(SERVICE_PATH, data, **headers)
    assert code == status
    assert body.count(b"\n") <= 1


async def test_a_body_of_six_mebibytes_is_read(webhook: Connection) -> None:
    """A review can have two objects of the largest size that the API server accepts."""
    large = {**wire(service("shop/web", group="lb/edge")), "unknown": "x" * (3 << 20)}
    data = review_body(SERVICE_PATH, large, large, operation="UPDATE")
    assert len(data) > 6 << 20
    assert (await webhook.review(SERVICE_PATH, data))["allowed"]


async def test_new_connections_get_the_new_certificate() -> None:
    """For all types of keys; open connections stay open."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    keys = (None, rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate(), None)
    server = WebhookServer(refusals.snapshot())
    trust = ssl.create_default_context(cadata=ca.certificate_pem.decode())
    async with connected(server) as connection:
        data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/edge")))
        assert (await connection.review(SERVICE_PATH, data))["allowed"]
        for key in keys:
            leaf = issued(ca, now, key=key, hosts=("localhost",))
            server.serve_certificate(leaf)
            _, writer = await asyncio.open_connection(
                "127.0.0.1", URL(connection.url).port, ssl=trust, server_hostname="localhost"
            )
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            assert shown == leaf.certificate.public_bytes(Encoding.DER)
        assert (await connection.review(SERVICE_PATH, data))["allowed"]


async def test_other_methods_and_paths_are_errors(webhook: Connection) -> None:
    """GET is a 405, and an unknown path is a 404."""
    async with webhook.session.get(webhook.url + SERVICE_PATH) as answer:
        assert answer.status == 405
    assert (await webhook.post("/validate-everything", b"{}"))[0] == 404


async def test_reviews_get_503_until_the_caches_are_synced() -> None:
    """The response has the cause, and so has the readiness."""
    missing = ["services are not synced yet"]
    server = WebhookServer(refusals.snapshot(), unready=lambda: "".join(missing))
    assert server.unready() == "no certificate yet"
    async with connected(server) as connection:
        data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/edge")))
        assert await connection.post(SERVICE_PATH, data) == (503, b"services are not synced yet\n")
        assert server.unready() == "services are not synced yet"
        missing.clear()
        assert (await connection.review(SERVICE_PATH, data))["allowed"]
        assert server.unready() == ""
    assert server.unready() == "shutting down"


async def test_a_rule_that_raises_is_answered_and_counted() -> None:
    """A validator refuses with 500 and the UID, a mutator allows; neither shows the object."""

    def broken(*_: object) -> Any:
        raise RuntimeError("the secret of shop/web")

    routes = {path: Route(broken, mutates=route.mutates) for path, route in ROUTES.items()}
    async with connected(WebhookServer(Snapshot(), routes=routes)) as connection:
        for path in PATHS:
            before = telemetry.REVIEWS.labels(path, "error")._value.get()
            response = await connection.review(path, review_body(path, {}, uid="u-9"))
            assert response["uid"] == "u-9"
            if path.startswith("/mutate"):
                assert response == {"uid": "u-9", "allowed": True}
            else:
                assert (response["allowed"], response["status"]["code"]) == (False, 500)
                assert "u-9" in response["status"]["message"]
            assert "secret" not in json.dumps(response)
            assert telemetry.REVIEWS.labels(path, "error")._value.get() == before + 1


async def test_a_review_waits_for_a_missing_group(
    webhook: Connection, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is created a moment later is found; other reviews are not delayed."""
    monkeypatch.setattr(serving, "WAIT_FOR_REFERENCES", 30.0)
    data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/late")))
    asking = asyncio.create_task(webhook.review(SERVICE_PATH, data))
    sound = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/edge")))
    for _ in range(20):
        assert (await webhook.review(SERVICE_PATH, sound))["allowed"]
    assert not asking.done()
    snapshot.put(group("lb/late"))
    assert (await asking)["allowed"]


async def test_a_review_does_not_wait_long_for_a_missing_group(
    webhook: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the wait the response is the refusal."""
    monkeypatch.setattr(serving, "WAIT_FOR_REFERENCES", 0.1)
    start = asyncio.get_running_loop().time()
    data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/never")))
    assert not (await webhook.review(SERVICE_PATH, data))["allowed"]
    assert asyncio.get_running_loop().time() - start >= 0.1


async def test_an_incomplete_body_times_out(webhook: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server responds with 408 before the API server gives up."""
    monkeypatch.setattr(body, "DEADLINE", 0.1)
    never = asyncio.Event()

    async def trickle() -> AsyncIterator[bytes]:
        yield b'{"apiVersion":'
        await never.wait()

    headers = {"Content-Type": "application/json"}
    async with webhook.session.post(webhook.url + SERVICE_PATH, data=trickle(), headers=headers) as answer:
        assert answer.status == 408
    never.set()


async def test_a_new_leaf_is_served_without_a_restart(snapshot: Snapshot) -> None:
    """Open connections continue, new ones get the new certificate."""
    server = WebhookServer(snapshot)
    data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/edge")))
    async with connected(server) as connection:
        assert (await connection.review(SERVICE_PATH, data))["allowed"]
        before = await _serial(connection)
        server.serve_certificate(certificates.new_leaf(connection.ca, HOSTS, datetime.now(UTC)))
        assert (await connection.review(SERVICE_PATH, data))["allowed"]
        assert await _serial(connection) != before


async def _serial(connection: Connection) -> str:
    """The serial number of the certificate that a new connection gets."""
    trust = ssl.create_default_context(cadata=connection.ca.certificate_pem.decode())
    port = int(connection.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    await writer.wait_closed()
    return str(shown)


async def test_the_expiry_of_the_leaf_is_a_metric(snapshot: Snapshot) -> None:
    """The metric has the time at which the leaf expires."""
    now = datetime.now(UTC)
    WebhookServer(snapshot).serve_certificate(
        certificates.new_leaf(certificates.new_ca(now), HOSTS, now, lifetime=timedelta(hours=1))
    )
    shown = telemetry.CERTIFICATE_EXPIRY.labels("leaf")._value.get()
    assert abs(shown - (now + timedelta(hours=1)).timestamp()) < 1


async def test_connections_are_drained(snapshot: Snapshot) -> None:
    """While the server drains, it evaluates reviews and closes each connection after the response."""
    server = WebhookServer(snapshot)
    data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/edge")))
    async with connected(server) as connection:
        headers = {"Content-Type": "application/json"}
        async with connection.session.post(connection.url + SERVICE_PATH, data=data, headers=headers) as answer:
            assert answer.headers.get("Connection", "") != "close"
        stopping = asyncio.create_task(server.stop(drain=30))
        await asyncio.sleep(0)
        assert server.unready() == "shutting down"
        async with connection.session.post(connection.url + SERVICE_PATH, data=data, headers=headers) as answer:
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)


async def test_a_review_in_flight_is_answered_while_the_server_stops(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A review that is being evaluated outlives the port."""
    monkeypatch.setattr(serving, "WAIT_FOR_REFERENCES", 60.0)
    server = WebhookServer(snapshot)
    server._listener._limits = Limits(exchange=60.0)
    data = review_body(SERVICE_PATH, wire(service("shop/web", group="lb/never")))
    async with connected(server) as connection:
        asking = asyncio.create_task(connection.post(SERVICE_PATH, data))
        while not any(each.in_flight for each in server._listener._server.open_connections):
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(server.stop())
        while server._listener._tasks and not all(each.done() for each in server._listener._tasks):
            await asyncio.sleep(0.01)
        assert not asking.done()
        snapshot.put(group("lb/never"))
        assert (await asking)[0] == 200
        await stopping


async def test_an_exception_is_logged_without_the_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The log line has UID, path, type and frames; the message may quote the object and is omitted."""

    def broken(*_: object) -> Any:
        raise RuntimeError("the secret of shop/web")

    with structlog.testing.capture_logs() as logs:
        async with connected(WebhookServer(Snapshot(), routes={SERVICE_PATH: Route(broken)})) as connection:
            await connection.review(SERVICE_PATH, review_body(SERVICE_PATH, {}, uid="u-9"))
    (found,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (found["uid"], found["path"], found["error"]) == ("u-9", SERVICE_PATH, "RuntimeError")
    assert found["at"][-1].startswith("broken (test_server.py:")
    assert "secret" not in json.dumps(logs) + "".join(capsys.readouterr())
