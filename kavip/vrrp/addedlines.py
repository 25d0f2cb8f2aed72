"""
What a template adds to kavip's text of ``keepalived.conf``: the lines of its outcome that kavip's text does not have.

The outcome must have every line of kavip's text, in its order; comments and blanks do not matter. So names, VRIDs,
interfaces, priorities and addresses are those of the model. Further lines may stand in ``global_defs`` and in
instances, each a keyword with a grammar, as in ``verbatimConfig``; none that runs programs. Such a line is read as a
value: no character of the outcome reaches a node in another way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kavip.vrrp import keywords, verbatim
from kavip.vrrp.configtemplate import MARK, AddedLines, RenderRequest, TemplateFault, conflict, may_add
from kavip.vrrp.grammar import Line, Value

MOST_LINES: Final = 4096
"""Lines that a template may add."""

_GLOBAL: Final = "global_defs"
_INSTANCE: Final = "vrrp_instance"
_VERSION: Final = "vrrp_version"
_PREEMPTION: Final = frozenset({"nopreempt", "preempt", "preempt_delay"})
_SHOWN: Final = 60


class _Refused(Exception):
    """What is wrong in line *number* of the outcome."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


@dataclass(slots=True)
class _Block:
    """
    A block of kavip's text: its *title* and *level*, the *keywords* in it, and what was *added*, with its line.

    *interfaces*: those that keepalived tracks anyway.
    """

    title: str = ""
    level: int = 0
    keywords: set[str] = field(default_factory=set)
    interfaces: set[str] = field(default_factory=set)
    added: list[tuple[int, Line]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The keyword that opened it."""
        return self.title.partition(" ")[0]

    def take(self, text: str) -> None:
        """Take a line of kavip's own."""
        if text.endswith("{"):
            self.level += 1
        elif text == "}":
            self.level -= 1
        words = text.split()
        if (self.level == 1 and not text.startswith("@")) or (self.level == 2 and text.endswith("{")):
            self.keywords.add(words[0])
        if self.level == 1 and words[0] == "interface":
            self.interfaces.add(words[1])
        elif self.level == 2 and words[1:2] == ["dev"]:
            self.interfaces.add(words[2])


def read_added(request: RenderRequest, outcome: str) -> AddedLines | TemplateFault:
    """The lines that *outcome*, that of the template of *request*, adds to kavip's own text."""
    lines = outcome.split("\n")
    try:
        return _Reader(request, lines).read()
    except _Refused as error:
        return _located(error, lines, request.template)


def published_lines(text: str) -> AddedLines:
    """The lines of templates in the published *text*."""
    found: dict[str, list[Line]] = {}
    title, level, marked = "", 0, False
    lines = iter(text.split("\n"))
    for each in lines:
        line = each.strip()
        if line.startswith("#"):
            marked |= line == MARK and level == 1
        elif marked and level == 1 and line != "}":
            entry = " ".join((line, next(lines, "").strip(), next(lines, "").strip())) if line.endswith("{") else line
            keyword, _, value = entry.partition(" ")
            grammar = _grammar(title.partition(" ")[0], keyword)
            added = verbatim.read_line(grammar, keyword, value) if grammar else ""
            found.setdefault(title, []).extend([added] if isinstance(added, Line) else [])
        elif line.endswith("{"):
            title, level = title if level else line.removesuffix(" {"), level + 1
        elif line == "}":
            level -= 1
            marked &= level > 0
    return _added(found)


def _added(found: dict[str, list[Line]]) -> AddedLines:
    """The lines by the title of their block, in the order of their keywords."""
    ordered = {title: tuple(sorted(lines, key=lambda each: each.keyword)) for title, lines in sorted(found.items())}
    instances = {title.removeprefix(f"{_INSTANCE} "): lines for title, lines in ordered.items() if title != _GLOBAL}
    return AddedLines(ordered.get(_GLOBAL, ()), MappingProxyType(instances))


def _located(error: _Refused, lines: Sequence[str], template: str) -> TemplateFault:
    """The fault, at its line of *template* if it is there as it is; otherwise the message names that of the outcome."""
    line = lines[error.number - 1] if 0 < error.number <= len(lines) else ""
    message, text = str(error), line.strip()
    for number, each in enumerate(template.split("\n"), start=1):
        if text and each.strip() == text:
            return TemplateFault(message, number, each.index(text) + 1)
    column = len(line) - len(line.lstrip()) + 1
    return TemplateFault(f"line {error.number}, column {column} of the outcome: {message}")


class _Reader:
    """Reads the outcome beside kavip's own text, line by line."""

    def __init__(self, request: RenderRequest, lines: Sequence[str]) -> None:
        self._own = [each for each in map(str.strip, request.own.split("\n")) if each and not each.startswith("#")]
        self._lines, self._allowed, self._interfaces = lines, request.allowed, request.interfaces
        self._place, self._count = 0, 0
        self._block, self._found = _Block(), dict[str, list[Line]]()

    def read(self) -> AddedLines:
        """The added lines."""
        number = 0
        while number < len(self._lines):
            number += 1
            text = self._lines[number - 1].strip()
            if not text or text.startswith("#"):
                continue
            if self._place < len(self._own) and self._own[self._place] == text:
                self._take_own(text)
            else:
                number = self._add(number)
        if self._place < len(self._own):
            raise _Refused(f"{self._missing()} is missing at the end; print the finished text whole", number)
        return _added(self._found)

    def _take_own(self, text: str) -> None:
        self._place += 1
        if not self._block.level:
            self._block = _Block(text.removesuffix(" {"))
        self._block.take(text)
        if not self._block.level and self._block.kind in (_GLOBAL, _INSTANCE):
            self._close(self._block)

    def _close(self, block: _Block) -> None:
        """Check the added lines beside all those of kavip, of which some stand behind them."""
        there, interfaces = set(block.keywords), block.interfaces | self._interfaces
        for number, line in block.added:
            if problem := conflict(line, there, interfaces):
                raise _Refused(f"{line.keyword}: {problem}", number)
            there.add(line.keyword)
        self._found[block.title] = [line for _, line in block.added]

    def _missing(self) -> str:
        where = f" of {self._block.title}" if self._block.level else ""
        return f"kavip's line {self._own[self._place][:_SHOWN]!r}{where}"

    def _add(self, number: int) -> int:
        """Add the line *number* of the outcome; return the number of its last line."""
        text, last, block = self._lines[number - 1].strip(), number, self._block
        if block.level != 1 or block.kind not in (_GLOBAL, _INSTANCE):
            raise _Refused(self._displaced(text) or "lines can be added in global_defs and in instances only", number)
        if text.endswith("{") and number + 2 <= len(self._lines):  # a block of one line
            last = number + 2
            text = " ".join(each.strip() for each in self._lines[number - 1 : last])
        self._count += 1
        if self._count > MOST_LINES:
            raise _Refused(f"a template may add {MOST_LINES:,} lines", number)
        keyword, _, value = text.partition(" ")
        grammar = _grammar(block.kind, keyword)
        if grammar is None:
            why = _reason(block.kind, keyword)
            raise _Refused(self._displaced(text) or f"{keyword[:_SHOWN]}: {why}", number)
        if block.kind == _INSTANCE and not may_add(keyword, self._allowed):
            raise _Refused(f"{keyword}: the group must list it in spec.allowVerbatim", number)
        line = verbatim.read_line(grammar, keyword, value)
        if isinstance(line, str):
            raise _Refused(f"{keyword}: {line}", number)
        if (least := _least(line)) and keyword not in self._allowed:
            raise _Refused(f"{keyword}: want 0, or {least} and more, so that the network is not flooded", number)
        block.added.append((number, line))
        return last

    def _displaced(self, text: str) -> str:
        """Whether *text* is a line of kavip's that comes too early, because others are missing."""
        if text not in self._own[self._place :]:
            return ""
        return f"{self._missing()} is missing before this one; print the finished text whole"


def _least(line: Line) -> int:
    """The least value, 0 excepted, that a template may set, if that of *line* is smaller; otherwise 0."""
    least = keywords.FLOORS.get(line.keyword.removeprefix("vrrp_"), 0)
    return least if least and 0 < int(line.words[0]) < least else 0


def _grammar(kind: str, keyword: str) -> Value | None:
    """The grammar of *keyword* in a block of *kind*; None if it cannot be added there."""
    if kind == _GLOBAL:
        return None if keyword == _VERSION else keywords.GLOBAL.get(keyword)
    return None if keyword in _PREEMPTION else keywords.SERVICE.get(keyword) or keywords.ALLOWABLE.get(keyword)


def _reason(kind: str, keyword: str) -> str:
    """Why *keyword* cannot be added in a block of *kind*."""
    if kind == _GLOBAL:
        if keyword in keywords.GLOBAL_SCRIPTS:
            return "runs programs or writes files; set it in spec.verbatimConfig of the group"
        own_field = "set spec.vrrpVersion of the group"
        return own_field if keyword == _VERSION else keywords.global_problem(keyword, allow_scripts=False)
    if keyword in _PREEMPTION:
        return "set spec.noPreempt or spec.preemptDelaySeconds of the group"
    return keywords.instance_problem(keyword)
