"""Sequences: who sends what to whom, from top to bottom.

The text has a title, the lanes from left to right, and a line for each step: ``a -> b: text`` is an arrow, ``a: text``
is work of one lane, ``== text`` begins a part. A lane with a star is a part of kavip.
"""

import re
from collections.abc import Iterator
from typing import Final

from hack.pictures import svg

_STEP: Final = re.compile(r"(?:(?P<source>[^:]+?) -> )?(?P<target>[^:]+?): (?P<text>.+)")
_WIDTH: Final = 800
_HEAD: Final = 42
_GAP: Final = 12


def draw(text: str) -> str:
    """The picture of *text*."""
    title, names, *steps = [each for each in text.splitlines() if each.strip()]
    lanes = [each.strip() for each in names.removeprefix("lanes: ").split(" | ")]
    room = _WIDTH / len(lanes)
    places = {name.removesuffix("*"): room * (index + 0.5) for index, name in enumerate(lanes)}
    parts: list[str] = []
    top: float = _HEAD + 2 * _GAP
    for step in steps:
        drawn, height = _step(step, places, top)
        parts += drawn
        top += height + _GAP
    heads = [each for name in lanes for each in _lane(name, places[name.removesuffix("*")], room=room, bottom=top)]
    return svg.picture(_WIDTH, top + _GAP, title=title.removeprefix("title: "), parts=[*heads, *parts])


def _lane(name: str, x: float, *, room: float, bottom: float) -> Iterator[str]:
    yield svg.line((x, _HEAD + _GAP), (x, bottom), kind="life")
    width = room - _GAP
    yield svg.box(x - width / 2, _GAP, width, _HEAD, kind="own" if name.endswith("*") else "box")
    lines = svg.wrap(name.removesuffix("*"), width)
    yield from svg.block(lines, x, _GAP + (_HEAD - svg.LINE * len(lines)) / 2, kind="strong")


def _step(step: str, places: dict[str, float], top: float) -> tuple[list[str], float]:
    """The parts of a step that begins at *top*, and its height."""
    if step.startswith("== "):
        lines = svg.wrap(step.removeprefix("== "), _WIDTH - 4 * _GAP)
        height = svg.LINE * len(lines) + _GAP
        band = svg.box(_GAP / 2, top, _WIDTH - _GAP, height, kind="band")
        return [band, *svg.block(lines, _WIDTH / 2, top + _GAP / 2, kind="strong")], height
    found = _STEP.fullmatch(step)
    if not found:
        raise ValueError(f"{step!r} is no step; want a -> b: text, a: text, or == text")
    x, room = places[found["target"]], _WIDTH / len(places)
    if not found["source"]:
        width = 1.6 * room
        middle = min(max(x, width / 2 + _GAP), _WIDTH - width / 2 - _GAP)
        lines = svg.wrap(found["text"], width - _GAP)
        height = svg.LINE * len(lines) + _GAP
        box = svg.box(middle - width / 2, top, width, height, kind="box")
        return [box, *svg.block(lines, middle, top + _GAP / 2)], height
    start = places[found["source"]]
    lines = svg.wrap(found["text"], max(abs(x - start), room) - _GAP)
    under = top + svg.LINE * len(lines) + 5
    label = svg.backed(lines, (start + x) / 2, top, kind="")
    return [*label, svg.line((start, under), (x, under), kind="arrow")], under - top + 4
