"""
Validates label selectors that users write, and reads those that are text, as of ``kubectl --selector``.

The API server validates the selectors of its own kinds. For kavip's kinds it validates only what the schema contains.
Without this, an invalid selector would match nothing, without an error.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kavip.api.meta import LabelSelector, Requirement
from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.names import Reason

_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_COMMA: Final = re.compile(r",(?![^()]*\))")  # not between parentheses
_WORD: Final = r"[^\s!=,()]"
_ABSENT: Final = re.compile(rf"!\s*({_WORD}+)")
_SET: Final = re.compile(rf"({_WORD}+)\s+(in|notin)\s*\(([^()]*)\)")
_TERM: Final = re.compile(rf"({_WORD}+)(?:\s*(==|!=|=)\s*({_WORD}*))?")
LONGEST_SELECTOR: Final = 1024
"""Characters of a selector that is text."""

_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def check_selector(selector: LabelSelector | None, field: str) -> Iterator[Refusal]:
    """Everything that is wrong with *selector* at *field*."""
    if selector is None:
        return
    yield from check_labels(selector.match_labels, f"{field}.matchLabels")
    for index, term in enumerate(selector.match_expressions or ()):
        yield from _requirement(term, f"{field}.matchExpressions[{index}]")


def parse_selector(text: str, field: str) -> LabelSelector:
    """
    The selector *text* of the annotation *field*, such as ``zone=a,disk in (ssd,nvme),!spot``.

    The grammar is that of Kubernetes without ``>`` and ``<``
    (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors). Raises
    :class:`~kavip.errors.BadInput`.
    """
    if len(text) > LONGEST_SELECTOR:
        raise BadInput(field, f"{text[:40]}...", f"want at most {LONGEST_SELECTOR} characters")
    terms = [_parse_term(term.strip(), field) for term in _COMMA.split(text)]
    for term in terms:
        for value, remedy in _label_problems(term.key, term.values or ()):
            raise BadInput(field, value, remedy)
    return LabelSelector(match_expressions=terms)


def _parse_term(term: str, field: str) -> Requirement:
    if found := _ABSENT.fullmatch(term):
        return Requirement(found[1], "DoesNotExist")
    if found := _SET.fullmatch(term):
        key, operator, values = found.groups()
        return Requirement(key, "In" if operator == "in" else "NotIn", [each.strip() for each in values.split(",")])
    if found := _TERM.fullmatch(term):
        key, sign, value = found.groups()
        return Requirement(key, "NotIn" if sign == "!=" else "In", [value]) if sign else Requirement(key, "Exists")
    raise BadInput(field, term, "want label=value, label!=value, label in (a,b), label notin (a,b), label or !label")


def check_labels(labels: Mapping[str, str] | None, field: str) -> Iterator[Refusal]:
    """Everything that is wrong with *labels* at *field*."""
    for key, value in sorted((labels or {}).items()):
        yield from _label(key, [value], f"{field}[{key}]")


def _requirement(term: Requirement, field: str) -> Iterator[Refusal]:
    values = term.values or []
    if term.operator not in _WITH_VALUES + _WITHOUT_VALUES:
        yield _refuse(f"{field}.operator", term.operator, f"want {', '.join(_WITH_VALUES + _WITHOUT_VALUES)}")
    elif (term.operator in _WITH_VALUES) != bool(values):
        remedy = "wants values" if term.operator in _WITH_VALUES else "takes no values"
        yield _refuse(f"{field}.values", values, f"operator {term.operator} {remedy}")
    yield from _label(term.key, values, field)


def _label(key: str, values: list[str], field: str) -> Iterator[Refusal]:
    for value, remedy in _label_problems(key, values):
        yield _refuse(field, value, remedy)


def _label_problems(key: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What no label can have, and the remedy."""
    if not _KEY.fullmatch(key):
        yield key, "want the key of a label, such as kubernetes.io/metadata.name"
    for value in values:
        if not _VALUE.fullmatch(value):
            yield value, "want the value of a label: up to 63 letters, digits, '.', '_' or '-'"


def _refuse(field: str, value: object, remedy: str) -> Refusal:
    return Refusal.of(Reason.INVALID, BadInput(field, value, remedy))
