"""
Text from users, nodes and other programs as one printable line: it reaches terminals by messages, Events and logs.

Control characters could erase what a terminal shows, and bidirectional controls could reorder it.
"""

from typing import Final

ELLIPSIS: Final = "..."
"""Stands for what is left out of a text."""


def one_line(text: str) -> str:
    """*text* as one line of printable characters; the others are escaped."""
    if text.isprintable() and "  " not in text and text == text.strip():  # the only printable blank is " "
        return text
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """*line* with unprintable characters escaped; blanks and tabs stay."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else ascii(letter)[1:-1] for letter in line)


def clipped_line(text: str, most: int) -> str:
    """*text* as one line of printable characters, at most *most* of them."""
    if len(text) <= most and text.isprintable():
        return text
    line = one_line(text[: most + 1])
    return line if len(line) <= most else f"{line[: most - len(ELLIPSIS)]}{ELLIPSIS}"
