"""
Lines that users add: the annotation ``verbatimconfig`` of a Service, ``verbatimConfig`` of a group.

User text is never copied. A keyword must be on a list (:mod:`kavip.vrrp.keywords`), its value is read as keepalived
reads it (:mod:`kavip.vrrp.tokens`) and must match the keyword's grammar (:mod:`kavip.vrrp.grammar`); the result are
:class:`Line` values. All problems are reported, not only the first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from kavip.api.refusal import Refusal, annotation_field
from kavip.errors import BadInput
from kavip.names import VERBATIM_ANNOTATION, Reason
from kavip.vrrp import keywords
from kavip.vrrp.grammar import Line, Value
from kavip.vrrp.tokens import Unreadable, tokens

FIELD: Final = annotation_field(VERBATIM_ANNOTATION)
GLOBAL_FIELD: Final = "spec.verbatimConfig"
MOST_KEYWORDS: Final = 64
"""More than exist; the limit bounds the cost of a hostile annotation."""

_MOST_SHOWN: Final = 5  # refusals in one summary; a message is one line


@dataclass(frozen=True, slots=True)
class VerbatimResult:
    """The accepted lines of a user, the refusals of the others, and warnings."""

    lines: tuple[Line, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()


NO_LINES: Final = VerbatimResult()
"""The result of an absent annotation."""


def summary(refusals: Iterable[Refusal]) -> Refusal | None:
    """*refusals* as one; None for none."""
    found = list(refusals)
    if not found:
        return None
    field = found[0].field
    rest = [refusal.message.removeprefix(f"{field}: ") for refusal in found[1:_MOST_SHOWN]]
    more = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return Refusal(found[0].reason, "; ".join([found[0].message, *rest, *more]), field)


def read_service(
    text: str, *, allowed: Collection[str] = (), interfaces: Collection[str] | None = None
) -> VerbatimResult:
    """
    The result for each entry of the annotation value *text*.

    *allowed* is the group's ``allowVerbatim``. *interfaces*, if given, are those that ``track_interface`` may name:
    an interface that a node does not have stops the whole daemon, so a Service may name only those of its group.
    """
    if not text.strip():
        return NO_LINES
    wanted = _json_object(text)
    if isinstance(wanted, BadInput):
        return VerbatimResult(refusals=(Refusal.of(Reason.INVALID_VERBATIM, wanted),))
    lines: list[Line] = []
    refusals: list[Refusal] = []
    warnings: list[str] = []
    for keyword, value in sorted(wanted.items()):
        line = _service_line(keyword, value, allowed=allowed, interfaces=interfaces)
        if isinstance(line, BadInput):
            refusals.append(Refusal.of(Reason.INVALID_VERBATIM, line))
        elif keyword in keywords.NOT_RENDERED:
            warnings.append(f"{FIELD}: {keyword} has no effect: kavip sets it, the same on all nodes; remove it")
        else:
            raised = line if keyword in allowed else _raised(line)
            if raised != line:
                least = f"counts as {raised.words[0]}, the least for a Service"
                warnings.append(f"{FIELD}: {keyword} {value} {least} unless the group lists it in spec.allowVerbatim")
            lines.append(raised)
    for first, second in keywords.EXCLUSIVE:
        if first in wanted and second in wanted:
            error = BadInput(FIELD, f"{first} with {second}", "they exclude each other; want one of the two")
            refusals.append(Refusal.of(Reason.INVALID_VERBATIM, error))
    return VerbatimResult(tuple(lines), tuple(refusals), tuple(warnings))


def shared(group: str) -> Refusal:
    """The refusal of a Service's own lines in *group*, whose instances are shared."""
    message = f"{FIELD}: the instances of group {group} are shared; remove the annotation"
    return Refusal(Reason.INVALID_VERBATIM, message, FIELD)


def read_global(mapping: Mapping[str, str] | None, *, allow_scripts: bool) -> VerbatimResult:
    """The result for each entry of a group's ``verbatimConfig``; each refusal has the field path of its entry."""
    entries = sorted((mapping or {}).items())
    if len(entries) > MOST_KEYWORDS:
        error = BadInput(GLOBAL_FIELD, f"{len(entries)} keywords", f"want at most {MOST_KEYWORDS}")
        return VerbatimResult(refusals=(Refusal.of(Reason.INVALID, error),))
    lines: list[Line] = []
    refusals: list[Refusal] = []
    for keyword, value in entries:
        line = _global_line(keyword, value, allow_scripts=allow_scripts)
        if isinstance(line, BadInput):
            refusals.append(Refusal.of(Reason.INVALID, line))
        else:
            lines.append(line)
    return VerbatimResult(tuple(lines), tuple(refusals))


def _raised(line: Line) -> Line:
    """*line* with at least the least value of its keyword."""
    least = keywords.FLOORS.get(line.keyword, 0)
    return replace(line, words=(str(least),)) if 0 < int(line.words[0] if least else 0) < least else line


def _service_line(
    keyword: str,
    value: object,
    *,
    allowed: Collection[str],
    interfaces: Collection[str] | None,
) -> Line | BadInput:
    if not isinstance(value, str):
        return BadInput(FIELD, {keyword: value}, f'want a string: {{"{_plain(keyword)}": "..."}}')
    entry = f"{keyword} {value}".rstrip(" ")
    known = keywords.SERVICE.get(keyword) or keywords.NOT_RENDERED.get(keyword)
    if known is None:
        if problem := keywords.instance_problem(keyword):
            return BadInput(FIELD, entry, problem)
        if keyword not in allowed:
            return BadInput(FIELD, entry, "allowed only where the group lists it in spec.allowVerbatim; remove it")
        known = keywords.ALLOWABLE[keyword]
    line = read_line(known, keyword, value)
    if isinstance(line, str):
        return BadInput(FIELD, entry, line)
    free = interfaces is None or keyword in allowed  # the owner of the group allowed any interface
    if keyword == "track_interface" and not free and line.block[0] not in (interfaces or ()):
        names = ", ".join(sorted(interfaces or ()))
        return BadInput(FIELD, entry, f"want an interface of the group ({names})")
    return line


def _global_line(keyword: str, value: str, *, allow_scripts: bool) -> Line | BadInput:
    field = f"{GLOBAL_FIELD}[{_plain(keyword)}]"
    if problem := keywords.global_problem(keyword, allow_scripts=allow_scripts):
        return BadInput(field, value, problem)
    line = read_line(keywords.GLOBAL.get(keyword) or keywords.GLOBAL_SCRIPTS[keyword], keyword, value)
    return BadInput(field, value, line) if isinstance(line, str) else line


def read_line(known: Value, keyword: str, value: str) -> Line | str:
    """The line of *keyword* with *value*, or the problem and the remedy."""
    given = tokens(value)
    if isinstance(given, Unreadable):
        return f"{given.reason}; {known.want}"
    return known.read(keyword, given) or known.want


def _json_object(text: str) -> dict[str, Any] | BadInput:
    remedy = 'want a JSON object of strings, such as {"garp_master_repeat": "2"}'
    try:
        wanted = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return BadInput(FIELD, text, remedy)
    if not isinstance(wanted, dict):
        return BadInput(FIELD, text, remedy)
    if len(wanted) > MOST_KEYWORDS:
        return BadInput(FIELD, f"{len(wanted)} keywords", f"want at most {MOST_KEYWORDS}")
    return wanted


def _plain(keyword: str) -> str:
    """*keyword* for a field path; a keyword of any other form is shortened and escaped."""
    return keyword if keywords.KEYWORD.fullmatch(keyword) else ascii(keyword[:48])
