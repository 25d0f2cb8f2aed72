"""Rules of Prometheus with shorter times, so that a test sees alerts begin and end within seconds."""

import re
from collections.abc import Mapping
from typing import Any

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(\d+)([smh])")
_RANGE = re.compile(r"\[(\d+)([smh])(?=:?\])")


def scaled(rules: Mapping[str, Any], *, by: int, least: int) -> dict[str, Any]:
    """*rules* with each ``for`` and each range of a query divided *by*; none is below *least* seconds."""

    def shorter(found: re.Match[str]) -> str:
        return f"{max(least, int(found[1]) * _SECONDS[found[2]] // by)}s"

    def scale(rule: Mapping[str, Any]) -> dict[str, Any]:
        lasts = {"for": _DURATION.sub(shorter, rule["for"])} if "for" in rule else {}
        return {**rule, "expr": _RANGE.sub(lambda found: f"[{shorter(found)}", rule["expr"]), **lasts}

    groups = [{**group, "rules": [scale(rule) for rule in group["rules"]]} for group in rules["groups"]]
    return {**rules, "groups": groups}
