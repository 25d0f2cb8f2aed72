"""The migration from keepalived-ingress-vip: the page covers each setting, and its example works."""

import json
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from hack.testbed import process
from hack.testbed.controlplane import ControlPlane
from hack.testbed.fixtures import MakeSegment
from kavip import names
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig
from kavip.api.address import read_address
from kavip.api.group import Check
from kavip.cli.sources import files as inputs
from kavip.cli.views import simulate
from kavip.vrrp import targets
from tests.agent import mounts
from tests.agent.config.test_localize import facts
from tests.chart.conftest import helm as helm
from tests.chart.release import Helm, rendered
from tests.support import crds, manifests
from tests.vrrp import livedaemons

PAGE = manifests.ROOT / "docs" / "howto" / "ingress-vip.md"
EXAMPLE = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
PASSWORD = "5e0d8c1a"
NODES = """
apiVersion: v1
kind: Node
metadata: {{name: {0}, labels: {{nodeRole: ingress}}}}
status: {{addresses: [{{type: InternalIP, address: {1}}}]}}
"""
OLD = """\
global_defs {
    vrrp_garp_master_delay 5
    vrrp_garp_master_refresh 60
    vrrp_garp_lower_prio_repeat 1
}
vrrp_instance CLUSTER_VIP {
    interface eth0
    virtual_router_id 10
    state BACKUP
    preempt_delay 5
    priority 100
    advert_int 1
    authentication {
        auth_type PASS
        auth_pass 5e0d8c1a
    }
    virtual_ipaddress {
        192.0.2.200/24 dev eth0
    }
}
"""
"""The text that keepalived-ingress-vip renders for this VIP, without its checks."""

DEFAULTS = {
    "keepalived.debug": "false",
    "keepalived.authPassword": "generated",
    "keepalived.vrrpInterfaceName": "eth0",
    "keepalived.vipInterfaceName": "eth0",
    "keepalived.vipAddressCidr": "",
    "keepalived.virtualRouterId": "10",
    "keepalived.vrrpNoPreempt": "false",
    "keepalived.checkServiceUrl": "http://127.0.0.1:10254/healthz",
    "keepalived.checkServiceInterval": "2",
    "keepalived.checkServiceFailAfter": "2",
    "keepalived.checkKubelet": "true",
    "keepalived.checkKubeletInterval": "5",
    "keepalived.checkKubeletFailAfter": "5",
    "keepalived.checkKubeletUrl": "http://127.0.0.1:10248/healthz",
    "keepalived.checkKubeApi": "true",
    "keepalived.checkKubeApiInterval": "5",
    "keepalived.checkKubeApiFailAfter": "5",
    "kind": "Deployment",
    "image.repository": "janeczku/keepalived-ingress-vip",
    "image.tag": "v0.1.4",
    "image.pullPolicy": "IfNotPresent",
    "rbac.create": "true",
    "rbac.pspEnabled": "false",
    "serviceAccount.name": "",
    "pod.replicas": "2",
    "pod.priorityClassName": "system-cluster-critical",
    "pod.extraEnv": "[]",
    "pod.resources.requests.cpu": "80m",
    "pod.resources.limits.cpu": "",
    "pod.resources.requests.memory": "6Mi",
    "pod.resources.limits.memory": "12Mi",
    "pod.nodeSelector": "{}",
    "pod.tolerations": "15 s for unreachable and not-ready",
    "pod.tolerateMasterTaints": "false",
    "pod.affinity": "{}",
    "pod.imagePullSecrets": "[]",
}
"""All settings of its configuration reference, with their defaults."""


def planned(folder: Path, example: str = EXAMPLE) -> simulate.Simulation:
    """The example on two nodes of a test segment."""
    path = folder / "example.yaml"
    nodes = [NODES.format(f"n{number}", f"192.0.2.{10 + number}") for number in (1, 2)]
    path.write_text("---".join([example, *nodes]))
    return simulate.plan(inputs.load((path,)))


