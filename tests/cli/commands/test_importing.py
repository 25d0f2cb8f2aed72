"""``kavip import -f`` as a process: it prints manifests, and rewrites those of Services."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.manifests import ROOT

METALLB = """\
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: first, namespace: metallb-system}
spec: {addresses: [192.0.2.128/28]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: l2, namespace: metallb-system}
spec: {interfaces: [eth1]}
"""
BGP = """\
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: tor, namespace: metallb-system}
spec: {peerASN: 64500}
"""
SHOP = """\
apiVersion: v1
kind: Service   # the front
metadata:
  name: web
  namespace: shop
  annotations:
    metallb.io/loadBalancerIPs: 192.0.2.130
spec:
  type: LoadBalancer
  ports: [{port: 80}]
"""


def import_(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``kavip import metallb`` from the root of the repository."""
    command = [sys.executable, "-m", "kavip", "import", "metallb", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A folder with MetalLB's objects and a Service."""
    (tmp_path / "metallb.yaml").write_text(METALLB)
    (tmp_path / "shop.yaml").write_text(SHOP)
    return tmp_path


@pytest.mark.slow
def test_manifests_go_to_standard_output_and_remarks_to_standard_error(manifests: Path) -> None:
    """What Services become stands below them as comments; what has no counterpart sets the exit status to 1."""
    done = import_("-f", manifests, "--into", "net")
    assert (done.returncode, done.stderr) == (0, "")
    namespace, group, pool = (each for each in yaml.safe_load_all(done.stdout) if each)
    assert (namespace["metadata"]["name"], group["spec"]["interface"]) == ("net", "eth1")
    assert (pool["spec"]["addresses"], pool["spec"]["groups"]) == (["192.0.2.128/28"], ["net/l2"])
    assert "# +    kavip.io/addresses: 192.0.2.130" in done.stdout
    assert (manifests / "shop.yaml").read_text() == SHOP
    (manifests / "bgp.yaml").write_text(BGP)
    more = import_("-f", manifests, "-o", "json")
    assert more.returncode == 1
    assert more.stderr.startswith("BGPPeer metallb-system/tor: ")
    assert [each["subject"] for each in json.loads(more.stdout)["remarks"]] == ["BGPPeer metallb-system/tor"]


@pytest.mark.slow
def test_manifests_of_services_are_rewritten(manifests: Path) -> None:
    """Only the lines of changed fields differ, MetalLB's objects stay, and a second run changes nothing."""
    done = import_("-f", manifests, "--hand-over")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{manifests / 'shop.yaml'}: rewritten: shop/web\n"
    assert (manifests / "metallb.yaml").read_text() == METALLB
    notes = "    keepalived-operator.redhat-cop.io/keepalivedgroup: lb/l2\n    kavip.io/addresses: 192.0.2.130\n"
    (web,) = yaml.safe_load_all((manifests / "shop.yaml").read_text())
    assert web["metadata"]["annotations"] | yaml.safe_load(notes) == web["metadata"]["annotations"]
    assert web["spec"]["loadBalancerClass"] == "kavip.io/keepalived"
    assert "kind: Service   # the front\n" in (manifests / "shop.yaml").read_text()
    again = import_("-f", manifests, "--hand-over")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.slow
def test_a_hand_over_does_not_repeat_remarks_about_manifests(manifests: Path) -> None:
    """The group has its interface by then, whatever the advertisement lacked when the manifests were printed."""
    (manifests / "metallb.yaml").write_text(METALLB.replace("interfaces: [eth1]", ""))
    printed = import_("-f", manifests)
    assert (printed.returncode, "--interface" in printed.stderr) == (1, True)
    done = import_("-f", manifests, "--hand-over")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_exit_status(manifests: Path) -> None:
    """1 for a Service whose group is not known, 2 for a file that cannot be read."""
    (manifests / "metallb.yaml").unlink()
    unknown = import_("-f", manifests, "--hand-over")
    assert (unknown.returncode, "--group" in unknown.stderr) == (1, True)
    assert import_("-f", manifests, "--hand-over", "--group", "lb/edge").returncode == 0
    (manifests / "bad.yaml").write_text("a: [")
    assert import_("-f", manifests).returncode == 2


@pytest.mark.slow
def test_an_object_that_cannot_be_read_is_named_and_hides_no_other(manifests: Path) -> None:
    """The others are imported, and the exit status is 2."""
    (manifests / "bad.yaml").write_text(METALLB.split("---", 1)[0].replace("first", "5") + "---\n" + BGP)
    done = import_("-f", manifests)
    assert done.returncode == 2
    assert (
        f"{manifests / 'bad.yaml'}, document 1, line 3: IPAddressPool: metadata.name: 5: want a string" in done.stderr
    )
    assert "BGPPeer metallb-system/tor: " in done.stderr
    assert "name: first" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ("metadata: {name: web, annotations: {metallb.io/address-pool: wan}}", "asks for pool wan"),
        ("metadata: {name: web, annotations: {metallb.io/loadBalancerIPs: 203.0.113.9}}", "203.0.113.9 is of pool wan"),
        ("metadata: {name: web}\nstatus: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}", "203.0.113.9 is of pool wan"),
    ],
)
def test_services_of_pools_that_stay_are_left(manifests: Path, service: str, reason: str) -> None:
    """A pool that is announced by BGP stays with MetalLB, and so do its Services, also with --group."""
    bgp = METALLB.replace("first", "wan").replace("192.0.2.128/28", "203.0.113.1/24").split("---", 1)[0]
    (manifests / "metallb.yaml").write_text(
        f"{METALLB.replace('interfaces: [eth1]', 'interfaces: [eth1], ipAddressPools: [first]')}---\n{bgp}---\n"
        "apiVersion: metallb.io/v1beta1\nkind: BGPAdvertisement\nmetadata: {name: b, namespace: metallb-system}\n"
    )
    text = f"apiVersion: v1\nkind: Service\n{service}\nspec: {{type: LoadBalancer, ports: [{{port: 80}}]}}\n"
    (manifests / "shop.yaml").write_text(text)
    done = import_("-f", manifests, "--hand-over", "--group", "lb/l2")
    assert (done.returncode, (manifests / "shop.yaml").read_text()) == (1, text)
    assert f"default/web: not handed over: {reason}, which is not imported" in done.stderr.replace(
        "metadata.annotations: ", ""
    )


@pytest.mark.slow
def test_what_is_given_is_checked(manifests: Path) -> None:
    """A wish that no object could have is refused, and files without anything of MetalLB are named."""
    for option, value in (("--group", "edge"), ("--group", "lb/a/b"), ("--into", "A B"), ("--interface", "eth 0")):
        done = import_("-f", manifests, option, value)
        assert (done.returncode, done.stderr.startswith(f"kavip: {option}: '{value}': want ")) == (2, True)
    for each in manifests.iterdir():
        each.unlink()
    (manifests / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    empty = import_("-f", manifests)
    assert (empty.returncode, empty.stderr) == (0, "kavip: nothing of MetalLB is in the files\n")
