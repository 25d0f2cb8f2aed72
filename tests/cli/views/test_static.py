"""``kavip render --static``: VIPs without an API, as static pods and as systemd units that really start."""

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from click.testing import CliRunner, Result

from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs
from kavip import names
from kavip.cli.main import cli
from kavip.errors import BadInput
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
    ("addresses", "warning"),
    [
        (("192.0.2.11", "192.0.2.12,2001:db8::12"), "do not hold IPv6 VIPs: n1; give"),
        (("192.0.2.11", "192.0.2.12"), "use multicast for IPv6 VIPs: n1, n2; give"),
        (("192.0.2.11,2001:db8::11", "192.0.2.12,2001:db8::12"), ""),
    ],
)
def test_a_node_without_a_family_is_named(addresses: tuple[str, str], warning: str) -> None:
    """No other node hears it: it takes no part, and if all lack the family, unicast has no peers."""
    text = EXAMPLE.replace("virtualIPs:\n", 'virtualIPs:\n    - address: "2001:db8::200"\n', 1)
    nodes = [f"--node=n{number}={each}" for number, each in enumerate(addresses, start=1)]
    found = render(text, "--static", *nodes).stderr
    assert ("nodes without an IPv6 address" in found, warning in found) == (bool(warning), True)
    assert "IPv4" not in found
    multicast = render(text.replace("spec:\n", "spec:\n  unicastEnabled: false\n", 1), "--static", *nodes)
    assert "nodes without" not in multicast.stderr


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--static",), "group kube-system/api has no node"),
        (("--static", "--node", "n1"), "--node: 'n1': want NAME=ADDRESS[,ADDRESS]"),
        (("--static", "--node", "../n1=192.0.2.1"), "want NAME=ADDRESS"),
        (("--static", "--node", "n1=web"), "--node"),
        (("--node", "n1=192.0.2.11", "--node", "n1=192.0.2.12"), "--node: 'n1': is there twice"),
        (("--node", "n1=192.0.2.11", "--node", "n2=192.0.2.11"), "--node: 'n2=192.0.2.11': n1 has this address"),
        (("--group=kube-system/apo", *NODES), "no such group in the files; did you mean kube-system/api?"),
        (("--static", "unit", *NODES), "needs --output-dir"),
        (("--static", "service", *NODES), "is not one of 'pod', 'kubeadm'"),
        (("--static", "--bootstrap=n1", *NODES), "--bootstrap needs --follow-nodes"),
        (("--static", "--follow-nodes", "--bootstrap=n9", *NODES), "want a node of group kube-system/api"),
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


FOLLOW = ("--follow-nodes", "--bootstrap=n1")
ROLE = "node-role.kubernetes.io/control-plane"
OF_ROLE = EXAMPLE.replace("spec:\n", f'spec:\n  nodeSelector: {{{ROLE}: ""}}\n', 1)


def test_a_pod_that_follows_nodes_has_access_to_them() -> None:
    """The agent knows which Nodes to follow; a kubeconfig and the last nodes are in folders of the node."""
    body = pod(OF_ROLE, *FOLLOW)
    meta = json.loads(body["metadata"]["annotations"]["kavip.io/agent.json"])
    assert meta["follow"] == {"selector": f"{ROLE}=", "first": "n1"}
    assert list(references(body["spec"])) == []
    paths = {each["name"]: each["hostPath"]["path"] for each in body["spec"]["volumes"] if "hostPath" in each}
    assert (paths["access"], paths["state"]) == (f"/etc/kavip/{GROUP}/access", f"/var/lib/kavip/{GROUP}")
    for container in (*body["spec"]["initContainers"], *body["spec"]["containers"]):
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        env = {each["name"]: each.get("value") for each in container["env"]}
        if container["name"] == names.KEEPALIVED_CONTAINER:
            assert not {"access", "state"} & mounts.keys()
            continue
        assert env["KAVIP_AGENT_KUBECONFIG"] == f"{mounts['access']}/kubeconfig"
        assert env["KAVIP_AGENT_STATE_DIR"] == mounts["state"]
    needed = f"needs /etc/kavip/{GROUP}/access/kubeconfig: a kubeconfig that may list nodes, for root alone\n"
    assert needed in render(OF_ROLE, "--static", *NODES, *FOLLOW).stderr


