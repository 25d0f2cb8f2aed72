"""
A refusal is a value: an ordinary outcome that becomes a condition, an event, or an admission cause.
"""

from dataclasses import dataclass

from kavip.errors import BadInput
from kavip.names import Reason


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


def annotation_field(key: str) -> str:
    """The field path of an annotation, as contract 8 spells it."""
    return f"metadata.annotations[{key}]"