def test_no_setting_is_missing() -> None:
    """Each setting has a row, and each row is about a setting."""
    rows = re.findall(r"^\| `([A-Za-z.]+)` \| ([^|]*) \| ([^|]*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: default.replace("`", "").strip() for name, default, _, _ in rows} == DEFAULTS
    assert all(here.strip() and what.strip() for _, _, here, what in rows)


@pytest.mark.chart
def test_the_preset_has_the_defaults_of_the_old_chart(helm: Helm, tmp_path: Path) -> None:
    """The group that the command of the page makes has its checks, times, priority class and taints, and is valid."""
    text = PAGE.read_text()
    command = text.partition("helm install ")[2].partition("```")[0].replace("\\\n", " ")
    settings = [each for each in shlex.split(command) if "groups[0]" in each]
    objects = rendered_with(helm, *settings)
    values = json.loads(manifests.only(objects, "ConfigMap", names.VALUES_CONFIGMAP_NAME)["data"][names.VALUES_KEY])
    (group,) = values["groups"]
    assert group["spec"]["daemonsetPodPriorityClassName"] == DEFAULTS["pod.priorityClassName"]
    assert group["spec"]["tolerations"] == []
    checks = {each["name"]: each for each in group["spec"]["checks"]}
    assert checks["service"]["url"] == DEFAULTS["keepalived.checkServiceUrl"]
    assert (checks["kubelet"]["url"], targets.KUBELET_URL) == ("kubelet", DEFAULTS["keepalived.checkKubeletUrl"])
    for name, prefix in (("service", "Service"), ("kubelet", "Kubelet"), ("kube-api", "KubeApi")):
        times = [checks[name][field] for field in ("intervalSeconds", "failAfter")]
        assert times == [int(DEFAULTS[f"keepalived.check{prefix}{each}"]) for each in ("Interval", "FailAfter")]
    assert [checks[name].get("expectedStatus") for name in ("service", "kubelet")] == [200, 200]
    assert {name: each.get("onFailure", "Fault") for name, each in checks.items()} == {
        "service": "Fault",
        "kubelet": "Fault",
        "kube-api": "LowerPriority",
    }
    made = {"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": names.KEEPALIVED_GROUP, "spec": group["spec"]}
    metadata = {key: group[key] for key in ("name", "namespace")}
    found = planned(tmp_path, json.dumps({**made, "metadata": metadata}) + "\n")
    assert not found.refused
    assert found.configurations["vip/ingress"].count("172.16.135.2/21") == 1


def rendered_with(helm: Helm, *settings: str) -> list[manifests.Object]:
    """The objects of the chart with *settings* of ``--set``."""
    values = [f"--set={each}" for each in settings]
    return manifests.parsed(helm("template", "kavip", str(manifests.CHART), "--namespace=kavip", *values).stdout)


@pytest.mark.chart
def test_a_field_of_the_group_replaces_that_of_the_preset(helm: Helm) -> None:
    """Maps and lists too, and an empty one."""
    own = 'groups=[{"name":"a","preset":"apiServer","spec":{"interface":"e","checks":[],"nodeSelector":{"a":"b"}}}]'
    found = manifests.only(rendered(helm, own), "ConfigMap", names.VALUES_CONFIGMAP_NAME)
    (group,) = json.loads(found["data"][names.VALUES_KEY])["groups"]
    assert (group["spec"]["checks"], group["spec"]["nodeSelector"]) == ([], {"a": "b"})
    assert group["spec"]["daemonsetPodPriorityClassName"] == "system-cluster-critical"
    assert "preset" not in group


@pytest.mark.parametrize("preset", ["ingress", "apiServer"])
def test_presets_are_valid(preset: str, tmp_path: Path) -> None:
    """A group with nothing else than an interface and a VIP is accepted."""
    presets = manifests.objects(manifests.CHART / "files" / "presets.yaml")[0]
    spec = {"interface": "eth0", "virtualIPs": [{"address": "192.0.2.200"}], **presets[preset]}
    metadata = {"name": "own", "namespace": "kavip"}
    made = {"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": names.KEEPALIVED_GROUP, "metadata": metadata}
    found = planned(tmp_path, json.dumps({**made, "spec": spec}) + "\n")
    assert not found.refused
    assert "kavip/own" in found.configurations


def test_the_fields_that_the_page_names_exist() -> None:
    """Every ``spec.`` and ``checks[].`` field of the page is in the CRD."""
    (version,) = manifests.parsed(manifests.CRDS[0].read_text())[0]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    named = re.findall(r"`(?:spec\.)?((?:virtualIPs\[\]|checks\[\])?\.?[A-Za-z]+)", PAGE.read_text())
    for name in {each for each in named if each.startswith(("virtualIPs[]", "checks[]"))}:
        outer, _, inner = name.partition("[].")
        assert inner in spec[outer]["items"]["properties"], name
    for name in re.findall(r"`spec\.([A-Za-z]+)", PAGE.read_text()):
        assert name in spec, name


def test_the_example_is_what_the_old_chart_rendered(tmp_path: Path) -> None:
    """
    VRID 10, version 2 with a password, multicast, one second, and the VIP with its prefix: the adverts are the same.
    """
    found = planned(tmp_path)
    assert not found.refused
    text = found.configurations["vip/ingress"]
    for line in (
        *("virtual_router_id 10", "version 2", "advert_int 1", "interface eth9", "preempt_delay 5"),
        *("172.16.135.2/21 dev eth0", "# kavip: authentication"),
        *("vrrp_garp_master_delay 5", "vrrp_garp_master_refresh 60", "vrrp_garp_lower_prio_repeat 1"),
        *("check-service weight 0", "check-kubelet weight 0", "check-kube-api weight -100"),
    ):
        assert text.count(f" {line}\n") == 1, line
    assert "unicast" not in text
    config_map = next(each for each in found.objects if each["kind"] == names.CONFIG_MAP)
    checks = msgspec.convert(json.loads(config_map["data"]["agent.json"])["checks"], list[Check])
    assert [(each.name, each.interval_seconds, each.fail_after, each.succeed_after) for each in checks] == [
        ("kube-api", 5, 5, 2),
        ("kubelet", 5, 5, 2),
        ("service", 2, 2, 2),
    ]


@pytest.mark.apiserver
def test_the_example_installs(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A real API server accepts the example and all objects that kavip makes from it."""
    crds.install(control_plane)
    control_plane.kubectl("create", "namespace", "vip")
    control_plane.kubectl("apply", "--server-side", "--filename=-", input=EXAMPLE)
    for body in planned(tmp_path).objects:
        metadata = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
        subject = json.dumps({**body, "metadata": metadata})
        control_plane.kubectl("apply", "--server-side", "--dry-run=server", "--filename=-", input=subject)


@pytest.mark.netns
def test_old_and_new_nodes_share_one_election(segment: MakeSegment, tmp_path: Path) -> None:
    """kavip takes the VIP over from an old node in one move; the old node gets it back when kavip stops."""
    lan = segment(nodes=2)
    old = livedaemons.Daemon(lan.node("n1")).start(OLD)
    livedaemons.settle([old], {"CLUSTER_VIP": "n1"})
    example = EXAMPLE.replace("172.16.135.2/21", "192.0.2.200/24").replace("eth9", "eth0")
    text = planned(tmp_path, example.replace("preemptDelaySeconds: 5", "preemptDelaySeconds: 1")).configurations
    new = livedaemons.Daemon(lan.node("n2")).start(_localized(text["vip/ingress"], "n2"))
    both = {"CLUSTER_VIP": [], "vip/ingress/virtualips/10": ["n2"]}
    process.wait_for("kavip has the VIP", lambda: livedaemons.masters([old, new]) == both, timeout=livedaemons.PATIENCE)
    process.wait_for(
        "its node alone has it",
        lambda: "192.0.2.200" in new.addresses() and "192.0.2.200" not in old.addresses(),
        timeout=livedaemons.PATIENCE,
    )
    assert old.look()["CLUSTER_VIP"].changes == (1, 1)
    assert new.look()["vip/ingress/virtualips/10"].changes == (1, 0)


def _localized(text: str, node: str) -> str:
    """The configuration that the agent of *node* makes from *text*."""
    here = facts(node=node, address=read_address("192.0.2.12"), held=())
    found = localize(mounts.mounted(text, authentication=True, password=PASSWORD), here)
    assert isinstance(found, LocalizedConfig), found
    return found.text