def test_without_the_flag_nothing_is_followed() -> None:
    """A static pod without the flag is as before."""
    assert "follow" not in json.loads(pod(OF_ROLE)["metadata"]["annotations"]["kavip.io/agent.json"])


@pytest.mark.parametrize("more", ["  unicastEnabled: false\n", '  virtualIPs: [{address: "2001:db8::1"}]\n'])
def test_multicast_has_no_nodes_to_follow(more: str) -> None:
    """The flag is refused for a group without unicast peers in each family."""
    text = EXAMPLE.partition("  virtualIPs:")[0] if "virtualIPs" in more else EXAMPLE
    found = render(text.replace("spec:\n", f"spec:\n{more}", 1), "--static", *NODES, *FOLLOW)
    assert isinstance(found.exception, BadInput)
    assert "only unicast has peers" in str(found.exception)


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("kubeadm", "/etc/kubernetes/manifests"), ("k3s", "/var/lib/rancher/k3s/agent/pod-manifests")],
)
def test_the_pod_for_a_platform(platform: str, folder: str) -> None:
    """It is the same pod; the command says where it belongs."""
    found = render(OF_ROLE, "--static", platform, *NODES)
    assert list(manifests.parsed(found.stdout)) == [pod(OF_ROLE)]
    assert f"kube-system/api: belongs into {folder}/kavip-kube-system.api.yaml on each node\n" in found.stderr


