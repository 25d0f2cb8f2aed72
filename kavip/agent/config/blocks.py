"""
Splits a configuration into blocks: one for each ``vrrp_instance``, and one for the lines between two of them.

An instance's block begins with an unindented ``vrrp_instance NAME {``. It ends with an unindented ``}``, or before the
next unindented line that opens a block. Users cannot write an unindented line, so a fault inside a block belongs to its
instance.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OPEN: Final = re.compile(r"([a-z0-9_]+)(?: ([A-Za-z0-9][A-Za-z0-9_.:/-]*))? \{")
INSTANCE: Final = "vrrp_instance"


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines: *name* is the instance's, "" outside instances; *first* is the number of the first line."""

    name: str
    first: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines as they stand in a file."""
        return "\n".join(self.lines)


def split(text: str) -> tuple[Block, ...]:
    """All lines of *text* in blocks, in their order."""
    found: list[Block] = []
    name, lines, first = "", list[str](), 1

    def close() -> None:
        if lines:
            found.append(Block(name, first, tuple(lines)))

    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith(" ") and (match := OPEN.fullmatch(line)):
            if name or match[1] == INSTANCE:
                close()
                lines, first = [], number
            name = match[2] or "" if match[1] == INSTANCE else ""
        lines.append(line)
        if name and line == "}":
            close()
            name, lines, first = "", [], number + 1
    close()
    return tuple(found)


def joined(blocks: Iterable[Block]) -> str:
    """The text of *blocks*."""
    return "\n".join(block.text for block in blocks)


def block_at(blocks: Iterable[Block], number: int) -> Block | None:
    """The block that holds line *number*; None if there is no such line."""
    return next((each for each in blocks if each.first <= number < each.first + len(each.lines)), None)
