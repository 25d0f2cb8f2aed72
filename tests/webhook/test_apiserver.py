"""The webhook at a real API server with real kubectl, registered by URL; and its certificates."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from hack import refusals
from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result
from kavip import names
from kavip.admission import registration
from kavip.admission.registration import ServiceClientConfig, URLClientConfig
from kavip.kube.client import Client
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import encode_pem, parse_bundle, trust_bundle
from kavip.pki.verification import has_signed
from kavip.snapshot import Object, Snapshot
from kavip.webhook.certs.cabundle import CABundleInjector, Merge
from kavip.webhook.certs.registrar import WebhookRegistrar
from kavip.webhook.certs.selfsigned import DynamicAuthority
from kavip.webhook.server import WebhookServer
from tests.app.longtimeouts import lengthen
from tests.support.build import group, service
from tests.support.loopthread import LoopThread

pytestmark = pytest.mark.apiserver

NAME = "kavip-webhook-test"  # of the webhook configurations
NAMESPACE = "kavip-webhook-test"  # of the CA Secret
CRDS = Path(__file__).parents[2] / "config" / "crd" / "bases"
API_VERSIONS = {
    "Service": "v1",
    "KeepalivedGroup": f"{names.REDHATCOP_GROUP}/{names.VERSION}",
    "VIPPool": f"{names.KAVIP_GROUP}/{names.VERSION}",
}
PATIENCE = 60.0  # seconds; normally a moment is enough


@dataclass
class Kavip:
    """A webhook over *snapshot* in this process, and the API server that calls it."""

    plane: ControlPlane
    snapshot: Snapshot

    def kubectl(self, *args: str, manifest: object = None, check: bool = False) -> Result:
        """Run kubectl with *manifest* on its standard input."""
        return self.plane.kubectl(*args, input=json.dumps(manifest) if manifest else None, check=check)

    def apply(self, obj: Object, *args: str) -> Result:
        """Run ``kubectl apply``."""
        return self.kubectl("apply", *args, "-f", "-", manifest=manifest(obj))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*: the API server reads its webhook configurations by a watch."""

        async def wait() -> None:
            while not await asyncio.to_thread(holds):
                await asyncio.sleep(0.2)

        asyncio.run(asyncio.wait_for(wait(), PATIENCE))


def manifest(obj: Object, **metadata: object) -> dict[str, Any]:
    """*obj* as a user writes it."""
    body: dict[str, Any] = msgspec.to_builtins(obj)
    written = {
        key: body["metadata"][key] for key in ("name", "namespace", "annotations", "labels") if key in body["metadata"]
    }
    kind = type(obj).__name__
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": {**written, **metadata}, "spec": body["spec"]}


@contextmanager
def _registered(loop: LoopThread, plane: ControlPlane, snapshot: Snapshot) -> Iterator[None]:
    """Register a server over *snapshot* by URL."""
    server, client = WebhookServer(snapshot), Client.from_settings(str(plane.kubeconfig))
    port = loop.run(server.start("127.0.0.1", 0))
    loop.run(client.__aenter__())
    publisher = WebhookRegistrar(client, NAME, URLClientConfig(f"https://127.0.0.1:{port}"), NAMESPACE)
    authority = DynamicAuthority(
        client, namespace=NAMESPACE, hosts=["127.0.0.1"], serve=server.serve_certificate, publisher=publisher
    )
    try:
        loop.run(authority.reconcile())
        yield
    finally:
        plane.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", NAME, check=False)
        unregistered = Kavip(plane, snapshot)
        with suppress(
            TimeoutError
        ):  # otherwise the Services of other tests would meet a registered webhook without a server
            unregistered.until(
                lambda: not unregistered.apply(service("shop/probe", group="probe"), "--dry-run=server").returncode
            )
        loop.run(client.__aexit__(None, None, None))
        loop.run(server.stop())


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    """One event loop for the module."""
    started = LoopThread()
    yield started
    started.close()


@pytest.fixture(scope="module")
def kavip(control_plane: ControlPlane, loop: LoopThread) -> Iterator[Kavip]:
    """The CRDs, the namespaces of the cases, and a registered webhook that the API server calls."""
    control_plane.kubectl("apply", "-f", str(CRDS))
    control_plane.wait_established()
    for name in (NAMESPACE, "shop", "guest", "lb"):
        control_plane.kubectl("create", "namespace", name, check=False)
    started = Kavip(control_plane, refusals.snapshot())
    with pytest.MonkeyPatch.context() as patched, ExitStack() as stack:
        lengthen(patched.setattr)
        stack.enter_context(_registered(loop, control_plane, started.snapshot))
        bad, fresh = service("shop/probe", group="probe"), group("lb/probe")
        started.until(lambda: "is invalid" in started.apply(bad, "--dry-run=server").stderr)
        started.until(lambda: "vrrpVersion: 3" in started.apply(fresh, "--dry-run=server", "-o", "yaml").stdout)
        yield started


