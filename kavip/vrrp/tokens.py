"""
A value as keepalived's own parser reads it, and the parts of a value that keepalived would read as something else.

keepalived cuts a line after 1,023 bytes and reads the rest as another line. In each line it removes comments,
evaluates conditions, replaces definitions, repeats and includes; then it splits at braces, at any place, and at white
space. Each of these steps could break out of the one line that a user may fill, so a value that would trigger any of
them is refused.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_LINE: Final = 512
"""Most bytes of a line that kavip writes and its agents accept: half of keepalived's limit."""

WORD: Final = r"[A-Za-z0-9_.:/+=,-]{1,256}"
"""A value in a text of kavip, as a regular expression: one plain word."""

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
    """The words of a value; *braced*: in one pair of braces, *quoted*: in one pair of quotes."""

    words: tuple[str, ...] = ()
    braced: bool = False
    quoted: bool = False

    @property
    def plain(self) -> str | None:
        """The only word, "" for none; None for several words, or words in braces or quotes."""
        if self.braced or self.quoted or len(self.words) > 1:
            return None
        return self.words[0] if self.words else ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that keepalived would not read as one value, and the *reason*."""

    reason: str


def tokens(text: str) -> Tokens | Unreadable:
    """The words of the value *text*, as keepalived reads them behind a keyword."""
    if len(text) > MAX_LINE:
        return Unreadable(f"longer than {MAX_LINE} characters")
    if match := _ODD.search(text):
        return Unreadable(_meaning(match[0]))
    text = text.strip(" ")
    if '"' in text:
        return _quoted(text)
    if "{" in text or "}" in text:
        return _braced(text)
    return Tokens(tuple(text.split()))


def _quoted(text: str) -> Tokens | Unreadable:
    if text.count('"') % 2:
        return Unreadable("a quote is not closed")
    inner = text[1:-1]
    if text[0] != '"' or text[-1] != '"' or '"' in inner:
        return Unreadable("a quote begins a new word in keepalived, wherever it stands")
    if "{" in inner or "}" in inner:
        return Unreadable("a brace stands inside quotes")
    return Tokens(tuple(inner.split()), quoted=True)


def _braced(text: str) -> Tokens | Unreadable:
    inner = _BLOCK.fullmatch(text)
    if inner is None:
        return Unreadable("a brace begins or ends a block in keepalived, wherever it stands")
    words = tuple(inner[1].split())
    if words and words[0].startswith("include"):
        return Unreadable("keepalived would read another file")
    return Tokens(words, braced=True)


def _meaning(letter: str) -> str:
    if meaning := _MEANINGS.get(letter):
        return f"{letter} {meaning}"
    if letter in _LINE_BREAKS:
        return "a line break begins another line in keepalived"
    kind = "not ASCII" if not letter.isascii() else "a control character"
    return f"U+{ord(letter):04X} is {kind}"
