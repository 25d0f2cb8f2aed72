"""The alerts in Prometheus' own tests of rules: when they fire, with which labels and texts, and that they end."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import alertrules
from hack.alerts import ALERTS
from hack.testbed import need
from kavip import telemetry
from kavip.names import Reason
from tests.cluster.alerts.faults import FAULTS as BROKEN_ON_A_CLUSTER
from tests.cluster.alerts.faults import UNTRIED
from tests.cluster.alerts.scaling import scaled
from tests.support.alertseries import CONDITION, FAULTS, HEALTHY, LEADER, QUIET, Fault

pytestmark = pytest.mark.netns  # promtool comes with the packages that these tests need


def test_each_alert_has_a_fault() -> None:
    """No alert of the table is untested."""
    assert {fault.alert for fault in FAULTS} == {alert.name for alert in ALERTS}


def test_the_series_have_the_labels_of_the_metrics() -> None:
    """The series of the faults have the labels that kavip declares, beside those of the target."""
    declared = {name: set(labels) for name, labels in telemetry.LABELS.items()}
    seen = set()
    for series in {name for changed in (HEALTHY, *(fault.changed for fault in FAULTS)) for name in changed}:
        name = re.sub("_(total|bucket)$", "", series.partition("{")[0])
        if name in declared:
            assert set(re.findall(r'(\w+)="', series)) - {"namespace", "pod", "instance", "le"} == declared[name]
            seen.add(name)
    assert len(seen) > 10


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_each_fault_fires_its_alert_alone_until_it_is_mended(fault: Fault, tmp_path: Path) -> None:
    """The alert has the labels of what is broken, a summary and a runbook; no other fires; none is left at the end."""
    (alert,) = [each for each in ALERTS if each.name == fault.alert]
    texts = {"summary": fault.summary, "runbook": f"docs/howto/runbooks.md#{alert.name.lower()}"}
    labels = {name: value for name, value in fault.labels.items() if value} | {"severity": alert.severity.value}
    firing = {"eval_time": "119m", "alertname": alert.name}
    expected = [{"exp_labels": labels, "exp_annotations": texts}]
    ended = {"eval_time": "239m", "alertname": alert.name, "exp_alerts": []}
    run(
        tmp_path,
        {**HEALTHY, **fault.changed},
        fired=[alert.name],
        alerts=[{**firing, "exp_alerts": expected}, ended],
    )


def test_a_group_that_is_served_keeps_its_alerts(tmp_path: Path) -> None:
    """kavip serves a second default group, so what is wrong with its pods fires beside the condition ``Accepted``."""
    changed = {
        CONDITION % (LEADER, "Accepted", "True", "Accepted"): "1x59 stale",
        CONDITION % (LEADER, "Accepted", "False", Reason.DUPLICATE_DEFAULT): "_x60 1x178",
        CONDITION % (LEADER, "Programmed", "True", "Programmed"): "1x59 stale",
        CONDITION % (LEADER, "Programmed", "False", Reason.PENDING): "_x60 1x178",
        CONDITION % (LEADER, "Ready", "True", "Ready"): "1x59 stale",
        CONDITION % (LEADER, "Ready", "False", Reason.PODS_NOT_READY): "_x60 1x178",
    }
    run(tmp_path, {**HEALTHY, **changed}, fired=["KavipGroupNotAccepted", "KavipNodesBehind", "KavipPodsNotReady"])


def test_a_group_that_is_not_served_has_one_alert(tmp_path: Path) -> None:
    """A group that is refused has no pods and no configuration because of that."""
    changed = {
        CONDITION % (LEADER, "Accepted", "True", "Accepted"): "1x59 stale",
        CONDITION % (LEADER, "Accepted", "False", Reason.INVALID): "_x60 1x178",
        CONDITION % (LEADER, "Ready", "True", "Ready"): "1x59 stale",
        CONDITION % (LEADER, "Ready", "False", Reason.NO_NODES): "_x60 1x178",
    }
    run(tmp_path, {**HEALTHY, **changed}, fired=["KavipGroupNotAccepted"])


@pytest.mark.parametrize("changed", QUIET.values(), ids=QUIET.keys())
def test_normal_operation_fires_nothing(changed: Mapping[str, str], tmp_path: Path) -> None:
    """A roll-out, an upgrade, a drain and a restart of the API server fire no alert at any time."""
    run(tmp_path, {**HEALTHY, **changed}, fired=[])


def test_the_rules_have_no_fault() -> None:
    """`promtool check rules` accepts the rule file."""
    need.packages("promtool", ("prometheus",))
    promtool("check", "rules", "--lint-fatal", str(alertrules.RULES))


def test_each_alert_is_broken_on_a_cluster() -> None:
    """`make test-alerts` breaks something for each alert, or the table says why not."""
    broken = [fault.alert for fault in BROKEN_ON_A_CLUSTER]
    assert sorted([*broken, *UNTRIED]) == sorted(alert.name for alert in ALERTS)
    assert {name for fault in BROKEN_ON_A_CLUSTER for name in fault.consequences} <= {alert.name for alert in ALERTS}


def test_scaled_rules_differ_in_their_times_alone(tmp_path: Path) -> None:
    """`for` and ranges are divided, down to the shortest time; promtool accepts the result."""
    before = yaml.safe_load(alertrules.RULES.read_text())
    after = scaled(before, by=60, least=10)
    rules = {rule["alert"]: rule for group in after["groups"] for rule in group["rules"]}
    assert rules["KavipPodsNotReady"]["for"] == "30s"
    assert rules["KavipAgentsSilent"]["for"] == "10s"
    assert "for" not in rules["KavipVIPFlapping"]
    assert "[60s:]" in rules["KavipVIPFlapping"]["expr"]
    assert "[15s]" in rules["KavipEventsDropped"]["expr"]
    assert re.sub(r"\d+[smh]", "", yaml.safe_dump(after)) == re.sub(r"\d+[smh]", "", yaml.safe_dump(before))
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(after))
    need.packages("promtool", ("prometheus",))
    promtool("check", "rules", "--lint-fatal", str(tmp_path / "rules.yml"))


def run(
    home: Path, series: Mapping[str, str], *, fired: Sequence[str], alerts: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Let promtool evaluate the rules over *series*: within four hours exactly *fired* fire, and *alerts* hold."""
    need.packages("promtool", ("prometheus",))
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": list(alerts),
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[4h]))',
                "eval_time": "239m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fired],
            }
        ],
    }
    test = {"rule_files": [str(alertrules.RULES)], "evaluation_interval": "1m", "tests": [case]}
    (home / "test.yaml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(home / "test.yaml"))


def promtool(*args: str) -> None:
    """Run promtool; what it prints is the message of a failure."""
    done = subprocess.run(["promtool", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
