"""The migration from keepalived-ingress-vip: the page covers each setting, and its example works."""

import json
import re
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
from tests.agent import mounts
from tests.agent.config.test_localize import facts
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

SETTINGS = {
    *(f"keepalived.{name}" for name in ("debug", "authPassword", "vrrpInterfaceName", "vipInterfaceName")),
    *(f"keepalived.{name}" for name in ("vipAddressCidr", "virtualRouterId", "vrrpNoPreempt")),
    *(f"keepalived.checkService{name}" for name in ("Url", "Interval", "FailAfter")),
    *(f"keepalived.checkKubelet{name}" for name in ("", "Interval", "FailAfter", "Url")),
    *(f"keepalived.checkKubeApi{name}" for name in ("", "Interval", "FailAfter")),
    *("kind", "image.repository", "image.tag", "image.pullPolicy", "rbac.create", "rbac.pspEnabled"),
    *("serviceAccount.name", "pod.replicas", "pod.priorityClassName", "pod.extraEnv"),
    *(f"pod.resources.{kind}.{what}" for kind in ("requests", "limits") for what in ("cpu", "memory")),
    *("pod.nodeSelector", "pod.tolerations", "pod.tolerateMasterTaints", "pod.affinity", "pod.imagePullSecrets"),
}
"""All settings of its configuration reference."""


def planned(folder: Path, example: str = EXAMPLE) -> simulate.Simulation:
    """The example on two nodes of a test segment."""
    path = folder / "example.yaml"
    nodes = [NODES.format(f"n{number}", f"192.0.2.{10 + number}") for number in (1, 2)]
    path.write_text("---".join([example, *nodes]))
    return simulate.plan(inputs.load((path,)))


def test_no_setting_is_missing() -> None:
    """Each setting has a row, and each row is about a setting."""
    rows = re.findall(r"^\| `([A-Za-z.]+)` \| ([^|]*) \| (.*) \|$", PAGE.read_text().replace("\\|", "/"), re.MULTILINE)
    assert {name for name, _, _ in rows} == SETTINGS
    assert all(here.strip() or what.strip() for _, here, what in rows)


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
    both = {"CLUSTER_VIP": [], "vip/ingress/virtualips": ["n2"]}
    process.wait_for("kavip has the VIP", lambda: livedaemons.masters([old, new]) == both, timeout=livedaemons.PATIENCE)
    assert "192.0.2.200" in new.addresses() and "192.0.2.200" not in old.addresses()
    assert old.look()["CLUSTER_VIP"].changes == (1, 1)
    assert new.look()["vip/ingress/virtualips"].changes == (1, 0)


def _localized(text: str, node: str) -> str:
    """The configuration that the agent of *node* makes from *text*."""
    here = facts(node=node, address=read_address("192.0.2.12"), held=())
    found = localize(mounts.mounted(text, authentication=True, password=PASSWORD), here)
    assert isinstance(found, LocalizedConfig), found
    return found.text
