"""At a real API server that authenticates to the webhook by a client certificate, while every connection is in use."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import structlog
from cryptography.x509.oid import ExtendedKeyUsageOID

from hack import refusals
from hack.testbed import process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.ports import free_ports
from hack.testbed.programs import Programs
from kavip.admission.registration import URLClientConfig
from kavip.errors import KavipError
from kavip.http.connection import Limits
from kavip.kube import transport
from kavip.kube.client import Client
from kavip.kube.resources import SERVICES
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.trustbundle import encode_pem
from kavip.webhook.certs.registrar import WebhookRegistrar
from kavip.webhook.server import WebhookServer
from tests.app.longtimeouts import lengthen
from tests.http.client import HOST, closed
from tests.http.client import Client as PlainClient
from tests.pki.secrets import issued
from tests.support.build import service
from tests.support.loopthread import LoopThread
from tests.webhook.test_apiserver import manifest
from tests.webhook.test_clients import REVIEW

pytestmark = pytest.mark.apiserver

NAME = "kavip-clientcert-test"
ROOM = 12
PATIENCE = 120.0  # seconds for a call
CALLERS, CALLS = 24, 8  # at a time: twice as many as connections
NOW = datetime.now(UTC)
PLUGINS = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")


def admission_configuration(folder: Path, host: str, pair: KeyPair) -> Path:
    """The file for ``--admission-control-config-file``: the API server presents *pair* to the webhook at *host*."""
    credentials = {
        "client-certificate-data": b64encode(pair.certificate_pem).decode(),
        "client-key-data": b64encode(pair.key_pem).decode(),
    }
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": host, "user": credentials}]}
    (folder / "webhooks.kubeconfig").write_text(json.dumps(kubeconfig))
    version = {"apiVersion": "apiserver.config.k8s.io/v1"}
    plugin = {**version, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(folder / "webhooks.kubeconfig")}
    plugins = [{"name": name, "configuration": plugin} for name in PLUGINS]
    file = folder / "admission.json"
    file.write_text(json.dumps({**version, "kind": "AdmissionConfiguration", "plugins": plugins}))
    return file


@dataclass
class Cluster:
    """An API server that presents a certificate of *ca* to the webhook on *port*."""

    plane: ControlPlane
    port: int
    ca: KeyPair
    loop: LoopThread = field(default_factory=LoopThread)

    @contextmanager
    def webhook(self, client_ca: str) -> Iterator[WebhookServer]:
        """A registered webhook with few connections."""
        server = WebhookServer(refusals.snapshot(), client_ca=client_ca)
        server._listener._limits = Limits(connections=ROOM, handshake=60, exchange=40, grace=20)
        serving_ca = certificates.new_ca(NOW)
        server.serve_certificate(certificates.new_leaf(serving_ca, [HOST], NOW))
        self.loop.run(server.start(HOST, self.port))
        client = Client.from_settings(str(self.plane.kubeconfig))
        self.loop.run(client.__aenter__())
        registrar = WebhookRegistrar(client, NAME, URLClientConfig(f"https://{HOST}:{self.port}"), NAME)
        self.loop.run(registrar.publish(lambda _: [serving_ca.certificate]))
        try:
            yield server
        finally:
            self.plane.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", NAME)
            self.loop.run(client.__aexit__(None, None, None))
            self.loop.run(server.stop())

    def dry_run(self) -> str:
        """The refusal of a bad Service; "" if it is accepted."""
        bad = manifest(service("shop/probe", group="probe"))
        return self.plane.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(bad), check=False).stderr

    async def creates(self, prefix: str) -> list[str]:
        """The errors of many Services that are created at once."""
        failed: list[str] = []
        async with Client.from_settings(str(self.plane.kubeconfig)) as client:

            async def create(caller: int) -> None:
                for number in range(CALLS):
                    key = f"shop/{prefix}-{caller}-{number}"
                    try:
                        await client.create(SERVICES, key, manifest(service(key, group="lb/edge")))
                    except KavipError as error:
                        failed.append(str(error))

            await asyncio.gather(*(create(caller) for caller in range(CALLERS)))
        return failed


@pytest.fixture(scope="module")
def cluster(programs: Programs) -> Iterator[Cluster]:
    """A control plane of its own: the flag is read at the start."""
    ca, (port,) = certificates.new_ca(NOW), free_ports(1)
    pair = issued(ca, NOW, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)
    with pytest.MonkeyPatch.context() as patched, runs.temporary() as state:
        lengthen(patched.setattr)
        patched.setattr(transport, "_limit", lambda _: aiohttp.ClientTimeout(total=PATIENCE))
        file = admission_configuration(state, f"{HOST}:{port}", pair)
        flags = (f"--admission-control-config-file={file}",)
        with ControlPlane(programs, state, apiserver_flags=flags) as plane:
            plane.kubectl("create", "namespace", "shop")
            made = Cluster(plane, port, ca)
            try:
                yield made
            finally:
                made.loop.close()


async def clients_on(port: int) -> list[PlainClient]:
    """As many connections as the webhook takes, from the API server's own address, each with an answer."""
    found = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    for _ in range(ROOM):
        found.append(await PlainClient.connected(port, tls=tls))
        assert await found[-1].ask(REVIEW) == 200
    return found


@pytest.mark.parametrize("authenticated", [True, False])
def test_no_call_is_lost_while_plain_clients_hold_every_connection(cluster: Cluster, *, authenticated: bool) -> None:
    """With twice as many calls at a time as connections; plain clients displace no connection with a certificate."""
    pem = encode_pem([cluster.ca.certificate]).decode() if authenticated else ""
    with cluster.webhook(pem) as server:
        process.wait_for("the webhook refuses", lambda: "is invalid" in cluster.dry_run(), timeout=60)
        held = cluster.loop.run(clients_on(cluster.port))
        try:
            assert cluster.loop.submit(cluster.creates(f"s{authenticated:d}")).result(300) == []
        finally:
            cluster.loop.run(close(held))
        verified = [each.is_verified for each in server._listener._server.open_connections]
        assert any(verified) is authenticated


async def close(clients: list[PlainClient]) -> None:
    """Close *clients*, on their loop."""
    with closed(clients):
        pass


def test_an_api_server_with_another_certificate_is_refused(cluster: Cluster) -> None:
    """Its calls fail, and kavip logs why, once a minute."""
    strange = encode_pem([issued(None, NOW, is_authority=True).certificate]).decode()
    with cluster.webhook(strange):

        def refused() -> list[tuple[str, str]]:
            return [(each["client"], each["why"]) for each in logs if each["event"] == "client certificate refused"]

        def is_refused() -> bool:  # an earlier registration, which the API server may still know, fails too
            return "failed calling webhook" in cluster.dry_run() and bool(refused())

        with structlog.testing.capture_logs() as logs:
            process.wait_for("the handshake is refused", is_refused, timeout=60)
    assert refused() == [(HOST, "unable to get local issuer certificate")]
