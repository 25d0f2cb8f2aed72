"""The alerts of the documentation in Prometheus' own tests of rules: when they fire, and with which labels."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.testbed import need
from kavip import names
from tests.support.manifests import ROOT

pytestmark = pytest.mark.netns  # promtool comes with the packages that these tests need

GROUP = {"group": "lb/edge"}
HELD = 'kavip_services_advertised{group="lb/edge",reason="Master"}'
LEADS = 'kavip_leader{instance="a"}'
MOVES = 'keepalived_vrrp_become_master{namespace="lb",pod="edge-1",name="shop/web"}'
HEALTHY = {
    HELD: "9x120",
    'kavip_services_advertised{group="lb/edge",reason="NoEndpoints"}': "1x120",
    'kavip_services_advertised{group="lb/edge",reason="NoMaster"}': "0x120",
    'kavip_group_vrid_collisions{group="lb/edge"}': "0x120",
    'kavip_agents{group="lb/edge",state="silent"}': "0x120",
    'kavip_agents{group="lb/edge",state="answering"}': "3x120",
    LEADS: "1x120",
    'kavip_leader{instance="b"}': "0x120",
    MOVES: "2x30 3x60 4x29",
}
"""What is measured while all is well: a Service without pods, and an upgrade that moves a VIP twice."""


def rules() -> list[dict[str, Any]]:
    """The alerts of the page, in the order of their numbers."""
    page = (ROOT / "docs" / "howto" / "status.md").read_text().split("## Alerts")[1]
    (block,) = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    rows = re.findall(r"^\| (\d) \| (\w+) \|", page, re.MULTILINE)
    lines = block.splitlines()
    assert [number for number, _ in rows] == [str(number + 1) for number in range(len(lines))]
    return [{"alert": number, "for": lasts, "expr": line} for (number, lasts), line in zip(rows, lines, strict=True)]


Case = tuple[str, Mapping[str, str | None], str, Mapping[str, str]]
FIRES: Sequence[Case] = [
    *(
        (
            reason,
            {f'kavip_services_advertised{{group="lb/edge",reason="{reason}"}}': "2x120"},
            "1",
            {**GROUP, "reason": reason.value},
        )
        for reason in names.ADVERTISED_REASONS
        if reason not in (names.Reason.MASTER, names.Reason.NO_ENDPOINTS)
    ),
    ("a VRID of others", {'kavip_group_vrid_collisions{group="lb/edge"}': "1x120"}, "2", GROUP),
    ("a silent agent", {'kavip_agents{group="lb/edge",state="silent"}': "1x120"}, "3", GROUP),
    ("no leader", {LEADS: "0x120"}, "4", {}),
    ("no replica", {LEADS: None, 'kavip_leader{instance="b"}': None}, "4", {}),
    ("flapping", {MOVES: "0+1x120"}, "5", {"namespace": "lb", "name": "shop/web"}),
]


@pytest.mark.parametrize(("changed", "alert", "labels"), [each[1:] for each in FIRES], ids=[each[0] for each in FIRES])
def test_each_alert_fires_alone(
    changed: Mapping[str, str | None], alert: str, labels: Mapping[str, str], tmp_path: Path
) -> None:
    """With one thing broken, its alert fires with the labels of the group or instance, and no other."""
    run(tmp_path, {**HEALTHY, **changed}, {alert: labels})


def test_none_fires_while_all_is_well(tmp_path: Path) -> None:
    """A Service without pods and an upgrade of the agents are no alert."""
    run(tmp_path, HEALTHY, {})


def run(home: Path, series: Mapping[str, str | None], firing: Mapping[str, Mapping[str, str]]) -> None:
    """Let promtool evaluate the rules over *series*; after two hours exactly *firing* fires."""
    need.packages("promtool", ("prometheus",))
    (home / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "kavip", "rules": rules()}]}))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values is not None],
        "alert_rule_test": [
            {
                "eval_time": "2h",
                "alertname": rule["alert"],
                "exp_alerts": [{"exp_labels": dict(firing[rule["alert"]])}] if rule["alert"] in firing else [],
            }
            for rule in rules()
        ],
    }
    (home / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(home / "test.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
