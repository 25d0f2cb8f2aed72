"""
A refusal is a value: an ordinary outcome that becomes a condition, an event, or an admission cause.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kavip.errors import BadInput
from kavip.names import Reason

SHOWN: Final = 5  # of a list in a message; the rest is counted


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not done: a machine-readable *reason*, the *field* at fault, and what to do next."""

    reason: Reason
    message: str
    field: str = ""

    @classmethod
    def of(cls, reason: Reason, error: BadInput) -> "Refusal":
        """The refusal that a parse error amounts to."""
        return cls(reason, str(error), error.field)


def listed(items: Iterable[object]) -> str:
    """Items in a row, no more than a reader takes in."""
    found = list(items)
    rest = len(found) - SHOWN
    return ", ".join(map(str, found[:SHOWN])) + (f" and {rest} more" if rest > 0 else "")


def annotation_field(key: str) -> str:
    """The field path of an annotation, as refusals spell it."""
    return f"metadata.annotations[{key}]"