@pytest.mark.slow
def test_a_machine_config_is_valid(programs: Programs) -> None:
    """Ignition's own validator finds nothing wrong with it, and it holds the pod."""
    (body,) = manifests.parsed(render(OF_ROLE, "--static", "machineconfig", *NODES, *FOLLOW).stdout)
    assert body["metadata"]["labels"] == {"machineconfiguration.openshift.io/role": "master"}
    config = body["spec"]["config"]
    done = subprocess.run([programs["ignition"]], input=json.dumps(config), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = config["storage"]["files"]
    assert (file["path"], file["mode"]) == ("/etc/kubernetes/manifests/kavip-kube-system.api.yaml", 0o644)
    content = base64.b64decode(file["contents"]["source"].partition(",")[2]).decode()
    assert_is_pod_with_spc(content)


def test_a_worker_role_names_the_pool() -> None:
    """The pool of machines follows from the nodeSelector."""
    text = OF_ROLE.replace(ROLE, "node-role.kubernetes.io/infra")
    (body,) = manifests.parsed(render(text, "--static", "machineconfig", *NODES).stdout)
    assert body["metadata"]["name"] == "99-infra-kavip-kube-system.api"


SIDECAR = {
    "name": "x",
    "image": "x:1",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}


def with_template(*volumes: manifests.Object, **container: object) -> str:
    """The example with a template that adds a container and *volumes*."""
    body = yaml.safe_load(EXAMPLE)
    body["spec"]["podTemplate"] = {"spec": {"containers": [{**SIDECAR, **container}], "volumes": list(volumes)}}
    return json.dumps(body)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_template({"name": "x", "configMap": {"name": "a"}}), "spec.volumes[x]: 'configMap'"),
        (with_template({"name": "x", "secret": {"secretName": "a"}}), "spec.volumes[x]: 'secret'"),
        (
            with_template({"name": "x", "projected": {"sources": [{"secret": {"name": "a"}}]}}),
            "spec.volumes[x]: 'secret'",
        ),
        (with_template(envFrom=[{"secretRef": {"name": "a"}}]), "spec.containers[x]: 'secretRef'"),
        (
            with_template(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]),
            "spec.containers[x]: 'configMapKeyRef'",
        ),
    ],
)
@pytest.mark.parametrize("shape", ["pod", "unit"])
def test_a_template_that_needs_the_api_is_refused(text: str, message: str, shape: str, tmp_path: Path) -> None:
    """kubelet refuses a static pod that refers to objects, so the command does, and names the part."""
    found = render(text, "--static", shape, *NODES, f"--output-dir={tmp_path}")
    assert isinstance(found.exception, BadInput)
    assert f"spec.podTemplate.{message}" in str(found.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_template_that_needs_no_api_is_in_the_pod() -> None:
    """The pod has its container and its volumes as they are; units cannot have them, and the command says so."""
    own = [{"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]
    text = with_template({"name": "x", "emptyDir": {}}, {"name": "y", "projected": {"sources": own}})
    spec = pod(text)["spec"]
    assert [each for each in spec["containers"] if each["name"] == "x"] == [SIDECAR]
    assert [each for each in spec["volumes"] if each["name"] in ("x", "y")] == [
        {"name": "x", "emptyDir": {}},
        {"name": "y", "projected": {"sources": own}},
    ]
    found = render(text, "--static", "unit", *NODES, "--output-dir=unused")
    assert "units run kavip's own programs only" in str(found.exception)
    found = render(with_template({"name": "state", "emptyDir": {}}), "--static", "--follow-nodes", *NODES)
    assert "--follow-nodes has this name" in str(found.exception)


@pytest.mark.parametrize("shape", ["rbac", "machineconfig"])
def test_groups_of_one_name_overwrite_nothing(shape: str) -> None:
    """Cluster-scoped objects and files have the namespace of the group in their names."""
    changed = {"kube-system": "lb", "192.0.2.200": "192.0.2.201", "9750": "9751", "250": "251"}
    other = re.sub("|".join(changed), lambda each: changed[each[0]], OF_ROLE)
    found = list(manifests.parsed(render(f"{OF_ROLE}---\n{other}", "--static", shape, *NODES).stdout))
    named = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
    assert len(named) == len(set(named)) == {"rbac": 8, "machineconfig": 2}[shape]
    specs = [each["spec"]["config"]["storage"] for each in found if shape == "machineconfig"]
    assert len({each["files"][0]["path"] for each in specs}) == len(specs)


def test_a_butane_file_holds_the_pod() -> None:
    """It has the fields of Butane's fcos variant; Butane itself is not to be had as a Go module here."""
    (body,) = manifests.parsed(render(OF_ROLE, "--static", "butane", *NODES, *FOLLOW).stdout)
    assert (body["variant"], body["version"]) == ("fcos", "1.5.0")
    (file,) = body["storage"]["files"]
    assert file.keys() == {"path", "mode", "contents"}
    assert_is_pod_with_spc(file["contents"]["inline"])


def assert_is_pod_with_spc(text: str) -> None:
    """*text* is the pod, with an SELinux type that may read the folders of the node."""
    (found,) = manifests.parsed(text)
    assert found["spec"]["securityContext"].pop("seLinuxOptions") == {"type": "spc_t"}
    assert found == pod(OF_ROLE, *FOLLOW)


def test_units_follow_nodes_too() -> None:
    """Agent and init command have the kubeconfig and a folder that outlives a reboot."""
    with TemporaryDirectory() as folder:
        found = render(OF_ROLE, "--static", "unit", *NODES, *FOLLOW, "--output-dir", folder)
        assert found.exit_code == 0, found.output
        text = (Path(folder) / f"n1/etc/systemd/system/{UNIT}-agent.service").read_text()
    assert f"Environment=KAVIP_AGENT_KUBECONFIG=/etc/kavip/{GROUP}/access/kubeconfig\n" in text
    assert f"Environment=KAVIP_AGENT_STATE_DIR=/var/lib/{UNIT}\n" in text
    assert f"StateDirectory={UNIT}\n" in text


def test_one_of_several_groups() -> None:
    """--group picks; without it there is one document for each."""
    two = EXAMPLE.replace("name: api", "name: two").replace("192.0.2.200", "192.0.2.201")
    two = two.replace(f": {PORT}", ": 9751").replace("routerID: 250", "routerID: 251")
    both = f"{EXAMPLE}---\n{two}"
    assert len(manifests.parsed(render(both, "--static", *NODES).stdout)) == 2
    (body,) = manifests.parsed(render(both, "--static", *NODES, "--group=kube-system/two").stdout)
    assert body["metadata"]["name"] == "kavip-two"


@pytest.mark.apiserver
@pytest.mark.parametrize("flags", [(), FOLLOW], ids=["fixed nodes", "nodes that follow"])
def test_kubelet_would_take_it(control_plane: ControlPlane, flags: tuple[str, ...]) -> None:
    """A real API server finds nothing wrong with the pod; kubelet validates static pods with the same code."""
    account = json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    control_plane.kubectl("apply", "-n", "kube-system", "--filename=-", input=account)
    body = pod(EXAMPLE, *flags)
    done = control_plane.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(body), check=False)
    assert done.returncode == 0, done.stderr
