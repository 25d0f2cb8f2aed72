"""
The style of the documentation, in ``make lint``: ``python -m hack.prose``.

Prose linters that need no download of a program at run time judge typography and clichés; this is a table of what
makes technical text longer or less certain, and a limit for the length of sentences.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LONGEST: Final = 40
"""Words of a sentence, at most."""
INSTEAD: Final = {
    r"in order to": "to",
    r"due to the fact that|owing to the fact": "because",
    r"prior to": "before",
    r"subsequent(?:ly)? to|subsequently": "after",
    r"in the event (?:of|that)|in case of": "if",
    r"(?:is|are|be) able to|ha(?:s|ve) the ability to": "can",
    r"make use of|utili[sz](?:e|es|ed|ing)|leverag(?:e|es|ed|ing)": "use",
    r"a (?:large )?number of|a variety of|a multitude of": "many, or the number",
    r"as well as": "and",
    r"and/or": "and, or or",
    r"with (?:regard|respect) to|in terms of": "about, for",
    r"(?:it should be noted|it is (?:important|worth) (?:to note|noting)|(?:please )?note) that": "the statement alone",
    r"please|kindly": "the imperative alone",
    r"simply|just|easily|obviously|of course|clearly|basically|actually|really|quite|very": "nothing",
    r"thus|hence|thereby|whereby|therein|thereof|whilst|aforementioned": "so, by this, in it, while",
    r"seamless(?:ly)?|powerful|cutting-edge|state-of-the-art|blazing(?:ly)?|effortless(?:ly)?": "a measured fact",
    r"e\.g\.|i\.e\.|etc\.|via": "such as, that is, and so on, by",
    r"whoever|whomever": "the user, the program",
    r"can ?not be overemphasi[sz]ed|can not": "cannot",
    r"shall": "must, does",
}
"""What is not to stand in prose, and what to write for it."""
_AVOIDED: Final = re.compile(
    "|".join(f"(?P<a{number}>{words})" for number, words in enumerate(INSTEAD)).join((r"(?<![\w-])(?:", r")(?![\w-])")),
    re.IGNORECASE,
)
_NO_PROSE: Final = re.compile(
    r"^```.*?^```$|^ *\|.*?$|<[^>]*>|`[^`]*`|\]\([^)]*\)|\bhttps?://\S+", re.MULTILINE | re.DOTALL
)
_BREAK: Final = re.compile(r"[.!?:;]\**(?=\s)|\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.) )")


def faults(text: str) -> Iterator[tuple[int, str]]:
    """The line and the description of each fault of the page *text*."""
    prose = _NO_PROSE.sub(_blank, text)
    for found in _AVOIDED.finditer(prose):
        instead = [*INSTEAD.values()][int((found.lastgroup or "a0")[1:])]
        yield _line(prose, found.start()), f'"{found[0]}": write {instead}'
    start = 0
    for end in (*(found.start() for found in _BREAK.finditer(prose)), len(prose)):
        words = prose[start:end].split()
        if len(words) > LONGEST:
            yield _line(prose, prose.index(words[0], start)), f"a sentence of {len(words)} words: part it"
        start = end


def _blank(found: re.Match[str]) -> str:
    """What is no prose: a word that no rule knows, or for code and rows of tables nothing; the lines stay."""
    is_block = found[0].lstrip().startswith(("```", "|"))
    return ("" if is_block else "x") + "\n" * found[0].count("\n")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def main() -> None:
    """Print each fault of the pages; the exit status is 1 if there is one."""
    pages = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    found = [
        f"{page.relative_to(ROOT)}:{line}: {fault}"
        for page in pages
        for line, fault in sorted(faults(page.read_text()))
    ]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
