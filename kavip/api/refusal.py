"""A refusal is a value: an ordinary outcome that becomes a condition, an Event, or a cause of an admission response."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kavip.api.text import clipped_line
from kavip.errors import BadInput
from kavip.names import Reason

LONGEST_FIELD: Final = 512  # characters of a field path: the keys of maps are part of it, and they may have any length
SHOWN: Final = 5  # items of a list in a message; the others are counted
MAX_FINDINGS: Final = 1024
"""
Findings about one object: twice the entries that any list of a CRD may have. Checks stop there, so that a review of an
object in which everything is wrong costs no more than any other.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    Why something is not done: a *reason* for programs, a *message* with value and remedy, the *field* at fault.

    *field* becomes printable, and loses its end if it is very long. *is_temporary*: time alone removes the cause, such
    as a cool-down that ends.
    """

    reason: Reason
    message: str
    field: str = ""
    is_temporary: bool = False

    def __post_init__(self) -> None:
        """Make the field printable; a message that begins with it begins with the same text."""
        shown = clipped_line(self.field, LONGEST_FIELD)
        if shown != self.field:
            object.__setattr__(self, "message", self.message.replace(self.field, shown, 1))
            object.__setattr__(self, "field", shown)

    @classmethod
    def of(cls, reason: Reason, error: BadInput) -> "Refusal":
        """The refusal for a parse error."""
        return cls(reason, str(error), error.field)


def listed(items: Iterable[object]) -> str:
    """The first :data:`SHOWN` of *items*, and the number of the others."""
    found = list(items)
    rest = len(found) - SHOWN
    return ", ".join(map(str, found[:SHOWN])) + (f" and {rest} more" if rest > 0 else "")


def annotation_field(key: str) -> str:
    """The field path of the annotation *key*."""
    return f"metadata.annotations[{key}]"
