"""Inputs that were tried on keepalived 2.2.7, and the three lists that have them."""

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "cases"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads((FOLDER / "keepalived_inputs.json").read_text())
}
TEXT = (FOLDER / "inputs.yaml").read_text()
LISTS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)
