"""Helpers for tests of the chart: render it, install it, and query the API server."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result
from hack.testbed.process import wait_for
from kavip import names
from kavip.kube.client import Client
from kavip.pki import certificates
from kavip.pki.trustbundle import encode_pem, parse_bundle
from kavip.webhook.certs.cabundle import CABundleInjector
from tests.support import manifests

Helm = Callable[..., Result]
RELEASE = ("kavip", str(manifests.CHART), f"--namespace={manifests.NAMESPACE}", "--create-namespace")
"""The flags of `helm install` and `helm upgrade`."""


def rendered(helm: Helm, *settings: str, namespace: str = manifests.NAMESPACE) -> list[manifests.Object]:
    """The objects of the chart with *settings* (``key=value``)."""
    values = [argument for setting in settings for argument in ("--set-json", setting)]
    return manifests.parsed(helm("template", "kavip", str(manifests.CHART), f"--namespace={namespace}", *values).stdout)


def environment(objects: list[manifests.Object]) -> dict[str, Any]:
    """The environment of kavip's containers, which agree on what they share."""
    found: dict[str, Any] = {}
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        one = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
        assert {name: found.get(name, value) for name, value in one.items()} == one
        found |= one
    return found


def pods(objects: list[manifests.Object]) -> list[manifests.Object]:
    """The pod templates of the Deployments."""
    return [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]


def serve_kinds(server: ControlPlane) -> None:
    """Let *server* serve every foreign kind that the chart uses; a kind is established first and served later."""
    server.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
    wait_served(
        server, *(each["spec"]["names"]["kind"] for each in manifests.parsed(manifests.FOREIGN_CRDS.read_text()))
    )


def wait_served(server: ControlPlane, *kinds: str) -> None:
    """Wait until *server* serves *kinds*, by default kavip's own: helm and kubectl return earlier."""
    wanted = {*kinds} or {names.KEEPALIVED_GROUP, names.VIP_POOL}
    listing = ("get", ",".join(sorted(wanted)), "--all-namespaces")

    def are_served() -> bool:  # by discovery, and by a request
        return wanted <= served(server) and server.kubectl(*listing, check=False).returncode == 0

    server.wait_established()
    wait_for("kinds are served", are_served, timeout=150, interval=0.2)


def served(server: ControlPlane) -> set[str]:
    """The kinds that *server* serves, according to its discovery."""
    return {line.split()[-1] for line in server.kubectl("api-resources", check=False).stdout.splitlines()}


MARKED = {"annotations": {names.POOL_ANNOTATION: "edge"}}


def service(name: str, *, metadata: dict[str, Any] | None = None, **spec: Any) -> manifests.Object:
    """A Service, of type LoadBalancer unless *spec* has another."""
    metadata = {"namespace": "default", "name": name, **(metadata or {})}
    body = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    if body["type"] == "LoadBalancer":
        body["allocateLoadBalancerNodePorts"] = False
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}


def refused(server: ControlPlane, subject: manifests.Object) -> bool:
    """Whether the API server refuses to create *subject* because kavip does not answer."""
    done = server.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(subject), check=False)
    assert not done.returncode or "failed calling webhook" in done.stderr, done.stderr
    return bool(done.returncode)


CA = encode_pem([certificates.new_ca(datetime.now(UTC)).certificate])
BUNDLE = b64encode(CA).decode()


def write_bundles(server: ControlPlane) -> None:
    """Inject caBundles as kavip does."""

    async def publish() -> None:
        async with Client.from_settings(str(server.kubeconfig)) as client:
            await CABundleInjector(client, "kavip").publish(lambda _: parse_bundle(CA))

    asyncio.run(publish())


def get(server: ControlPlane, kind: str, name: str = "kavip") -> manifests.Object:
    """The object of *kind* called *name*, in kavip's namespace."""
    namespace = f"--namespace={manifests.NAMESPACE}"
    found: manifests.Object = json.loads(server.kubectl("get", kind, name, namespace, "--output=json").stdout)
    return found
