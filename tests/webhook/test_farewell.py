"""At a real API server: a review that arrives on a connection while the server closes it."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hack.testbed import process
from hack.testbed.controlplane import ControlPlane
from kavip.http.connection import CLOSING_RESPONSE
from kavip.pki import certificates
from tests.support.loopthread import LoopThread

pytestmark = pytest.mark.apiserver

NAME = "kavip-farewell-test"


class ClosingWebhook:
    """Allows every first review of a connection; answers the second one with *last_words* and closes the connection."""

    def __init__(self, last_words: bytes) -> None:
        """No connection yet."""
        self.last_words, self.parted = last_words, 0
        self.serving = set[asyncio.Task[None]]()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def end(self) -> None:
        """Close all connections."""
        for task in list(self.serving):
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for first in (True, False):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            requested = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
            if not first:
                self.parted += 1
                writer.write(self.last_words)
                break
            response = {"uid": requested["request"]["uid"], "allowed": True}
            body = json.dumps(
                {"apiVersion": requested["apiVersion"], "kind": requested["kind"], "response": response}
            ).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@contextmanager
def registered(plane: ControlPlane, webhook: ClosingWebhook, folder: Path) -> Iterator[None]:
    """*webhook* on a port of loopback, for the ConfigMaps of one namespace, with ``failurePolicy: Fail``."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    leaf = certificates.new_leaf(ca, ["127.0.0.1"], now)
    (folder / "leaf.pem").write_bytes(leaf.certificate_pem + leaf.key_pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "leaf.pem")
    loop = LoopThread()
    server = loop.run(asyncio.start_server(webhook.serve, "127.0.0.1", 0, ssl=tls))
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": "farewell.kavip.io",
                "clientConfig": {"url": url, "caBundle": b64encode(ca.certificate_pem).decode()},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME}},
                "sideEffects": "None",
                "timeoutSeconds": 30,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    plane.kubectl("create", "namespace", NAME, check=False)
    plane.kubectl("create", "--filename=-", input=json.dumps(configuration))
    try:
        yield
    finally:
        plane.kubectl("delete", "validatingwebhookconfiguration", NAME)
        delete = ("delete", "configmaps", "--all", f"--namespace={NAME}")  # which the webhook may still be asked about
        process.wait_for("they are gone", lambda: not plane.kubectl(*delete, check=False).returncode, timeout=60)
        server.close()
        loop.run(webhook.end())
        loop.close()


@pytest.mark.parametrize("last_words", [b"", CLOSING_RESPONSE], ids=["silence", "farewell"])
def test_a_review_on_a_connection_that_is_being_closed(
    control_plane: ControlPlane, tmp_path: Path, last_words: bytes
) -> None:
    """
    If the server only closes, the write fails; after the farewell response the API server retries, and it succeeds.
    """
    webhook = ClosingWebhook(last_words)
    with registered(control_plane, webhook, tmp_path):
        # The API server calls the webhook some time after the registration, and then keeps the connection.
        for number in range(200):
            name = f"c{number}"
            done = control_plane.kubectl("create", "configmap", name, f"--namespace={NAME}", check=False)
            if webhook.parted:
                assert (done.returncode == 0) is (last_words == CLOSING_RESPONSE), done.stderr
                break
        assert webhook.parted == 1