def test_a_plain_service_gets_no_annotation(kavip: Kavip) -> None:
    """A manifest without annotations is stored as it is, and a second apply changes nothing."""
    plain = service("shop/plain")
    try:
        assert kavip.apply(plain).returncode == 0
        assert names.GROUP_ANNOTATION not in _service(kavip, "plain")["metadata"]["annotations"]
        assert "unchanged" in kavip.apply(plain).stdout
    finally:
        kavip.kubectl("delete", "service", "plain", "-n", "shop", "--ignore-not-found")


def test_the_annotation_that_release_0_1_0_wrote_goes_when_the_service_is_no_longer_managed(kavip: Kavip) -> None:
    """managedFields distinguish writes of the webhook from writes of users; later edits cause no warning."""
    try:
        for name in ("written", "noted"):
            kavip.kubectl("create", "-f", "-", manifest=manifest(service(f"shop/{name}", group="lb/edge")), check=True)
        managers = [
            {**each, "fieldsV1": {part: fields for part, fields in each["fieldsV1"].items() if part != "f:metadata"}}
            for each in _service(kavip, "written")["metadata"]["managedFields"]
        ]
        _patch(kavip, "written", {"metadata": {"managedFields": managers}})  # as if the webhook had added it
        _patch(kavip, "written", {"metadata": {"labels": {"a": "b"}}})
        assert _service(kavip, "written")["metadata"]["annotations"] == {names.GROUP_ANNOTATION: "lb/edge"}
        for name in ("written", "noted"):
            _patch(kavip, name, {"spec": {"type": "ClusterIP"}})
        assert "annotations" not in _service(kavip, "written")["metadata"]
        assert _service(kavip, "noted")["metadata"]["annotations"] == {names.GROUP_ANNOTATION: "lb/edge"}
        assert "Warning" not in _patch(kavip, "written", {"metadata": {"labels": {"a": "c"}}}).stderr
    finally:
        kavip.kubectl("delete", "service", "written", "noted", "-n", "shop", "--ignore-not-found")


def _service(kavip: Kavip, name: str) -> dict[str, Any]:
    shown = kavip.kubectl("get", "service", name, "-n", "shop", "-o", "json", "--show-managed-fields", check=True)
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def _patch(kavip: Kavip, name: str, patch: dict[str, Any]) -> Result:
    return kavip.kubectl("patch", "service", name, "-n", "shop", "-p", json.dumps(patch), check=True)


def test_a_new_group_gets_its_defaults_and_keeps_them(kavip: Kavip) -> None:
    """create, apply, server-side apply and replace of one manifest give the same object."""
    requested = manifest(group("lb/fresh"))
    try:
        kavip.kubectl("create", "-f", "-", manifest=requested, check=True)
        first = _spec(kavip)
        assert {
            name: first[name] for name in ("unicastEnabled", "segment", "vrrpVersion", "advertIntervalMilliseconds")
        } == {
            "unicastEnabled": True,
            "segment": "default",
            "vrrpVersion": 3,
            "advertIntervalMilliseconds": 200,
        }
        for again in (("replace",), ("apply",), ("apply", "--server-side", "--force-conflicts"), ("replace",)):
            kavip.kubectl(*again, "-f", "-", manifest=requested, check=True)
            assert _spec(kavip) == first
    finally:
        kavip.kubectl("delete", "keepalivedgroup", "fresh", "-n", "lb", "--ignore-not-found")


def _spec(kavip: Kavip) -> dict[str, Any]:
    shown = kavip.kubectl("get", "keepalivedgroup", "fresh", "-n", "lb", "-o", "json", check=True)
    spec: dict[str, Any] = json.loads(shown.stdout)["spec"]
    return spec


def test_a_service_of_another_class_is_accepted(kavip: Kavip) -> None:
    """A Service of another class with annotations of kavip is accepted with a warning."""
    other = service("shop/other", load_balancer_class="example.com/other", pool="gone")
    done = kavip.apply(other, "--dry-run=server")
    assert done.returncode == 0
    assert (
        "has no effect: kavip does not manage this Service: its spec.loadBalancerClass is example.com/other"
        in done.stderr
    )


