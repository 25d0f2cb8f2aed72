"""
A value as keepalived's own parser reads it, and what in a value keepalived would take for something else.

keepalived cuts a line after 1,023 bytes and reads the rest as another line. In each it drops comments, picks
conditions, replaces definitions, repeats, includes; then it splits at braces, wherever they stand, and at white space.
Each of these steps is a way out of the one line that a user may fill, so a value that takes part in any is not read.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_LINE: Final = 512
"""Bytes in any line that kavip writes and its agents take: half of where keepalived cuts."""

_ODD: Final = re.compile(r"[^\x20-\x7e]|[#!$@~\\']")
_BLOCK: Final = re.compile(r"\{([^{}]*)\}")
_MEANINGS: Final = {
    "!": "begins a comment in keepalived",
    "#": "begins a comment in keepalived",
    "$": "begins a macro in keepalived",
    "'": "does not quote in keepalived",
    "@": "makes a condition in keepalived",
    "\\": "is an escape in keepalived",
    "~": "repeats lines in keepalived",
}
_LINE_BREAKS: Final = "\n\r"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The words of a value; *braced* says that one pair of braces holds them, *quoted* one pair of quotes."""

    words: tuple[str, ...] = ()
    braced: bool = False
    quoted: bool = False

    @property
    def plain(self) -> str | None:
        """The one word that this is, "" for none; None where it is several, or in braces or quotes."""
        if self.braced or self.quoted or len(self.words) > 1:
            return None
        return self.words[0] if self.words else ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What keepalived would make of a value, instead of a value."""

    reason: str


def tokens(text: str) -> Tokens | Fault:
    """The words of the value *text*, which is to stand behind a keyword."""
    if len(text) > MAX_LINE:
        return Fault(f"longer than {MAX_LINE} characters")
    if match := _ODD.search(text):
        return Fault(_meaning(match[0]))
    text = text.strip(" ")
    if '"' in text:
        return _quoted(text)
    if "{" in text or "}" in text:
        return _braced(text)
    return Tokens(tuple(text.split()))


def _quoted(text: str) -> Tokens | Fault:
    if text.count('"') % 2:
        return Fault("a quote is not closed")
    inner = text[1:-1]
    if text[0] != '"' or text[-1] != '"' or '"' in inner:
        return Fault("a quote begins a new word in keepalived, wherever it stands")
    if "{" in inner or "}" in inner:
        return Fault("a brace stands inside quotes")
    return Tokens(tuple(inner.split()), quoted=True)


def _braced(text: str) -> Tokens | Fault:
    inner = _BLOCK.fullmatch(text)
    if inner is None:
        return Fault("a brace begins or ends a block in keepalived, wherever it stands")
    words = tuple(inner[1].split())
    if words and words[0].startswith("include"):
        return Fault("keepalived would read another file")
    return Tokens(words, braced=True)


def _meaning(letter: str) -> str:
    if meaning := _MEANINGS.get(letter):
        return f"{letter} {meaning}"
    if letter in _LINE_BREAKS:
        return "a line break begins another line in keepalived"
    kind = "not ASCII" if not letter.isascii() else "a control character"
    return f"U+{ord(letter):04X} is {kind}"
