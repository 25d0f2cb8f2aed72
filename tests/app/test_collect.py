"""``kavip collect`` on a real API server: a bundle without secrets, with no right but to read."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kavip import names
from tests.app.conftest import ROOT, Installation, a_group, a_pool, a_service, free_port, object_of, wait_for
from tests.kube.fakeapi import kubeconfig as kubeconfig_of
from tests.support.secretforms import NEEDLE, forms

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

HIDDEN = f"auth_pass {NEEDLE}"
OWN = {"app.kubernetes.io/name": "kavip"}
LABELS = {"team": NEEDLE, "role": "infra"}
OBJECTS = ("deployments", "endpoints", "events", "keepalivedgroups", "leases", "nodes", "pods", "services", "vippools")


def collect(kubeconfig: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command."""
    command = (sys.executable, "-m", "kavip", "collect", f"--kubeconfig={kubeconfig}", *options)
    return subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=600)


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a bundle by their names, without the folder that all are in."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar.getmembers():
            stream = tar.extractfile(member)
            assert stream is not None
            files[member.name.partition("/")[2]] = stream.read()
    return files


def permit(installation: Installation, user: str, *, namespace: str = "", **rule: Any) -> Path:
    """Permit *user* to get and list what *rule* names, and nothing else; return the kubeconfig."""
    kind, where = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "name": user, "apiGroup": group}
    role = object_of(kind, user, version=f"{group}/v1", rules=[{**rule, "verbs": ["get", "list"]}], **where)
    reference = {"apiGroup": group, "kind": kind, "name": user}
    binding = object_of(f"{kind}Binding", user, version=f"{group}/v1", subjects=[subject], roleRef=reference, **where)
    installation.apply(role, binding)
    may = (
        "auth",
        "can-i",
        "list",
        "services",
        f"--as={user}",
        *([f"--namespace={namespace}"] if namespace else ["-A"]),
    )
    wait_for(f"{user} may read", lambda: not installation.plane.kubectl(*may, check=False).returncode)
    return installation.plane.user(user)


@pytest.fixture
def planted(installation: Installation) -> Iterator[Installation]:
    """A cluster in which kavip runs, with secrets in objects of kavip and of others."""
    installation.start()
    try:
        plant(installation)
        yield installation
    finally:
        for kinds in ("deployments,pods,serviceaccounts", "secrets,events"):
            for namespace in ("kavip", "lb", "shop"):
                installation.plane.kubectl("delete", kinds, "--all", f"--namespace={namespace}", check=False)


