"""The dashboards as JSON of Grafana, one file each. Same table, same bytes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hack import alertrules
from hack.dashboards import DASHBOARDS
from hack.dashboards.model import Dashboard, Health, Kind, Panel, Query, Row, Variable

FOLDER: Final = alertrules.ROOT / "charts" / "kavip" / "files" / "dashboards"

_TAG: Final = "kavip"
_SCHEMA_VERSION: Final = 39
"""Of Grafana 10.4 and later, which migrate older ones when they load them."""
_COLUMNS: Final = 24
_SIZES: Final = {Kind.STAT: (4, 4), Kind.TABLE: (24, 8), Kind.TIMESERIES: (12, 8)}
"""Width and height."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_STEPS: Final = {
    Health.NEUTRAL: [{"color": "text", "value": None}],
    Health.NONE_IS_BAD: [{"color": "red", "value": None}, {"color": "green", "value": 1}],
    Health.SOME_IS_BAD: [{"color": "green", "value": None}, {"color": "red", "value": 1}],
}


def files() -> dict[Path, str]:
    """Each file with its text."""
    return {FOLDER / f"{each.name}.json": f"{json.dumps(_dashboard(each), indent=2)}\n" for each in DASHBOARDS}


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"kavip-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [_TAG],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": _TAG,
                "tags": [_TAG],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": variable.everything or None,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """The rows and their panels, from left to right and from top to bottom."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
        }
        top, left, deepest = top + 1, 0, 0
        for panel in row.panels:
            width, height = _SIZES[panel.kind]
            if left + width > _COLUMNS:
                top, left, deepest = top + deepest, 0, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": width, "h": height})
            left, deepest = left + width, max(deepest, height)
        top += deepest


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": position,
        "links": [_link(alert) for alert in panel.alerts],
        "targets": [_target(query, index, panel.kind) for index, query in enumerate(panel.queries)],
        **_appearance(panel),
    }


def _link(alert: str) -> dict[str, Any]:
    """The runbook of *alert*. The chart replaces the page by its address, or removes the link."""
    return {"title": alert, "url": alertrules.runbook(alert), "targetBlank": True}


def _target(query: Query, index: int, kind: Kind) -> dict[str, Any]:
    shown = {"instant": True, "format": "table"} if kind is Kind.TABLE else {"instant": kind is Kind.STAT}
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        **shown,
        "range": not shown["instant"],
    }


def _appearance(panel: Panel) -> dict[str, Any]:
    if panel.kind is Kind.TABLE:
        hidden = {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}
        return {"transformations": [hidden], "fieldConfig": {"defaults": {}, "overrides": []}}
    defaults: dict[str, Any] = {"unit": panel.unit.value}
    if panel.kind is Kind.STAT:
        thresholds = {"mode": "absolute", "steps": _STEPS[panel.health]}
        defaults |= {"decimals": 0, "color": {"mode": "thresholds"}, "thresholds": thresholds}
        options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    else:
        defaults |= {"custom": {"axisSoftMin": 0, "fillOpacity": 10, "showPoints": "never"}}
        options = {
            "tooltip": {"mode": "multi", "sort": "desc"},
            "legend": {"displayMode": "list", "placement": "bottom"},
        }
    return {"fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}
