"""
A check, and what it finds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kavip.cli.views.doctor.inspection import Inspection, Source


@dataclass(frozen=True, slots=True)
class Finding:
    """*what* is wrong, and the *command* that mends it."""

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class Check:
    """
    A check. *looks_for*: the faults that it finds; *why* they matter. *needs*: what it reads.

    The documentation lists these texts.
    """

    name: str
    looks_for: str
    why: str
    needs: tuple[Source, ...]
    find: Callable[[Inspection], Iterable[Finding]]
