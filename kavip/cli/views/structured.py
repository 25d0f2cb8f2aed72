"""
JSON and YAML for programs.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml


def structured(value: Mapping[str, Any], form: str) -> str:
    """*value* in the *form* json or yaml, with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True)
    if form == "json":
        return text
    return yaml.safe_dump(json.loads(text), sort_keys=True, allow_unicode=True, width=200).rstrip("\n")
