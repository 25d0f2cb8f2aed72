"""
JSON and YAML for programs.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from kavip.api import yamlscalars
from kavip.api.text import printable


class _Dumper(yaml.SafeDumper):
    """
    A text with a character that is not printable, such as a bidirectional control, is escaped; others stay.

    What Kubernetes or PyYAML would not read as text is quoted.
    """

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        usual = str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]  # it has no types
        return yamlscalars.tag_of(value or "") if usual == yamlscalars.STR and implicit[0] else usual

    def analyze_scalar(self, scalar: str) -> Any:
        self.allow_unicode = all(printable(line) == line for line in scalar.split("\n"))
        return super().analyze_scalar(scalar)


def structured(value: Mapping[str, Any], form: str) -> str:
    """*value* in the *form* json or yaml, with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True)
    if form == "json":
        return text
    return str(yaml.dump(json.loads(text), Dumper=_Dumper, sort_keys=True, width=200)).rstrip("\n")
