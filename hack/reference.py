"""Generates parts of docs, chart and config from the code (``make reference``); a test compares them."""

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hack import (
    alertrules,
    bundlepage,
    chartpage,
    commandoutput,
    commandpage,
    crdpage,
    refusalpage,
    refusals,
    valuesschema,
)
from hack.dashboards import grafana
from hack.pictures import files as pictures
from kavip import names, telemetry
from kavip.agent.main import PREFIX, AgentSettings
from kavip.agent.report.dump import Data, Entry
from kavip.agent.report.health import CheckStatus
from kavip.agent.report.metrics import exposition
from kavip.agent.report.state import AgentStatus
from kavip.api.group import Check
from kavip.names import Exporter
from kavip.settings import Settings

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
POOLS: Final = FOLDER.parent / "howto" / "pools.md"
WIDTH: Final = 100


def settings() -> str:
    """The page of settings."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Each setting is a flag and an environment variable. The last column of the first table is the",
            "[value of the chart](chart.md) that sets it; the chart sets the others itself, or leaves their defaults.",
            "If a setting is unknown or malformed, the program prints one line and exits with status 2.",
            "",
            "## kavip run, webhook, controller",
            "",
            *_with_values(_table(Settings, names.ENV_PREFIX)),
            "",
            "## kavip agent",
            "",
            "The controller sets these in the DaemonSet of a group. They are not for users.",
            "",
            *_table(AgentSettings, PREFIX),
            "",
        ]
    )


def metrics() -> str:
    """The page of metrics: of kavip, and of the agents."""
    own, by_exporter = _agents()
    sections = [
        "## The agents",
        "On `/metrics` of each node: port 9650, or the next free port if another group uses it (`spec.metricsPort`).",
        *_rows(own, labels={each.name: _labels_of_samples(each) for each in own}),
        "### keepalived, with the names of gen2brain/keepalived_exporter",
        "This is the default, as in keepalived-operator. Labels: `name`, `intf`, `vrid`, `state`.",
        *_rows(by_exporter[Exporter.GEN2BRAIN]),
        "### keepalived, with the names of mehdy/keepalived-exporter",
        "With `agent.metrics: mehdy`. Labels: `iname`, `intf`, `vrid`; metrics of a state also have `ip_address`.",
        *_rows(by_exporter[Exporter.MEHDY]),
    ]
    kavip = sorted(telemetry.REGISTRY.collect(), key=lambda each: each.name)
    rows = _rows(kavip, labels=telemetry.LABELS)
    return "\n\n".join(["# Metrics", "kavip serves these on `/metrics`, port 8080.", *rows, *sections]) + "\n"


def pages() -> dict[Path, str]:
    """Each page with its text."""
    return {
        FOLDER / "settings.md": filled(settings()),
        FOLDER / "bundle.md": filled(bundlepage.page()),
        FOLDER / "chart.md": filled(chartpage.page()),
        FOLDER / "commands.md": commandpage.page(),
        FOLDER / "keepalivedgroup.md": filled(crdpage.page("keepalivedgroups.redhatcop.redhat.io")),
        FOLDER / "vippool.md": filled(crdpage.page("vippools.kavip.io")),
        FOLDER / "metrics.md": filled(metrics()),
        FOLDER / "refusals.md": filled(refusalpage.page(refusals.cases())),
        POOLS: commandoutput.page(POOLS.read_text()),
        alertrules.PAGE: alertrules.page(alertrules.PAGE.read_text()),
        alertrules.RULES: alertrules.rules(),
        alertrules.PROMETHEUS_RULE: alertrules.prometheus_rule(),
        **grafana.files(),
        **pictures.files(),
        valuesschema.SCHEMA: valuesschema.page(valuesschema.SCHEMA.read_text()),
    }


def filled(text: str) -> str:
    """*text* with its paragraphs wrapped at 100 columns; headings and tables stay."""
    blocks = text.rstrip("\n").split("\n\n")
    return "\n\n".join(each if each.startswith(("#", "|")) else _wrap(each) for each in blocks) + "\n"


def _wrap(paragraph: str) -> str:
    return textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)


def _table(kind: type, prefix: str) -> list[str]:
    rows = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for each in dataclasses.fields(kind):
        flag, variable = f"--{each.name.replace('_', '-')}", f"{prefix}_{each.name.upper()}"
        choices = ", ".join(f"`{choice}`" for choice in each.metadata["choices"])
        meaning = each.metadata["doc"] + (f" ({choices})" if choices else "")
        rows.append(f"| `{flag}` | `{variable}` | `{each.default}` | {meaning} |".replace("``", ""))
    return rows


def _with_values(table: list[str]) -> list[str]:
    """*table* with the chart's value of each variable."""
    values = chartpage.by_variable()
    rows = []
    for row in table[2:]:
        value = values.get(row.split(" | ")[1].strip("`"), "")
        rows.append(f"{row} {f'`{value}`' if value else ''} |")
    return [f"{table[0]} chart value |", f"{table[1]}---|", *rows]


def _agents() -> tuple[list[Metric], dict[Exporter, list[Metric]]]:
    """The metrics of a node with one instance: kavip's own, and keepalived's with the names of each exporter."""
    one = (Entry(Data("ns/name", vrid=1, state=2, vips=["192.0.2.1 dev eth0"], evips=["192.0.2.2 dev eth0"])),)
    found: dict[Exporter, list[Metric]] = {}
    for style in Exporter:
        text = exposition(
            AgentStatus(node="n1", checks=(CheckStatus(Check("web", "kubelet")),)), one, style=style
        ).decode()
        found[style] = sorted(text_string_to_metric_families(text), key=lambda each: each.name)
    own = [each for each in found[Exporter.GEN2BRAIN] if each.name.startswith(names.METRIC_PREFIX)]
    return own, {style: [each for each in found[style] if each not in own] for style in Exporter}


def _labels_of_samples(family: Metric) -> tuple[str, ...]:
    """The labels of a metric with a sample."""
    return tuple(family.samples[0].labels)


def _rows(families: Iterable[Metric], *, labels: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """The rows of a table as one paragraph; *labels*: those of each metric, if the table is to have them."""
    rows = []
    for each in families:
        cells = [f"`{_sample(each.name, each.type)}`", each.type]
        cells += [", ".join(f"`{name}`" for name in labels[each.name])] if labels is not None else []
        rows.append(f"| {' | '.join([*cells, each.documentation])} |")
    head = ["metric", "type", *(["labels"] if labels is not None else []), "meaning"]
    return ["\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])]


def _sample(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
