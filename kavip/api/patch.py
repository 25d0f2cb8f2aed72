"""
JSON Patch (RFC 6902): the difference of two documents as add, remove and replace.

:func:`diff` gives the smallest patch in terms of object members: it descends into objects, and replaces a list as a
whole, because the index of an element means nothing to a second mutator. A patch of equal documents is empty.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from kavip.errors import BadInput

Pointer = tuple[str, ...]


class Action(StrEnum):
    """What an operation does."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class Step(msgspec.Struct, frozen=True):
    """One operation; *value* is unset for a removal, and may well be null otherwise."""

    op: Action
    path: str
    value: Any = msgspec.UNSET


def diff(before: Any, after: Any) -> tuple[Step, ...]:
    """Give the patch that makes *after* of *before*: sorted by member name, parents before children."""
    return tuple(_steps(before, after, ()))


def encode(patch: tuple[Step, ...]) -> bytes:
    """*patch* as ``application/json-patch+json``."""
    return msgspec.json.encode(patch)


def pointer(path: Pointer) -> str:
    """*path* as an RFC 6901 pointer: ``~`` and ``/`` inside a member's name are escaped."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def put(document: dict[str, Any], path: Pointer, value: Any) -> dict[str, Any]:
    """
    *document* with *value* at *path*, objects on the way made if absent or null; *document* itself stays.

    ``UNSET`` takes away what is there.

    Raises :class:`BadInput` if something other than an object stands on the way.
    """
    head, *rest = path
    if not rest:
        after = {**document, head: value}
        return {name: each for name, each in after.items() if each is not msgspec.UNSET}
    below = document.get(head)
    if below is not None and not isinstance(below, dict):
        raise BadInput(head, type(below).__name__, "want an object")
    return {**document, head: put(below or {}, tuple(rest), value)}


def _steps(before: Any, after: Any, path: Pointer) -> Iterator[Step]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if not _same(before, after):
            yield Step(Action.REPLACE, pointer(path), after)
        return
    for name in sorted(before.keys() | after.keys()):
        here = (*path, name)
        if name not in after:
            yield Step(Action.REMOVE, pointer(here))
        elif name not in before:
            yield Step(Action.ADD, pointer(here), after[name])
        else:
            yield from _steps(before[name], after[name], here)


def _same(one: Any, other: Any) -> bool:
    """Equality as JSON has it: Python's ``True == 1`` would lose a change."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
