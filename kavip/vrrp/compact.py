"""
The compact notation of a group's text, for a group whose instances repeat the lines of many nodes.

With 255 instances on 200 nodes 99 % of the text are lines for nodes, and the instances have the same ones, except for
the priorities. In the compact notation a line with ``$`` stands for such lines::

    $priority 175 227 226       the nodes of the priorities above, with these numbers
    $unicast_src_ip             the source addresses above, of the same family
    $unicast_peer               the peers above, of the same family

"Above" are the last such lines that are written in full: usually those of the first instance. Everything else is
written in full, so what :mod:`kavip.vrrp.running` reads of a text is the same in both notations, except for the order
of the nodes in the other instances.

Why a notation, and no compression: people read it with ``kubectl``, a change of one Service changes a few lines, and
what :func:`expand` makes is bounded before it is made. ``$`` begins a macro in keepalived, which kavip never writes and
refuses in what users write, so no line of a text can be mistaken. Agents expand the text before anything else, byte for
byte: hashes, and what keepalived reads, do not depend on the notation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

from kavip.memo import KEEPS_NOTHING, Memory, recent

MARKER: Final = "# kavip: compact; $... stands for the lines that an instance above has\n"
"""The first line of a text in this notation. No other text has a ``$``."""

MOST_EXPANDED: Final = 1 << 25
"""Bytes of the largest text that is expanded: 510 instances on 200 nodes with names of 46 letters have 23 million."""

_PRIORITY, _SOURCE, _PEER = "    $priority", "    $unicast_src_ip", "        $unicast_peer"
_RUNS: Final = (
    r"^(?P<block>vrrp_instance )"
    r"|^    unicast_src_ip (?P<family>\S+)\n"
    r"|(?P<priorities>(?:^    @[^\s^]\S* priority [0-9]+\n)+)"
    r"|(?P<sources>(?:^    @[^\s^]\S* unicast_src_ip \S+\n)+)"
    r"|(?P<peers>(?:^        @\^\S+ [^\n]*\n)+)"
)
_PLAIN: Final = re.compile(_RUNS, re.MULTILINE)
_COMPACT: Final = re.compile(rf"{_RUNS}|^(?P<short> *\$[^\n]*)\n?", re.MULTILINE)
_NUMBER: Final = re.compile(r" priority ([0-9]+)\n")
_LIST: Final = "\n    virtual_ipaddress_excluded {\n"
_PRIORITIES: Final = re.compile(rf"{re.escape(_PRIORITY)}(?: [0-9]+)+")


class _Above(NamedTuple):
    """
    The lines that are written in full above: the *nodes* of priorities, and the lines of each family.

    *family*: that of the instance. *nodes* are the lines with ``%s`` in place of each number.
    """

    family: int = 4
    nodes: str = ""
    sources: tuple[str, str] = ("", "")
    peers: tuple[str, str] = ("", "")

    def after(self, match: re.Match[str]) -> "_Above":
        """The same after the lines of *match*."""
        index = self.family == 6
        match match.lastgroup:
            case "block":
                return self._replace(family=4) if self.family != 4 else self
            case "family":
                family = 6 if ":" in match["family"] else 4
                return self._replace(family=family) if self.family != family else self
            case "priorities":
                return self._replace(nodes=_NUMBER.sub(" priority %s\n", match[0].replace("%", "%%")))
            case "sources":
                return self._replace(sources=_with(self.sources, match[0], at=index))
            case "peers":
                return self._replace(peers=_with(self.peers, match[0], at=index))
        return self

    def full(self, short: str) -> str:
        """The lines for which the line *short* stands; "" if there are none."""
        index = self.family == 6
        if short == _SOURCE:
            return self.sources[index]
        if short == _PEER:
            return self.peers[index]
        numbers = tuple(short.removeprefix(_PRIORITY).split(" ")[1:]) if _PRIORITIES.fullmatch(short) else ()
        return self.nodes % numbers if numbers and len(numbers) == self.nodes.count("\n") else ""


def _with(both: tuple[str, str], lines: str, *, at: int) -> tuple[str, str]:
    return (both[0], lines) if at else (lines, both[1])


# --- to the notation --------------------------------------------------------------------------------------------------
class _Part(NamedTuple):
    """A part of a text in the notation, and what stands above the next part. *is_plain*: it cannot be in it."""

    text: str
    above: _Above
    is_plain: bool = False


def encode(parts: Iterable[tuple[str, str]], memory: Memory = KEEPS_NOTHING) -> str:
    """
    The text that consists of *parts*, each with its name, in the notation; "" if it cannot be.

    A part ends at the end of a line, as the head of a text and each instance do.
    """
    found, above = [MARKER], _Above()
    for name, text in parts:
        part = memory.last(_encoded, name, text, above)
        if part.is_plain:
            return ""
        found.append(part.text)
        above = part.above
    return "".join(found)


def _encoded(text: str, above: _Above) -> _Part:
    if "$" in text:
        return _Part("", above, is_plain=True)
    found, place = list[str](), 0
    for match in chain.from_iterable(_PLAIN.finditer(text, *section) for section in _sections(text)):
        after = above.after(match)
        found += text[place : match.start()], _short(match) if after == above else match[0]
        above, place = above if after == above else after, match.end()
    return _Part("".join([*found, text[place:]]), above)


def _sections(text: str) -> Iterable[tuple[int, int]]:
    """Begin and end of what may have lines for nodes: all but the list of VIPs, which may be thousands."""
    begin = text.find(_LIST)
    if begin < 0:
        return ((0, len(text)),)
    end = text.find("}", begin + len(_LIST))
    return ((0, begin + 1), (end if end >= 0 else len(text), len(text)))


def _short(match: re.Match[str]) -> str:
    """The line that stands for the lines of *match*, which are written in full above."""
    match match.lastgroup:
        case "priorities":
            return f"{_PRIORITY} {' '.join(_NUMBER.findall(match[0]))}\n"
        case "sources":
            return f"{_SOURCE}\n"
        case "peers":
            return f"{_PEER}\n"
    return match[0]


# --- and back ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a text in the notation cannot be expanded: the *message* is one line, without anything of the text."""

    message: str


@recent(most=2)  # in full it has megabytes; an agent reads the same text again and again
def expand(text: str) -> str | Unreadable:
    """*text* in full; it is returned as it is if it is not in the notation."""
    if not is_compact(text):
        return text
    found, above, place, size = list[str](), _Above(), len(MARKER), 0
    for match in _COMPACT.finditer(text, place):
        lines = above.full(match["short"]) if match.lastgroup == "short" else match[0]
        if not lines:
            return Unreadable(f"line {text.count(chr(10), 0, match.start()) + 1} stands for no lines above it")
        size += match.start() - place + len(lines)
        if size > MOST_EXPANDED:
            return Unreadable(f"in full it has more than {MOST_EXPANDED:,} bytes")
        found += text[place : match.start()], lines
        above, place = above.after(match), match.end()
    return "".join([*found, text[place:]])


def is_compact(text: str) -> bool:
    """Whether *text* is in the notation."""
    return text.startswith(MARKER)


def in_full(text: str) -> str:
    """*text* in full; it is returned as it is if it is not in the notation, or cannot be expanded."""
    found = expand(text) if is_compact(text) else text
    return text if isinstance(found, Unreadable) else found
