"""Metrics over TLS as the chart installs them: a real API server reviews real tokens, and a real Prometheus scrapes."""

import asyncio
import json
import socket
import sys
import time
import urllib.request
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hack.testbed import need, process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs
from kavip import names
from kavip.kube.delegatedauth import SENDER_BURST, SENDER_PER_SECOND
from kavip.pki import certificates
from tests.app.conftest import free_port
from tests.chart.release import RELEASE, Helm, rendered, wait_served
from tests.http.client import HOST, Client, unverifying
from tests.support import manifests
from tests.support.rbac import wait_bound

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

ACCOUNT = f"system:serviceaccount:{manifests.NAMESPACE}:kavip-"
SECURE = ('topology="split"', "metrics.secure=true", "serviceMonitor.enabled=true")
FLOODING_ADDRESS = "127.0.0.2"
BAD_TOKENS = 5000
PATIENCE = 150.0
TLS = unverifying()


@dataclass(slots=True)
class Replica:
    """A kavip with secured metrics."""

    port: int
    pid: int

    def ask(self, token: str = "") -> int:
        """The status of /metrics for the bearer of *token*."""
        return asyncio.run(scrape(self.port, token))

    @property
    def memory(self) -> int:
        """The resident memory in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


@dataclass(slots=True)
class Site:
    """A control plane with the chart; of the accounts prometheus and tenant, only the first may read metrics."""

    plane: ControlPlane
    folder: Path

    def token(self, account: str) -> str:
        """A token of *account* by TokenRequest."""
        return self.plane.kubectl("create", "token", account, "--namespace=default").stdout.strip()

    @contextmanager
    def running(self, *flags: str, command: str = "controller") -> Iterator[Replica]:
        """Run a replica of *command* as the chart's account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{manifests.NAMESPACE}", "system:authenticated")
        port, log = free_port(), self.folder / f"kavip-{time.monotonic_ns()}.log"
        started = process.spawn(
            [
                *(sys.executable, "-m", "tests.app.longtimeouts", command),
                f"--kubeconfig={self.plane.user(ACCOUNT + command, *groups)}",
                *(f"--namespace={manifests.NAMESPACE}", "--webhook-port=0", "--probe-port=0", "--metrics-secure"),
                *(f"--metrics-host={HOST}", f"--metrics-port={port}", *flags),
            ],
            log=log,
        )
        replica = Replica(port, started.pid)
        try:
            process.wait_for("the port is open", lambda: answers(port), timeout=PATIENCE)
            yield replica
        finally:
            process.stop([started])
            print(f"--- {log.name}", process.tail(log, 30), sep="\n")  # noqa: T201 - shown when the test fails


