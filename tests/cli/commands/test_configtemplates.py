"""Templates of keepalived.conf without a cluster: the example of the documentation, and its faults."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "howto" / "config-template.md"
EXAMPLE = PAGE.read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "annotations": {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/lines"},
    },
    "spec": {"externalIPs": ["192.0.2.130", "2001:db8::130"], "ports": [{"port": 80}]},
}
NODES = ("--node", "n1=192.0.2.11,2001:db8::11", "--node", "n2=192.0.2.12,2001:db8::12")


def kavip(folder: Path, *arguments: str, text: str = EXAMPLE) -> subprocess.CompletedProcess[str]:
    """Run a command of kavip with the example."""
    (folder / "lines.yaml").write_text(f"{text}---\n{json.dumps(SERVICE)}\n")
    command = [sys.executable, "-m", "kavip", arguments[0], "-f", str(folder), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)


def test_render_shows_the_lines_of_the_example(tmp_path: Path) -> None:
    """The line of global_defs, and that of the instance of the right family."""
    done = kavip(tmp_path, "render", *NODES)
    assert (done.returncode, done.stderr) == (0, "")
    head, four, six = done.stdout.split("vrrp_instance ")
    assert head.endswith("    # kavip: template\n    vrrp_garp_master_refresh 60\n}\n")
    assert "template" not in four
    assert six.endswith("    # kavip: template\n    garp_master_delay 2\n}\n")
    assert kavip(tmp_path, "render", *NODES).stdout == done.stdout


def test_render_without_the_field_is_as_ever(tmp_path: Path) -> None:
    """The lines of the template are the only difference."""
    text = EXAMPLE.replace("  configTemplateRef: {name: lines}\n", "")
    plain = kavip(tmp_path, "render", *NODES, text=text).stdout.splitlines()
    added = [each.strip() for each in kavip(tmp_path, "render", *NODES).stdout.splitlines() if each not in plain]
    assert added == ["# kavip: template", "vrrp_garp_master_refresh 60", "# kavip: template", "garp_master_delay 2"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "garp_master_delay 2",
            "virtual_router_id 9",
            "line 10, column 5: virtual_router_id: kavip writes",
        ),
        ("{% endif %}", "", "line 13, column 4: Encountered unknown tag 'endfor'"),
        ("configTemplateRef: {name: lines}", "configTemplateRef: {name: other}", "no such ConfigMap with the label"),
        ('labels: {kavip.io/config-template: "true"}', "labels: {}", "no such ConfigMap with the label"),
        ("keepalived.conf: |", "other: |", "the ConfigMap has no such key"),
    ],
)
def test_render_reports_a_fault(tmp_path: Path, before: str, after: str, message: str) -> None:
    """On standard error, with status 1; the text without the lines is printed."""
    done = kavip(tmp_path, "render", *NODES, text=EXAMPLE.replace(before, after))
    assert done.returncode == 1
    assert done.stderr.startswith("KeepalivedGroup lb/lines: warning: spec.configTemplateRef: ConfigMap lb/")
    assert message in done.stderr
    assert "192.0.2.130/32 dev eth0" in done.stdout
    assert "template" not in done.stdout


def test_a_template_without_an_instance_is_not_tried_whole(tmp_path: Path) -> None:
    """The files of the page alone have no VIP: the command says so."""
    (tmp_path / "lines.yaml").write_text(EXAMPLE.replace("garp_master_delay 2", "virtual_router_id 9"))
    command = [sys.executable, "-m", "kavip", "render", "-f", str(tmp_path), *NODES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert (done.returncode, "tried without any instance; add a Service" in done.stderr) == (0, True)


def test_static_pods_have_the_lines(tmp_path: Path) -> None:
    """The text in the pod is that of the group."""
    done = kavip(tmp_path, "render", "--static", "--image=kavip:1", *NODES)
    assert done.returncode == 0, done.stderr
    assert "garp_master_delay 2" in done.stdout


def test_plan_and_check_need_the_permission(tmp_path: Path) -> None:
    """The same settings as in the chart; then the text in JSON has the lines."""
    assert "does not name 'lb'" in kavip(tmp_path, "check").stdout
    done = kavip(tmp_path, "plan", "--template-namespaces=lb", "-o", "json")
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert "vrrp_garp_master_refresh 60" in group["keepalivedConf"]
