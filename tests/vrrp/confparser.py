"""
A parser of keepalived.conf that shares no code with kavip: it works as the daemon does.

Lines end at line feeds; ``#`` and ``!`` begin comments; braces count at any place outside quotes, and the text after a
brace is read as a line of its own.
"""

import re
from dataclasses import dataclass, field

CUT = 1023
_TOKEN = re.compile(r'"[^"]*"|[{}]|[#!].*|[^\s{}"#!]+|"')
_MACRO = re.compile(r"[$~\\]|^\s*@\^?\S+\s*$")


@dataclass
class Statement:
    """The words of one statement, and the statements in its braces."""

    words: tuple[str, ...]
    body: list["Statement"] = field(default_factory=list)


def read(text: str) -> list[Statement]:
    """The top-level statements of *text*; fails if the daemon would parse it differently."""
    root: list[Statement] = []
    open_blocks = [root]
    for line in text.split("\n"):
        assert len(line.encode()) <= CUT, f"a line that keepalived splits: {line[:40]!r}..."
        assert not _MACRO.search(line), f"a macro: {line!r}"
        words: list[str] = []
        for token in _TOKEN.findall(line):
            assert token != '"', f"an open quote: {line!r}"
            if token[0] in "#!":
                break
            if token == "{":
                open_blocks[-1].append(Statement(tuple(words)))
                open_blocks.append(open_blocks[-1][-1].body)
                words = []
            elif token == "}":
                _end(words, open_blocks[-1])
                open_blocks.pop()
                assert open_blocks, f"closes what is not open: {line!r}"
            else:
                words.append(token)
        _end(words, open_blocks[-1])
    assert len(open_blocks) == 1, "a block is never closed"
    return root


def _end(words: list[str], block: list[Statement]) -> None:
    """End a statement that has no block."""
    if words:
        assert not words[0].startswith("include"), words
        block.append(Statement(tuple(words)))
        words.clear()


def named(statements: list[Statement]) -> dict[tuple[str, ...], list[Statement]]:
    """The top-level blocks by their words; fails if a block occurs twice."""
    found = {each.words: each.body for each in statements}
    assert len(found) == len(statements), "a block occurs twice"
    return found
