"""``kavip convert external-ips -f`` as a process: it rewrites manifests."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.manifests import ROOT

SHOP = """\
# the shop's front
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    keepalived-operator.redhat-cop.io/keepalivedgroup: lb/edge   # infra nodes
spec:
  externalIPs:
  - 192.0.2.130
  - 192.0.2.131  # for the old clients
  # nothing else
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: Deployment   # not ours
metadata: {name: web}
"""
OTHERS = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: api, namespace: shop, annotations: {keepalived-operator.redhat-cop.io/keepalivedgroup: lb/edge}}
  spec: {externalIPs: [192.0.2.130], ports: [{port: 81}], type: NodePort}
- apiVersion: v1
  kind: Service
  metadata: {name: plain, namespace: shop}
  spec: {externalIPs: [192.0.2.140], ports: [{port: 80}]}
"""
ANCHORED = """\
apiVersion: v1
kind: Service
metadata:
  name: one
  annotations: &notes
    keepalived-operator.redhat-cop.io/keepalivedgroup: lb/edge
spec: {externalIPs: [192.0.2.150]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: &data {a: b}
---
apiVersion: v1
kind: Service
metadata:
  name: two
  labels: &same {a: b}
  annotations: &more {keepalived-operator.redhat-cop.io/keepalivedgroup: lb/edge}
spec:
  selector: *more
  externalIPs: [192.0.2.151]
"""


def convert(*arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``kavip convert external-ips`` from the root of the repository."""
    command = [sys.executable, "-m", "kavip", "convert", "external-ips", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


@pytest.mark.slow
def test_only_the_lines_of_changed_fields_differ(tmp_path: Path) -> None:
    """Comments and other objects stay; Services that share an address get one key; a second run changes nothing."""
    shop, others = tmp_path / "shop.yaml", tmp_path / "others.yaml"
    shop.write_text(SHOP)
    others.write_text(OTHERS)
    dry = convert("-f", tmp_path, "--dry-run")
    assert (dry.returncode, shop.read_text()) == (1, SHOP)
    assert f"+++ converted: {shop}" in dry.stdout
    done = convert("-f", tmp_path)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"{others}: rewritten: shop/api", f"{shop}: rewritten: shop/web"]
    assert done.stderr.startswith("shop/plain: left as it is: ")
    assert shop.read_text() == SHOP.replace(
        "    keepalived-operator",
        '    kavip.io/address-count: "2"\n    kavip.io/addresses: 192.0.2.130,192.0.2.131\n'
        "    kavip.io/sharing-key: external-ips-192.0.2.130\n    keepalived-operator",
    ).replace(
        "  externalIPs:\n  - 192.0.2.130\n  - 192.0.2.131  # for the old clients\n",
        "  type: LoadBalancer\n  loadBalancerClass: kavip.io/keepalived\n  allocateLoadBalancerNodePorts: false\n",
    )
    api, plain = yaml.safe_load(others.read_text())["items"]
    assert api["metadata"]["annotations"]["kavip.io/sharing-key"] == "external-ips-192.0.2.130"
    assert api["spec"]["type"] == "LoadBalancer"
    assert plain["spec"]["externalIPs"] == ["192.0.2.140"]
    again = convert("-f", tmp_path)
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.slow
def test_a_chosen_service_takes_its_sharers_along(tmp_path: Path) -> None:
    """They get the same key, and nothing else."""
    shop, others = tmp_path / "shop.yaml", tmp_path / "others.yaml"
    shop.write_text(SHOP)
    others.write_text(OTHERS)
    assert convert("-f", tmp_path, "shop/web").returncode == 0
    api, _ = yaml.safe_load(others.read_text())["items"]
    assert (api["spec"]["type"], api["spec"]["externalIPs"]) == ("NodePort", ["192.0.2.130"])
    assert api["metadata"]["annotations"]["kavip.io/sharing-key"] == "external-ips-192.0.2.130"


@pytest.mark.slow
def test_standard_input_becomes_standard_output() -> None:
    """Objects that are no Services pass unchanged."""
    done = convert("-f", "-", given=SHOP)
    assert done.returncode == 0
    assert done.stdout.endswith("kind: Deployment   # not ours\nmetadata: {name: web}\n")
    assert [each["kind"] for each in yaml.safe_load_all(done.stdout)] == ["Service", "Deployment"]


@pytest.mark.slow
def test_what_cannot_be_edited_in_place_is_left(tmp_path: Path) -> None:
    """A field that an anchor shares would change another one: the file stays, and the others are rewritten."""
    anchored, shop = tmp_path / "anchored.yaml", tmp_path / "shop.yaml"
    anchored.write_text(ANCHORED)
    shop.write_text(SHOP)
    done = convert("-f", tmp_path)
    assert done.returncode == 2
    assert anchored.read_text() == ANCHORED
    assert "default/two: cannot be edited in place, for example because of an anchor" in done.stderr
    assert "externalIPs" not in shop.read_text()


@pytest.mark.slow
def test_exit_status(tmp_path: Path) -> None:
    """1 for a Service that cannot be converted, 2 for a file that cannot be read, 0 if there is nothing to do."""
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP.replace("192.0.2.131", "2001:db8::1"))
    refused = convert("-f", file)
    assert (refused.returncode, "has only IPv4" in refused.stderr) == (1, True)
    file.write_text("a: [")
    assert convert("-f", file).returncode == 2
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    assert (convert("-f", file).returncode, convert("-f", file, "--dry-run").returncode) == (0, 0)
    assert convert("-f", file, "--pool", "x").returncode == 2
    unknown = convert("-f", file, "shop/web")
    assert (unknown.returncode, "'shop/web': no such Service" in unknown.stderr) == (2, True)
    assert convert("-f", file, "-o", "json").returncode == 2
