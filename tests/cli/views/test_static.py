"""``kavip render --static``: VIPs without an API, as static pods and as systemd units that really start."""

import json
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner, Result

from hack.testbed.controlplane import ControlPlane
from kavip import names
from kavip.cli.main import cli
from tests.support import manifests

PAGE = manifests.ROOT / "docs" / "howto" / "api-vip.md"
EXAMPLE = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
PORT: int = yaml.safe_load(EXAMPLE)["spec"]["metricsPort"]
NODES = ("--node", "n1=192.0.2.11", "--node", "n2=192.0.2.12")
GROUP = "kube-system.api"
UNIT = f"kavip-{GROUP}"
PATIENCE = 150.0


def render(text: str, *flags: str) -> Result:
    """``kavip render`` of *text* on standard input."""
    return CliRunner().invoke(cli, ["render", "--filename=-", *flags], input=text)


def pod(text: str = EXAMPLE, *flags: str) -> manifests.Object:
    """The static pod of the one group in *text*."""
    found = render(text, "--static", *NODES, *flags)
    assert found.exit_code == 0, found.output
    (body,) = manifests.parsed(found.stdout)
    return body


def references(value: object) -> Iterator[str]:
    """The names of fields under which a pod refers to what only the API has."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("configMap", "secret", "projected", "configMapKeyRef", "secretKeyRef", "serviceAccountName"):
                yield key
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_a_static_pod_brings_all_that_it_needs() -> None:
    """It refers to no object, chooses no node, and has the configuration of the group in its annotations."""
    body = pod()
    assert list(references(body["spec"])) == []
    assert not {"nodeSelector", "affinity", "imagePullSecrets"} & body["spec"].keys()
    notes = body["metadata"]["annotations"]
    assert notes["kavip.io/keepalived.conf"] == render(EXAMPLE, *NODES).stdout
    meta = json.loads(notes["kavip.io/agent.json"])
    assert (meta["group"], meta["static"]) == ("kube-system/api", True)
    (config,) = [each for each in body["spec"]["volumes"] if each["name"] == "config"]
    paths = {each["path"]: each["fieldRef"]["fieldPath"] for each in config["downwardAPI"]["items"]}
    assert paths == {each: f"metadata.annotations['kavip.io/{each}']" for each in ("agent.json", "keepalived.conf")}
    assert names.GROUP_LABEL not in body["metadata"]["labels"], "no pod of the controller's"


def test_a_pinned_vrid_is_in_the_text() -> None:
    """The static pod has the VRID that the page pins, and the group in the cluster may blacklist it."""
    text = pod()["metadata"]["annotations"]["kavip.io/keepalived.conf"]
    (entry,) = yaml.safe_load(EXAMPLE)["spec"]["virtualIPs"]
    assert f"virtual_router_id {entry['routerID']}\n" in text


def test_nodes_that_are_named_are_the_groups() -> None:
    """A named node is used with any labels and affinity of the group."""
    picky = """spec:
  nodeSelector: {tier: edge}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: zone, operator: In, values: [a]}]
"""
    assert "@n2 priority" in render(EXAMPLE.replace("spec:\n", picky, 1), *NODES).stdout


def test_image_and_password() -> None:
    """The image is the one that is named; a password is a file on the node, for there is no Secret to ask for."""
    text = EXAMPLE.replace("spec:\n", "spec:\n  passwordAuth: {secretRef: {name: vrrp}}\n  vrrpVersion: 2\n")
    body = pod(text, "--image=registry.example/kavip:1")
    assert {each["image"] for each in body["spec"]["containers"]} == {"registry.example/kavip:1"}
    (mount,) = [each for each in body["spec"]["volumes"] if each["name"].startswith("password-")]
    folder = f"/etc/kavip/{GROUP}/password/{mount['name'].removeprefix('password-')}"
    assert mount["hostPath"] == {"path": folder, "type": "DirectoryOrCreate"}
    messages_ = render(text, "--static", *NODES).stderr
    assert "the pods run kavip:latest: name the image" in messages_
    assert "--image" not in render(text, "--static", *NODES, "--image=registry.example/kavip:1").stderr
    assert f"kube-system/api: needs {folder}/password: key password of Secret vrrp, for root alone\n" in messages_
    assert f"needs /etc/kavip/{GROUP}/ca/api.crt: key ca.crt of ConfigMap kube-root-ca.crt\n" in messages_


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--static",), "group kube-system/api has no node"),
        (("--static", "--node", "n1"), "--node: 'n1': want NAME=ADDRESS[,ADDRESS]"),
        (("--static", "--node", "../n1=192.0.2.1"), "want NAME=ADDRESS"),
        (("--static", "--node", "n1=web"), "--node"),
        (("--static", "unit", *NODES), "needs --output-dir"),
        (("--static", "service", *NODES), "is not one of 'pod', 'unit'"),
    ],
)
def test_a_missing_flag_is_named(flags: tuple[str, ...], fault: str) -> None:
    """Without nodes keepalived would have no peers."""
    found = render(EXAMPLE, *flags)
    assert found.exit_code != 0
    assert fault in f"{found.output}{found.exception}"


def test_a_refused_group_is_not_rendered() -> None:
    """A group that admission would refuse gets no static pod."""
    found = render(EXAMPLE.replace("192.0.2.200", "127.0.0.1"), "--static", *NODES)
    assert found.exit_code == 1
    assert "apiVersion" not in found.stdout


def test_one_of_several_groups() -> None:
    """--group picks; without it there is one document for each."""
    two = EXAMPLE.replace("name: api", "name: two").replace("192.0.2.200", "192.0.2.201")
    two = two.replace(f": {PORT}", ": 9751").replace("routerID: 250", "routerID: 251")
    both = f"{EXAMPLE}---\n{two}"
    assert len(manifests.parsed(render(both, "--static", *NODES).stdout)) == 2
    (body,) = manifests.parsed(render(both, "--static", *NODES, "--group=kube-system/two").stdout)
    assert body["metadata"]["name"] == "kavip-two"


@pytest.mark.apiserver
def test_kubelet_would_take_it(control_plane: ControlPlane) -> None:
    """A real API server finds nothing wrong with the pod; kubelet validates static pods with the same code."""
    account = json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    control_plane.kubectl("apply", "-n", "kube-system", "--filename=-", input=account)
    body = pod()
    done = control_plane.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(body), check=False)
    assert done.returncode == 0, done.stderr
