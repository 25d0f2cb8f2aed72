"""
Tables of text.
"""

from collections.abc import Callable, Iterable, Sequence

from kavip.api.text import one_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of *rows* under *head*, aligned; the last column is free. No cell can break out of its column."""
    everything = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
    ]


def marked(lines: Sequence[str], problems: Iterable[bool], style: Callable[[str], str]) -> list[str]:
    """*lines* of a table with *style* for each row that is one of *problems*."""
    rows = zip(lines[1:], problems, strict=True)
    return [*lines[:1], *(style(line) if is_problem else line for line, is_problem in rows)]
