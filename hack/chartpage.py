"""The page of the chart's values, from ``values.schema.json`` and ``values.yaml``."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[1] / "charts" / "kavip"
_VARIABLE: Final = re.compile(r"(?<![`\w])(KAVIP_[A-Z_]+)")
_RESERVED: Final = "global"
_INTRODUCTION: Final = (
    "`helm show values charts/kavip` prints the defaults as YAML. The chart refuses values that do not exist, and "
    "values of a wrong type. A variable at the end of a meaning is the [setting](settings.md) that the value sets."
)


def page() -> str:
    """A table for each value with parts, and one for the others."""
    schema, defaults = _schema(), yaml.safe_load((CHART / "values.yaml").read_text())
    properties = {name: each for name, each in schema["properties"].items() if name != _RESERVED}
    plain = {name: each for name, each in properties.items() if "properties" not in each}
    sections = [
        "# Values of the chart",
        _INTRODUCTION,
        "## Values without parts",
        _table(plain, defaults, ""),
    ]
    for name, each in properties.items():
        if name not in plain:
            sections += [f"## {name}", _meaning(each), _table(each["properties"], defaults[name], f"{name}.")]
    return "\n\n".join(sections) + "\n"


def by_variable() -> Mapping[str, str]:
    """The value that sets each environment variable of kavip's pods."""
    return {variable: path for path, each in _walk(_schema()["properties"]) for variable in _variables(each)}


def _schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


def _walk(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All values with their paths, those with parts before their parts."""
    for name, each in properties.items():
        yield f"{prefix}{name}", each
        yield from _walk(each.get("properties", {}), f"{prefix}{name}.")


def _variables(schema: Mapping[str, Any]) -> list[str]:
    return _VARIABLE.findall(schema["description"])


def _table(properties: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str) -> str:
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, each in _walk(properties):
        if "properties" in each:
            continue
        default: Any = defaults
        for word in path.split("."):
            default = default[word]
        choices = ", ".join(f"`{json.dumps(choice).strip(chr(34))}`" for choice in each.get("enum", ()))
        meaning = _meaning(each) + (f" ({choices})" if choices else "")
        rows.append(f"| `{prefix}{path}` | {f'`{_shown(default)}`' if default != '' else ''} | {meaning} |")
    return "\n".join(rows)


def _shown(default: object) -> str:
    return default if isinstance(default, str) else json.dumps(default)


def _meaning(schema: Mapping[str, Any]) -> str:
    return _VARIABLE.sub(r"`\1`", schema["description"])
