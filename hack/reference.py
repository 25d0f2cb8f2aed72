"""Writes the generated pages of docs/reference from the code (``make reference``); a test compares them."""

import dataclasses
from pathlib import Path
from typing import Final

from prometheus_client import Metric

from hack import refusals, refused
from kavip import names, telemetry
from kavip.agent.run import PREFIX, AgentSettings
from kavip.settings import Settings

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"


def settings() -> str:
    """The page of settings."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Each is a flag and an environment variable; the chart has a value for each of the first table. An unknown",
            "or malformed one is told in one line, and the program exits with status 2.",
            "",
            "## kavip run, webhook, controller",
            "",
            *_table(Settings, names.ENV_PREFIX),
            "",
            "## kavip agent",
            "",
            "Set by the controller in the group's DaemonSet; not for users.",
            "",
            *_table(AgentSettings, PREFIX),
            "",
        ]
    )


def metrics() -> str:
    """The page of kavip's own metrics."""
    rows = [f"| `{_sample(each.name, each.type)}` | {each.type} | {each.documentation} |" for each in _families()]
    return "\n".join(
        ["# Metrics", "", "On `/metrics`, port 8080.", "", "| metric | type | meaning |", "|---|---|---|", *rows, ""]
    )


def pages() -> dict[Path, str]:
    """Each page with its text."""
    return {
        FOLDER / "settings.md": settings(),
        FOLDER / "metrics.md": metrics(),
        FOLDER / "refusals.md": refused.page(refusals.cases()),
    }


def _table(kind: type, prefix: str) -> list[str]:
    rows = ["| flag | variable | default | meaning |", "|---|---|---|---|"]
    for each in dataclasses.fields(kind):
        flag, variable = f"--{each.name.replace('_', '-')}", f"{prefix}_{each.name.upper()}"
        choices = ", ".join(f"`{choice}`" for choice in each.metadata["choices"])
        meaning = each.metadata["doc"] + (f" ({choices})" if choices else "")
        rows.append(f"| `{flag}` | `{variable}` | `{each.default}` | {meaning} |".replace("``", ""))
    return rows


def _families() -> list[Metric]:
    return sorted(telemetry.REGISTRY.collect(), key=lambda each: each.name)


def _sample(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