@pytest.fixture(scope="module")
def site(programs: Programs, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The chart, installed with secured metrics; its webhooks are not reachable."""
    with runs.temporary() as state, ControlPlane(programs, state) as plane:
        plane.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
        plane.wait_established()
        values = [f"--set-json={each}" for each in (*SECURE, 'webhook.failurePolicy.validating="Ignore"')]
        helm("install", *RELEASE, *values, kubeconfig=plane.kubeconfig)
        wait_served(plane)
        wait_bound(plane, f"{ACCOUNT}controller")
        for account in ("prometheus", "tenant"):
            plane.kubectl("create", "serviceaccount", account, "--namespace=default")
        bound = ("--clusterrole=kavip-metrics-reader", "--serviceaccount=default:prometheus")
        plane.kubectl("create", "clusterrolebinding", "prometheus", *bound)
        for command in ("webhook", "controller"):
            wait_permitted(plane, f"{ACCOUNT}{command}", "create", "tokenreviews.authentication.k8s.io")
            wait_permitted(plane, f"{ACCOUNT}{command}", "create", "subjectaccessreviews.authorization.k8s.io")
        wait_permitted(plane, "system:serviceaccount:default:prometheus", "get", names.METRICS_PATH)
        yield Site(plane, tmp_path_factory.mktemp("metrics"))


def wait_permitted(plane: ControlPlane, account: str, *action: str) -> None:
    """Wait until *account* is permitted: the API server reads RBAC objects by watches."""

    def holds() -> bool:
        return not plane.kubectl("auth", "can-i", *action, f"--as={account}", check=False).returncode

    process.wait_for(f"{account} may {action}", holds, timeout=PATIENCE)


@pytest.mark.parametrize("command", ["webhook", "controller"])
def test_tokens_are_reviewed_by_the_api_server(site: Site, command: str) -> None:
    """200 for a bound account, 403 for another one, 401 without a valid token."""
    token = site.token("prometheus")
    with site.running(command=command) as kavip:
        given = (token, site.token("tenant"), "", "garbage", expired(site, token))
        assert [kavip.ask(each) for each in given] == [200, 403, 401, 401, 401]


def test_a_flood_of_bad_tokens_keeps_no_scrape_out(site: Site) -> None:
    """5,000 bad tokens cost a few TokenReviews and little memory, and the bound account scrapes meanwhile."""
    token = site.token("prometheus")
    with site.running() as kavip:
        assert kavip.ask(token) == 200
        before, start = kavip.memory, time.monotonic()
        site.plane.audit.mark()
        refused, scraped = asyncio.run(flood(kavip.port, token))
        seconds, grown = time.monotonic() - start, kavip.memory - before
        reviews = [event.body["spec"]["token"] for event in site.plane.audit.events(resource="tokenreviews")]
        assert kavip.ask(site.token("prometheus")) == 200
    bad = [each for each in reviews if each != token]
    print(f"flood: {seconds:.0f} s, {len(bad)} TokenReviews, {grown} MiB, {len(scraped)} scrapes")  # noqa: T201 - shown by pytest -rP or after a failure
    assert refused.total() == BAD_TOKENS
    assert set(refused) <= {401, 429}
    assert len(bad) == len({*bad}) == refused[401] <= SENDER_BURST + SENDER_PER_SECOND * seconds
    assert len(scraped) > 1
    assert {*scraped} == {200}
    assert grown < 40


async def flood(port: int, token: str) -> tuple[Counter[int], list[int]]:
    """Send the bad tokens from one address, and scrape from another; how often each status came, and the scrapes'."""
    refused, scraped, numbers = Counter[int](), list[int](), iter(range(BAD_TOKENS))

    async def attack() -> None:
        for number in numbers:
            while True:  # its own connections displace each other
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    refused[await scrape(port, f"bad-{number}-{'x' * 4000}", source=FLOODING_ADDRESS)] += 1
                    break

    attacking = [asyncio.create_task(attack()) for _ in range(16)]
    while not all(each.done() for each in attacking):
        scraped.append(await scrape(port, token))
        await asyncio.wait(attacking, timeout=0.5)
    await asyncio.gather(*attacking)
    return refused, scraped


@pytest.mark.parametrize("settings", [(), ("metrics.certSecret=own",)], ids=["self-signed", "own"])
def test_prometheus_scrapes_with_the_settings_of_the_monitor(
    site: Site, helm: Helm, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    """With a certificate of the user, Prometheus verifies it; without the right it gets a 403."""
    need.packages("Prometheus", ("prometheus",))
    values = (each.replace("=", '="', 1) + '"' for each in settings)
    monitor = manifests.only(rendered(helm, *SECURE, *values), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    ca = certificates.new_ca(datetime.now(UTC))
    leaf = certificates.new_leaf(ca, ["kavip-metrics.kavip.svc"], datetime.now(UTC))
    files = {"ca.crt": ca.certificate_pem, "tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    for account in ("prometheus", "tenant"):
        files[account] = site.token(account).encode()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with site.running(*([f"--metrics-cert-path={tmp_path}"] if settings else [])) as kavip:
        jobs = [scrape_job(endpoint, account, kavip.port, tmp_path) for account in ("prometheus", "tenant")]
        with prometheus(tmp_path, jobs) as targets:
            expected = {"prometheus": "", "tenant": "server returned HTTP status 403 Forbidden"}
            process.wait_for("both have their answer", lambda: targets() == expected, timeout=PATIENCE)


def scrape_job(endpoint: Mapping[str, Any], account: str, port: int, folder: Path) -> dict[str, Any]:
    """The job that the Prometheus operator makes of the *endpoint* of a monitor, with the token of *account*."""
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    wanted, tls = endpoint["tlsConfig"], dict[str, Any]()
    if "ca" in wanted:
        assert wanted["ca"]["secret"] == {"name": "own", "key": "ca.crt"}
        tls = {"ca_file": str(folder / "ca.crt"), "server_name": wanted["serverName"]}
    return {
        "job_name": account,
        "scheme": endpoint["scheme"],
        "tls_config": {"insecure_skip_verify": wanted.get("insecureSkipVerify", False), **tls},
        "authorization": {"type": "Bearer", "credentials_file": str(folder / account)},
        "static_configs": [{"targets": [f"{HOST}:{port}"]}],
    }


@contextmanager
def prometheus(folder: Path, jobs: list[dict[str, Any]]) -> Iterator[Any]:
    """Scrape *jobs* every few seconds; yields a function that returns the last error of each scraped one."""
    config = {"global": {"scrape_interval": "5s", "scrape_timeout": "5s"}, "scrape_configs": jobs}
    file, log, listening = folder / "prometheus.yml", folder / "prometheus.log", f"{HOST}:{free_port()}"
    file.write_text(yaml.safe_dump(config))
    own = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={listening}")
    started = process.spawn(["prometheus", *own], log=log)

    def targets() -> dict[str, str]:
        try:
            with urllib.request.urlopen(f"http://{listening}/api/v1/targets", timeout=60) as answer:
                found = json.load(answer)["data"]["activeTargets"]
        except OSError:
            return {}
        return {each["scrapePool"]: each["lastError"] for each in found if each["health"] != "unknown"}

    try:
        yield targets
    finally:
        process.stop([started])
        print("--- prometheus", process.tail(log, 30), sep="\n")  # noqa: T201 - shown when the test fails


async def scrape(port: int, token: str, *, source: str = HOST) -> int:
    """The status of /metrics for the bearer of *token*, who sends from *source*."""
    client = await Client.connected(port, source=source, tls=TLS)
    header = f"Authorization: Bearer {token}\r\n" if token else ""
    try:
        return await client.ask(f"GET {names.METRICS_PATH} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    finally:
        client.close()


def answers(port: int) -> bool:
    """Whether a server listens on *port*."""
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def expired(site: Site, token: str) -> str:
    """A copy of *token* that has expired, signed by the API server's own key: it issues none that expires soon."""
    head, claims, _ = token.split(".")
    past = {"iat": 1, "nbf": 1, "exp": 2}
    signed = f"{head}.{encoded(json.dumps({**json.loads(decoded(claims)), **past}).encode())}"
    key = load_pem_private_key((site.plane.state / "sa.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # ES256
    numbers = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{encoded(b''.join(each.to_bytes(32, 'big') for each in numbers))}"


def decoded(part: str) -> bytes:
    """A part of a token."""
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def encoded(part: bytes) -> str:
    """A part of a token as text."""
    return urlsafe_b64encode(part).decode().rstrip("=")
