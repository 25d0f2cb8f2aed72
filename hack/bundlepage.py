"""The page of the fields that a support bundle may hold."""

import re
from collections.abc import Iterable
from typing import Final

from kavip.cli.views.bundle.fields import ALLOWED, KNOWN

_LAST: Final = re.compile(r"(?:(.*)\.)?([^.\[\]]+(?:\[[^\]]*\]|\{\w*\})?)")
_INTRODUCTION: Final = """\
# Fields in a support bundle

[`kavip collect`](../howto/collect.md) writes these fields of objects, and no others. Text in them is searched for
secrets.

`[]` are the elements of a list, `{}` the entries of a map, `{keys}` its keys without the values, `{selected}` the
labels by which groups, pools and Services select, and `[key]` the entry with this key. `[known]` are the elements
that are one of: %s.
"""


def page() -> str:
    """The page as Markdown, not wrapped yet."""
    parts = [_INTRODUCTION % ", ".join(f"`{each}`" for each in sorted(KNOWN))]
    for kind, paths in ALLOWED.items():
        rows = [f"| `{parent}` | {fields} |" for parent, fields in _by_parent(paths)]
        parts.append(
            "\n".join([f"## {kind}", "", "| in | fields |", "|---|---|", *rows]).replace("| `` |", "| |") + "\n"
        )
    return "\n".join(parts)


def _by_parent(paths: Iterable[str]) -> list[tuple[str, str]]:
    """The parents of *paths*, each with the last parts of its paths."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        match = _LAST.fullmatch(path)
        assert match is not None
        found.setdefault(match[1] or "", []).append(f"`{match[2]}`")
    return [(parent, ", ".join(fields)) for parent, fields in sorted(found.items())]
