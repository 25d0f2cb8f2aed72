"""
One step of a Service on its way to kavip: a write, a wait, or the end.

A step follows from the Service as it is stored, and from nothing else. So a run that was interrupted continues where it
stopped, and each write is conditional on the version that the step was decided on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kavip import names
from kavip.api import conditions
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.reconcile.mergepatch import patched

Json = dict[str, Any]
S = TypeVar("S", bound=Service)


@dataclass(frozen=True, slots=True)
class Write:
    """A JSON merge patch of the Service; *says*: what it does, for people."""

    body: Json
    says: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is written until something else has happened; *says*: what."""

    says: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The Service cannot go on; nothing is written."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


Step = Write | Wait | Stop | Done
NextStep = Callable[[S], Step]


def after(service: S, body: Json) -> S:
    """*service* after the merge patch *body*, as the API server stores it."""
    return msgspec.convert(patched(msgspec.to_builtins(service), body), type(service))


def annotated(**annotations: str) -> Json:
    """The merge patch that sets *annotations*."""
    return {"metadata": {"annotations": dict(sorted(annotations.items()))}} if annotations else {}


def address_problem(service: Service) -> str:
    """What kavip's condition says about the addresses of *service*; "" if it says nothing."""
    found = conditions.find(service.status.conditions, names.ConditionType.ADDRESS_ASSIGNED)
    return f": {found.reason}: {found.message}" if found and found.status != "True" else ""
