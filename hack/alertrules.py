"""The alerts as files: rules of Prometheus, a PrometheusRule, and the generated parts of the page of runbooks."""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from hack.alerts import ALERTS, SECTIONS, Alert

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "charts" / "kavip" / "files" / "alerts.yaml"
PROMETHEUS_RULE: Final = ROOT / "config" / "prometheus" / "rules" / "rules.yaml"
PAGE: Final = ROOT / "docs" / "howto" / "runbooks.md"

_LABELS: Final = {"app.kubernetes.io/name": "kavip", "app.kubernetes.io/instance": "kavip"}
_TEMPLATE: Final = re.compile(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}")


def rules() -> str:
    """The rule file of Prometheus. The chart has it too, and turns ``runbook`` into a ``runbook_url`` on request."""
    return f"# Alerts of kavip. `make reference` writes this file.\n{_dumped(_groups())}"


def prometheus_rule() -> str:
    """The PrometheusRule of config/prometheus."""
    found = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "kavip", "namespace": "kavip", "labels": _LABELS},
        "spec": _groups(),
    }
    return f"# `make reference` writes this file.\n{_dumped(found)}"


def runbook(alert: str) -> str:
    """The section about *alert* on the page of runbooks, as a path in this repository."""
    return f"{PAGE.relative_to(ROOT)}#{alert.lower()}"


def page(text: str) -> str:
    """*text*, the page of runbooks, with the table of all alerts, and the rule of each below its heading."""
    table = ["| alert | severity | after | summary |", "|---|---|---|---|", *map(_row, ALERTS)]
    text = _replaced(r"^\| alert \| severity .*\n(?:\|.*\n)*", "\n".join([*table, ""]), text)
    for alert in ALERTS:
        heading = rf"^### {alert.name}\n\n(?:\*\*(?:critical|warning)\*\*.*\n\n```promql\n(?:.*\n)*?```\n\n)?"
        text = _replaced(heading, f"### {alert.name}\n\n{_rule(alert)}\n\n", text)
    return text


def _replaced(pattern: str, new: str, text: str) -> str:
    return re.sub(pattern, lambda _: new, text, flags=re.MULTILINE)


def _groups() -> dict[str, Any]:
    return {
        "groups": [
            {"name": f"kavip: {section.title}", "rules": [_alerting(alert) for alert in section.alerts]}
            for section in SECTIONS
        ]
    }


def _alerting(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.lasts} if alert.lasts else {}),
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "runbook": runbook(alert.name),
        },
    }


def _dumped(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000)


def _row(alert: Alert) -> str:
    summary = _TEMPLATE.sub(lambda found: "N" if found[1] == "value" else f"*{found[1]}*", alert.summary)
    summary = summary.replace("*name**iname*", "*name*")
    return f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {alert.lasts} | {summary} |"


def _rule(alert: Alert) -> str:
    after = f", after {alert.lasts}" if alert.lasts else ""
    return f"**{alert.severity}**{after}\n\n```promql\n{alert.expr}\n```"
