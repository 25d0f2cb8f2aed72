"""
Tables of text.
"""

from collections.abc import Iterable, Sequence

from kavip.api.text import one_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of *rows* under *head*, aligned; the last column is free. No cell can break out of its column."""
    everything = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
    ]
