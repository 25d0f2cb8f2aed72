"""The examples of docs/howto/templates.md."""

import re
from typing import Any

import yaml

from tests.support import manifests

PAGE = manifests.ROOT / "docs" / "howto" / "templates.md"
_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def objects() -> list[dict[str, Any]]:
    """The objects of all examples."""
    return [each for block in _BLOCK.findall(PAGE.read_text()) for each in yaml.safe_load_all(block)]


def groups() -> dict[str, dict[str, Any]]:
    """The groups of the examples, by name."""
    found = [each for each in objects() if each["kind"] == "KeepalivedGroup"]
    return {each["metadata"]["name"]: each for each in found}


def file() -> str:
    """The file of the example with one template for all groups."""
    (found,) = [each for each in objects() if each["kind"] == "ConfigMap"]
    text: str = found["data"]["keepalived-template.yaml"]
    return text
