"""Boxes and what passes between them.

The text has a title, a size, and a line for each part: ``box NAME X Y WIDTH HEIGHT: text``, the same with ``own`` for a
part of kavip and with ``frame`` for what surrounds others, and ``A -> B at X: text`` or ``A <-> B at X: text`` for a
vertical arrow at X. Without ``at`` the arrow is horizontal.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from hack.pictures import svg

_BOX: Final = re.compile(r"(?P<kind>box|own|frame) (?P<name>\w+) (?P<place>\d+ \d+ \d+ \d+): (?P<text>.+)")
_ARROW: Final = re.compile(r"(?P<source>\w+) (?P<both><?)-> (?P<target>\w+)(?: at (?P<x>\d+))?: (?P<text>.+)")
_LABEL: Final = 122


class _Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def draw(text: str) -> str:
    """The picture of *text*."""
    title, size, *lines = [each for each in text.splitlines() if each.strip()]
    width, height = map(int, size.removeprefix("size: ").split())
    boxes: dict[str, _Box] = {}
    parts: list[str] = []
    for each in lines:
        if found := _BOX.fullmatch(each):
            boxes[found["name"]] = place = _Box(*map(float, found["place"].split()))
            parts += _box(place, found["kind"], found["text"])
        elif found := _ARROW.fullmatch(each):
            kind = "arrow both" if found["both"] else "arrow"
            x = float(found["x"]) if found["x"] else None
            parts += _arrow(boxes[found["source"]], boxes[found["target"]], x=x, kind=kind, text=found["text"])
        else:
            raise ValueError(f"{each!r} is neither a box nor an arrow")
    return svg.picture(width, height, title=title.removeprefix("title: "), parts=parts)


def _box(place: _Box, kind: str, text: str) -> Iterator[str]:
    yield svg.box(*place, kind=kind)
    if kind == "frame":
        yield from svg.block([text], place.x + 10, place.y + 4, kind="soft start")
        return
    first, *others = (svg.wrap(part, place.width - 10) for part in text.split("|"))
    lines = [each for part in others for each in part]
    top = place.y + (place.height - svg.LINE * (len(first) + len(lines))) / 2
    middle = place.x + place.width / 2
    yield from svg.block(first, middle, top, kind="strong")
    yield from svg.block(lines, middle, top + svg.LINE * len(first))


def _arrow(source: _Box, target: _Box, *, x: float | None, kind: str, text: str) -> Iterator[str]:
    if x is None:
        y = source.y + source.height / 2
        is_right = target.x > source.x
        start = source.x + source.width if is_right else source.x
        end = target.x if is_right else target.x + target.width
        lines = svg.wrap(text, abs(end - start) - 8)
        yield svg.line((start, y), (end, y), kind=kind)
        yield from svg.block(lines, (start + end) / 2, y - svg.LINE * len(lines) - 4, kind="soft")
    else:
        is_down = target.y > source.y
        start = source.y + source.height if is_down else source.y
        end = target.y if is_down else target.y + target.height
        lines = svg.wrap(text, _LABEL)
        yield svg.line((x, start), (x, end), kind=kind)
        yield from svg.backed(lines, x, (start + end - svg.LINE * len(lines)) / 2)
