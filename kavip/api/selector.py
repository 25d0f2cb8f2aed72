"""
Validates label selectors that users write.

The API server validates the selectors of its own kinds. For kavip's kinds it validates only what the schema contains.
Without this, an invalid selector would match nothing, without an error.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kavip.api.meta import LabelSelector, Requirement
from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.names import Reason

_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"({_NAME})?")
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


def check_selector(selector: LabelSelector | None, field: str) -> Iterator[Refusal]:
    """Everything that is wrong with *selector* at *field*."""
    if selector is None:
        return
    yield from check_labels(selector.match_labels, f"{field}.matchLabels")
    for index, term in enumerate(selector.match_expressions or ()):
        yield from _requirement(term, f"{field}.matchExpressions[{index}]")


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
    if not _KEY.fullmatch(key):
        yield _refuse(field, key, "want the key of a label, such as kubernetes.io/metadata.name")
    for value in values:
        if not _VALUE.fullmatch(value):
            yield _refuse(field, value, "want the value of a label: up to 63 letters, digits, '.', '_' or '-'")


def _refuse(field: str, value: object, remedy: str) -> Refusal:
    return Refusal.of(Reason.INVALID, BadInput(field, value, remedy))
