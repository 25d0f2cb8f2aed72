"""
A value of a wrong type in an object, as users wrote it: its field with all keys, the value, and what would be right.

msgspec names neither the value nor the key of a map. Both are found again by the path and the type that it reports.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kavip.api.text import one_line
from kavip.api.yamldocuments import Document, keys_of

Keys = tuple[str | int, ...]

_MISTYPED: Final = re.compile(r"Expected `([\w |]+)`, got `(\w+)`")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_ANY_KEY: Final = "..."
_TYPES: Final[dict[str, type]] = {
    "array": list,
    "bool": bool,
    "float": float,
    "int": int,
    "null": type(None),
    "object": dict,
    "str": str,
}
"""By the names that msgspec has for them."""
_WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "a string",
}
_MOST: Final = 100  # characters of a key or a value
_MOST_BITS: Final = 256  # of a number that is shown: Python converts no number with more than 4,300 digits


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """What is wrong, in one *message* with field and value, and the *keys* that lead there."""

    keys: Keys
    message: str


def type_problem(error: msgspec.ValidationError, content: Any, document: Document, path: str) -> TypeProblem:
    """The problem in *content*, which is at *path* in *document*."""
    text, _, field = str(error).removesuffix("`").partition(" - at `$")
    steps = keys_of(field)
    if (match := _MISTYPED.fullmatch(text)) is None:
        missing = _MISSING.fullmatch(text)
        where, what = (f"{field}.{missing[1]}", "required, but missing") if missing else (field, text)
        return TypeProblem(tuple(steps), f"{where.lstrip('.')}: {what}" if where else what)
    wanted, found = set(match[1].split(" | ")) - {"null"}, _TYPES.get(match[2])
    if found is None:  # what YAML has besides JSON, such as a date
        return TypeProblem(tuple(steps), f"{field.lstrip('.')}: {text}" if field else text)
    places = (place for place in _places(content, steps) if type(place[1]) is found)
    keys, value = next(places, ((), content))
    parts = (
        f"[{short(str(key))}]" if isinstance(key, int) or step == _ANY_KEY else f".{key}"
        for step, key in zip(steps, keys, strict=False)
    )
    shown = "".join(parts).lstrip(".")
    words = " or ".join(sorted(_WORDS.get(each, each) for each in wanted))
    written = document.scalar(path, keys) or _json(value)
    message = f"{short(_json(value))}: want {words}{_remedy(wanted, value, written)}"
    return TypeProblem(keys, f"{shown}: {message}" if shown else message)


def short(text: str) -> str:
    """The first characters of *text* as one printable line."""
    return one_line(text if len(text) <= _MOST else f"{text[:_MOST]}...")


def _places(content: Any, steps: list[str]) -> Iterator[tuple[Keys, Any]]:
    """The parts of *content* to which *steps* may lead, each with its keys: ``...`` stands for any key of a map."""
    if not steps:
        yield (), content
        return
    step, *rest = steps
    parts: Any = ()
    if isinstance(content, list):
        parts = [(int(step), content[int(step)])]
    elif isinstance(content, dict):
        parts = content.items() if step == _ANY_KEY else [(step, content.get(step))]
    for key, part in parts:
        yield from (((key, *keys), value) for keys, value in _places(part, rest))


def _json(value: Any) -> str:
    """*value* as users write it; of what may be large only the type."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number with many digits"
    return json.dumps(value, ensure_ascii=False)


def _remedy(wanted: set[str], value: Any, written: str) -> str:
    """How to write as *wanted* the *value* that is *written* so."""
    if wanted == {"str"} and value is None:
        return '; for an empty one write ""'
    if wanted == {"str"} and isinstance(value, bool | int | float):
        return f"; quote it: {json.dumps(short(written))}"
    is_plain = isinstance(value, str) and (
        (wanted == {"bool"} and value in ("true", "false"))
        or (wanted == {"int"} and re.fullmatch("0|[1-9][0-9]{0,18}", value))
    )
    return f"; write it without quotes: {value}" if is_plain else ""
