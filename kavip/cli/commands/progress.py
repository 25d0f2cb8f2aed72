"""
How far a command is that takes long: one line on standard error, replaced again and again, on a terminal only.

click's progress bar has no place for the lines that a command prints meanwhile.
"""

import os
import shutil
import sys
from types import TracebackType
from typing import Final, Self

import click

from kavip.api.text import one_line
from kavip.cli.printing import echo

_CLEAR: Final = "\r\x1b[K"


class Progress:
    """
    The line; it is gone when the block ends.

    Print by :meth:`echo` in the block, so that lines of both kinds do not mix.
    """

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show("")

    def show(self, text: str) -> None:
        """Replace the line by *text*, as much of it as fits; "" removes the line."""
        if self._is_shown and text != self._text:
            width = shutil.get_terminal_size().columns - 1  # a full line would wrap, and could not be replaced
            click.echo(f"{_CLEAR}{one_line(text)[:width]}", err=True, nl=False)
        self._text = text

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print *line* above the line."""
        text = self._text
        self.show("")
        echo(line, err=err)
        self.show(text)
