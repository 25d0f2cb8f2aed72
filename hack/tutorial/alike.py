"""Whether a command has printed what a page shows, apart from what differs in each run."""

import re
from typing import Final

_REST: Final = "..."
_RANDOM: Final = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME"),
    (r"(?m)^LAST DEPLOYED: .*", "LAST DEPLOYED: TIME"),
    (r"(?<![\w.-])(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(?<=[dhms])(?![\w-])", "AGE"),
    (r"\b([a-z]+)-[a-f0-9]{8,10}-[a-z0-9]{5}\b", r"\1-POD"),
    (r"\b10\.96\.\d+\.\d+\b", "CLUSTER-IP"),
    (r"\b(\d+):3[0-2]\d{3}/", r"\1:NODE-PORT/"),
    (r"\bv\d+\.\d+\.\d+\b", "VERSION"),
    (r"[ \t]+", " "),  # the width of a column depends on its cells
)


def is_alike(page: str, printed: str) -> bool:
    """
    Whether *printed* is what *page* shows, apart from ages, times, random names and ports, and the width of columns.

    A line ``...`` of the page stands for any number of lines.
    """
    lines = (_anything(line) for line in _plain(page).splitlines())
    return re.fullmatch("".join(lines), _plain(printed)) is not None


def _anything(line: str) -> str:
    return r"(?:.*\n)*?" if line.strip() == _REST else f"{re.escape(line)}\n"


def _plain(text: str) -> str:
    for pattern, name in _RANDOM:
        text = re.sub(pattern, name, text)
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return f"{lines}\n" if lines else ""
