"""
Lines that users add: ``verbatimconfig`` on a Service, ``verbatimConfig`` of a group.

Nothing is ever pasted: a keyword is on a list, its value has that keyword's grammar (:mod:`kavip.vrrp.grammar`), and
what comes out are :class:`Line` values. All findings are reported, not only the first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kavip.api.refusal import Refusal, annotation_field
from kavip.errors import BadInput
from kavip.names import VERBATIM_ANNOTATION, Reason
from kavip.vrrp import grammar
from kavip.vrrp.grammar import Line

FIELD: Final = annotation_field(VERBATIM_ANNOTATION)
GLOBAL_FIELD: Final = "spec.verbatimConfig"

_MOST_SHOWN: Final = 5  # findings in one summary; a message is one line


@dataclass(frozen=True, slots=True)
class Findings:
    """What became of a user's lines: those that are fine, why others are not, and what is unwise about the rest."""

    lines: tuple[Line, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()


_NONE: Final = Findings()


def service_lines(
    text: str,
    *,
    allowed: Collection[str] = (),
    interfaces: Collection[str] | None = None,
) -> tuple[Line, ...] | Refusal:
    """
    The lines that the annotation value *text* asks for, or one Refusal that names all that is wrong.

    *allowed* is the group's ``allowVerbatim``. *interfaces*, where given, are those that ``track_interface`` may name:
    an interface that a node lacks stops the whole daemon, so a Service may name only what its group does.
    """
    found = read_service(text, allowed=allowed, interfaces=interfaces)
    return summary(found.refusals) or found.lines


def service_warnings(text: str) -> tuple[str, ...]:
    """What is accepted in the annotation value *text* and has no effect."""
    return read_service(text).warnings


def global_lines(mapping: Mapping[str, str] | None, *, allow_scripts: bool) -> tuple[Line, ...] | Refusal:
    """The lines that a group's ``verbatimConfig`` asks for, or one Refusal that names all that is wrong."""
    found = read_global(mapping, allow_scripts=allow_scripts)
    return summary(found.refusals) or found.lines


def summary(refusals: Iterable[Refusal]) -> Refusal | None:
    """Several findings as one Refusal; None where there are none."""
    found = list(refusals)
    if not found:
        return None
    field = found[0].field
    rest = [refusal.message.removeprefix(f"{field}: ") for refusal in found[1:_MOST_SHOWN]]
    more = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return Refusal(found[0].reason, "; ".join([found[0].message, *rest, *more]), field)


def read_service(text: str, *, allowed: Collection[str] = (), interfaces: Collection[str] | None = None) -> Findings:
    """Judge every entry of the annotation value *text*; arguments as in :func:`service_lines`."""
    if not text.strip():
        return _NONE
    wanted = _json_object(text)
    if isinstance(wanted, BadInput):
        return Findings(refusals=(Refusal.of(Reason.INVALID_VERBATIM, wanted),))
    lines: list[Line] = []
    refusals: list[Refusal] = []
    warnings: list[str] = []
    for keyword, value in sorted(wanted.items()):
        line = _service_line(keyword, value, allowed=allowed, interfaces=interfaces)
        if isinstance(line, BadInput):
            refusals.append(Refusal.of(Reason.INVALID_VERBATIM, line))
        elif keyword in grammar.NOT_RENDERED:
            warnings.append(f"{FIELD}: {keyword} has no effect: kavip sets it, alike on all nodes; remove it")
        else:
            lines.append(line)
    if {"nopreempt", "preempt_delay"} <= wanted.keys():
        error = BadInput(FIELD, "nopreempt with preempt_delay", "they exclude each other; remove one")
        refusals.append(Refusal.of(Reason.INVALID_VERBATIM, error))
    return Findings(tuple(lines), tuple(refusals), tuple(warnings))


def read_global(mapping: Mapping[str, str] | None, *, allow_scripts: bool) -> Findings:
    """Judge every entry of a group's ``verbatimConfig``; each finding has the entry's own field path."""
    lines: list[Line] = []
    refusals: list[Refusal] = []
    for keyword, value in sorted((mapping or {}).items()):
        line = _global_line(keyword, value, allow_scripts=allow_scripts)
        if isinstance(line, BadInput):
            refusals.append(Refusal.of(Reason.INVALID, line))
        else:
            lines.append(line)
    return Findings(tuple(lines), tuple(refusals))


def _service_line(
    keyword: str,
    value: object,
    *,
    allowed: Collection[str],
    interfaces: Collection[str] | None,
) -> Line | BadInput:
    if not isinstance(value, str):
        return BadInput(FIELD, {keyword: value}, f'want a string: {{"{_plain(keyword)}": "..."}}')
    known = grammar.SERVICE.get(keyword) or grammar.NOT_RENDERED.get(keyword)
    if known is None:
        if problem := allow_verbatim_problem(keyword):
            return BadInput(FIELD, keyword, problem)
        if keyword not in allowed:
            return BadInput(FIELD, keyword, "not a keyword that Services may use; remove it, or let the group allow it")
        known = grammar.plain_words()
    line = known.read(keyword, value.strip(" "))
    if line is None:
        return BadInput(FIELD, f"{keyword} {value}", known.want)
    free = interfaces is None or keyword in allowed  # the group's owner answers for any interface
    if keyword == "track_interface" and not free and line.block[0] not in (interfaces or ()):
        names = ", ".join(sorted(interfaces or ()))
        return BadInput(FIELD, f"{keyword} {value}", f"want an interface of the group ({names})")
    return line


def _global_line(keyword: str, value: str, *, allow_scripts: bool) -> Line | BadInput:
    field = f"{GLOBAL_FIELD}[{_plain(keyword)}]"
    known = grammar.GLOBAL.get(keyword)
    if known is None and keyword in grammar.GLOBAL_SCRIPTS:
        if not allow_scripts:
            return BadInput(field, value, "runs programs or writes files: set spec.allowScripts, or remove it")
        known = grammar.GLOBAL_SCRIPTS[keyword]
    if known is None and grammar.is_kavips(keyword):
        return BadInput(field, value, "kavip writes this keyword itself; remove it")
    if known is None:
        return BadInput(field, value, f"not a keyword of global_defs that groups may use; remove {_plain(keyword)}")
    return known.read(keyword, value.strip(" ")) or BadInput(field, value, known.want)


def allow_verbatim_problem(keyword: str) -> str:
    """Why a group may not allow its Services *keyword*; "" where it may."""
    if grammar.is_kavips(keyword):
        return "kavip writes this keyword itself; remove it"
    if grammar.runs_programs(keyword):
        return "it runs programs or reads files, which no Service may; remove it"
    if not grammar.KEYWORD.fullmatch(keyword):
        return "want a keyword of vrrp_instance: lower-case letters, digits and '_'"
    return ""


def _json_object(text: str) -> dict[str, Any] | BadInput:
    remedy = 'want a JSON object of strings, such as {"garp_master_repeat": "2"}'
    try:
        wanted = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return BadInput(FIELD, text, remedy)
    return wanted if isinstance(wanted, dict) else BadInput(FIELD, text, remedy)


def _plain(keyword: str) -> str:
    """*keyword* as it may stand in a field path: hostile ones are shortened and escaped."""
    return keyword if grammar.KEYWORD.fullmatch(keyword) else ascii(keyword[:48])
