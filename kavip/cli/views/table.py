"""
Tables of text.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kavip.api.text import one_line

_GAP: Final = "  "
_NARROWEST: Final = 20
"""Columns: where less is left for the last cell, the terminal wraps it."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, columns: int = 0) -> list[str]:
    """
    *rows* under *head*, aligned, each as one text. No cell can break out of its column.

    The last column is free; on a terminal with *columns* (0: none) it is wrapped, so that a row may have several lines.
    """
    everything = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    left = columns - sum(width + len(_GAP) for width in widths)
    below = "\n" + " " * (columns - left)
    texts = []
    for row in everything:
        wraps = _NARROWEST <= left < len(row[-1])
        last = below.join(textwrap.wrap(row[-1], left, break_on_hyphens=False)) if wraps else row[-1]
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        texts.append(_GAP.join([*cells, last]).rstrip())
    return texts


def marked(rows: Sequence[str], problems: Iterable[bool], style: Callable[[str], str]) -> list[str]:
    """*rows* of a table, the first of which is its head, with *style* for each that is one of *problems*."""
    found = zip(rows[1:], problems, strict=True)
    return [*rows[:1], *(style(row) if is_problem else row for row, is_problem in found)]