def test_an_old_violation_may_be_labelled_and_deleted(kavip: Kavip) -> None:
    """A Service without its group may be edited and deleted, but not moved to another missing group."""
    kavip.snapshot.put(group("lb/passing"))
    requested = service("shop/old", group="lb/passing")
    try:
        assert kavip.apply(requested).returncode == 0
        kavip.snapshot.drop(names.KEEPALIVED_GROUP, "lb/passing")
        labelled = kavip.kubectl("label", "service", "old", "-n", "shop", "a=b")
        assert labelled.returncode == 0
        assert "accepted because the field is unchanged: " in labelled.stderr
        pointed = kavip.apply(service("shop/old", group="lb/missing"))
        assert 'group "lb/missing" does not exist' in pointed.stderr
    finally:
        assert kavip.kubectl("delete", "service", "old", "-n", "shop").returncode == 0


# --- certificates -------------------------------------------------------------------------------------------------
def test_the_bundle_is_kept_beside_the_charts_fields(control_plane: ControlPlane, loop: LoopThread) -> None:
    """``caBundle`` has no owner: applying the chart again keeps it, and a later chart may remove a webhook."""
    name = "kavip-injected-test"
    bodies = registration.configurations(name, ServiceClientConfig("nowhere", "nothing"), namespace=NAMESPACE)
    for body in bodies:  # these have no server, so they must not match any object
        for webhook in body["webhooks"]:
            webhook["namespaceSelector"] = webhook["objectSelector"] = {"matchLabels": {"never": "ever"}}
    chart = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
    control_plane.kubectl("create", "namespace", NAMESPACE, check=False)
    client = Client.from_settings(str(control_plane.kubeconfig))
    loop.run(client.__aenter__())
    try:
        _applied(control_plane, chart)
        bundle = trust_bundle([certificates.new_ca(datetime.now(UTC)).certificate], datetime.now(UTC))
        loop.run(CABundleInjector(client, name).publish(lambda _: parse_bundle(bundle)))
        before = _configurations(control_plane, name)
        assert {b64decode(text) for text in _bundles(before)} == {bundle}
        assert len(_bundles(before)) == 6
        _applied(control_plane, chart)
        loop.run(CABundleInjector(client, name).publish(lambda _: parse_bundle(bundle)))
        after = _configurations(control_plane, name)
        assert [item["metadata"]["resourceVersion"] for item in after] == [
            item["metadata"]["resourceVersion"] for item in before
        ]
        managers = {entry["manager"] for item in after for entry in item["metadata"]["managedFields"]}
        assert managers == {"helm"}
    finally:
        control_plane.kubectl(
            "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", name, check=False
        )
        loop.run(client.__aexit__(None, None, None))


def _applied(plane: ControlPlane, chart: object) -> None:
    plane.kubectl("apply", "--server-side", "--field-manager=helm", "-f", "-", input=json.dumps(chart))


def _configurations(plane: ControlPlane, name: str) -> list[dict[str, Any]]:
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    return [
        json.loads(plane.kubectl("get", kind, name, "-o", "json", "--show-managed-fields").stdout) for kind in kinds
    ]


def _bundles(items: list[dict[str, Any]]) -> list[str]:
    return [webhook["clientConfig"]["caBundle"] for item in items for webhook in item["webhooks"]]


def test_replicas_share_one_ca_on_a_real_api_server(control_plane: ControlPlane, loop: LoopThread) -> None:
    """Four replicas that start together create one Secret, and trust each other's leaves."""
    namespace = "kavip-replicas-test"
    control_plane.kubectl("create", "namespace", namespace, check=False)
    client = Client.from_settings(str(control_plane.kubeconfig))
    loop.run(client.__aenter__())
    published: list[bytes] = []
    leaves: list[KeyPair] = []

    class RecordingPublisher:
        awaited = ""

        async def published(self) -> list[x509.Certificate]:
            return []

        async def publish(self, merge: Merge) -> Trust:
            published.append(encode_pem(found := [*merge([])]))
            return Trust(found)

    def replica() -> DynamicAuthority:
        return DynamicAuthority(
            client, namespace=namespace, hosts=["127.0.0.1"], serve=leaves.append, publisher=RecordingPublisher()
        )

    async def start() -> None:
        await asyncio.gather(*(replica().reconcile() for _ in range(4)))

    try:
        loop.run(start())
    finally:
        loop.run(client.__aexit__(None, None, None))
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
    assert len(set(published)) == 1
    issuers = parse_bundle(published[0])
    assert len(leaves) == 4
    assert all(has_signed(issuers[0], leaf.certificate) for leaf in leaves)
