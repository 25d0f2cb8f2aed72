"""
The allowed part of an object: what :mod:`~kavip.cli.views.bundle.fields` names, as plain values.

A value of another type than its path says is left out, so a map cannot take the place of text. All text is redacted.
"""

import re
from collections.abc import Collection
from functools import cache
from typing import Any, Final

import msgspec

from kavip.cli.views.bundle.fields import ALLOWED, KNOWN
from kavip.cli.views.bundle.redaction import REMOVED, redacted

MOST: Final = 10_000
"""Elements of a list, and entries of a map, that are kept."""
_TOKEN: Final = re.compile(r"[^.\[\]{}]+|\[[^\]]*\]|\{\w*\}")
_MARKS: Final = frozenset({"[]", "[known]", "{}", "{keys}", "{selected}"})
_Tree = dict[str, "_Tree"]


def allowed_part(kind: str, found: msgspec.Struct, *, labels: Collection[str] = ()) -> dict[str, Any]:
    """What of the object *found* a bundle may hold; of its labels those with the keys *labels*."""
    kept: dict[str, Any] | None = _part(msgspec.to_builtins(found), _tree(kind), frozenset(labels))
    return kept or {}


def _part(value: Any, tree: _Tree, labels: frozenset[str]) -> Any:
    """The part of *value* that *tree* names; None if there is nothing."""
    if not tree:
        return _plain(value)
    mark = next(iter(tree))
    if isinstance(value, list) and mark in ("[]", "[known]"):
        first = value[:MOST]
        if mark == "[known]":
            return [each if isinstance(each, str) and each in KNOWN else REMOVED for each in first]
        return [kept for each in first if (kept := _part(each, tree[mark], labels)) is not None] or None
    if not isinstance(value, dict) or mark in ("[]", "[known]"):
        return None
    if mark not in _MARKS:
        parts = ((key, _part(value[key], below, labels)) for key, below in tree.items() if key in value)
    elif mark == "{keys}":
        parts = ((redacted(key), REMOVED) for key in sorted(value)[:MOST])
    elif mark == "{selected}":
        parts = ((key, _plain(value[key])) for key in sorted(labels & value.keys()))
    else:
        parts = ((redacted(key), _part(value[key], tree[mark], labels)) for key in sorted(value)[:MOST])
    return {key: kept for key, kept in parts if kept is not None} or None


def _plain(value: Any) -> Any:
    """Text, redacted, or a number or boolean; None for anything else."""
    if isinstance(value, str):
        return redacted(value)
    return value if isinstance(value, bool | int | float) else None


@cache
def _tree(kind: str) -> _Tree:
    """The paths of *kind* as a tree."""
    root: _Tree = {}
    for path in ALLOWED[kind]:
        place = root
        for token in _TOKEN.findall(path):
            place = place.setdefault(token if token in _MARKS else token.strip("[]"), {})
    return root