def plant(installation: Installation) -> None:
    """Apply objects of kavip and of others, with secrets."""
    notes = {"note": NEEDLE, "token": NEEDLE}
    container = {
        "name": "kavip",
        "image": "example/kavip",
        "args": ["run", f"--x={NEEDLE}"],
        "env": [{"name": "PASSWORD", "value": NEEDLE}],
    }
    template = {"metadata": {"labels": OWN, "annotations": notes}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": OWN}, "template": template}
    about = {"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web"}
    event = {
        "regarding": about,
        "reason": "Test",
        "action": "Test",
        "note": HIDDEN,
        "type": "Normal",
        "eventTime": "2026-06-01T12:00:00.000000Z",
        "reportingController": "example.com/test",
        "reportingInstance": "x",
    }
    installation.apply(
        object_of("ServiceAccount", "default", namespace="kavip"),
        object_of("Secret", "vrrp", namespace="lb", stringData={"password": NEEDLE}),
        object_of("ConfigMap", "other", namespace="lb", data={"x": NEEDLE}),
        object_of("Node", "n1", labels=LABELS, annotations=notes),
        object_of("Deployment", "kavip", namespace="kavip", version="apps/v1", labels=OWN, spec=spec),
        object_of("Pod", "kavip-1", namespace="kavip", labels={**OWN, "x": NEEDLE}, spec={"containers": [container]}),
        object_of("Event", "web.1", namespace="shop", version="events.k8s.io/v1", annotations=notes, **event),
    )
    authentication = {"passwordAuth": {"secretRef": {"name": "vrrp"}}, "vrrpVersion": 2}
    group = a_group("edge", default=True, nodeSelector={"role": "infra"}, **authentication)
    group["spec"]["daemonsetPodAnnotations"] = notes
    group["metadata"]["annotations"] = notes
    installation.apply_and_wait(a_pool("edge", "192.0.2.0/28"), group)
    installation.apply(a_service("web", annotations=notes, selector={"app": NEEDLE}))
    wait_for("the Service has an address", lambda: installation.addresses("web"))
    wait_for("the configuration is published", lambda: installation.get("configmap", "edge", "-n", "lb"))


def names_of(files: dict[str, bytes], kind: str) -> list[Any]:
    """The names of the objects in a file."""
    return [each["metadata"]["name"] for each in json.loads(files[f"objects/{kind}.json"])]


def test_a_user_who_may_only_read_gets_a_bundle_without_secrets(planted: Installation, tmp_path: Path) -> None:
    """The rights to get and list are enough; no byte is of a secret; what no kubelet answers is missing."""
    target = tmp_path / "bundle.tar.gz"
    done = collect(permit(planted, "reader", apiGroups=["*"], resources=["*"]), f"--output={target}")
    assert (done.returncode, done.stdout.decode()) == (1, f"{target}\n"), done.stderr.decode()
    files = unpacked(target.read_bytes())
    for name, content in files.items():
        for form in forms():
            at = content.lower().find(form.lower())
            assert at < 0, (name, content[max(0, at - 300) : at + 100])
    assert {name for name in files if name.startswith("objects/")} >= {f"objects/{name}.json" for name in OBJECTS}
    assert names_of(files, "services") == ["web"]
    assert names_of(files, "leases") == [names.LEASE_NAME]
    assert "web.1" in names_of(files, "events")
    (node,) = json.loads(files["objects/nodes.json"])
    assert node["metadata"]["labels"] == {"role": "infra"}
    assert b"vrrp_instance shop/web" in files["groups/lb/edge/keepalived.conf"]
    doctor = {each["name"]: each["result"] for each in json.loads(files["doctor.json"])["checks"]}
    assert (doctor["crds"], doctor["webhook-answers"]) == ("OK", "NotChecked")
    missing = {each["what"] for each in json.loads(files["index.json"])["missing"]}
    assert missing == {"metrics of pod kavip/kavip-1"}
    assert done.stderr.decode().startswith("kavip: missing: metrics of pod kavip/kavip-1: ")


def test_a_user_of_one_namespace_gets_what_may_be_read(planted: Installation) -> None:
    """What may not be read is named in the index and on standard error; standard output is the archive."""
    kubeconfig = permit(planted, "tenant", namespace="shop", apiGroups=[""], resources=["services"])
    done = collect(kubeconfig, "--output=-", "--namespace=shop")
    assert done.returncode == 1, done.stderr.decode()
    files = unpacked(done.stdout)
    assert names_of(files, "services") == ["web"]
    missing = {each["what"] for each in json.loads(files["index.json"])["missing"]}
    assert {"list services", "list nodes", "list pods", "list pods in namespace shop"} <= missing
    assert b'kavip: missing: list nodes: 403 Forbidden: nodes is forbidden: User "tenant"' in done.stderr


def test_without_a_cluster_there_is_no_file(tmp_path: Path) -> None:
    """The exit status is 2 if the cluster does not answer; before it is asked, if the file cannot be written."""
    server = f"http://127.0.0.1:{free_port()}"
    kubeconfig = kubeconfig_of(tmp_path, server)
    target = tmp_path / "bundle.tar.gz"
    done = collect(kubeconfig, f"--output={target}")
    assert (done.returncode, done.stdout, target.exists()) == (2, b"", False)
    assert done.stderr.decode() == f"kavip: the API server {server} does not answer: Connection refused\n"
    done = collect(kubeconfig, f"--output={tmp_path}/missing/bundle.tar.gz")
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"there is no folder {tmp_path}/missing that you may write to" in done.stderr.decode()
