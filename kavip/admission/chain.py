"""
What a chain is made of: named checks, and how their findings become a verdict.

A chain is a tuple of checks and reads as a table of contents. Every check looks, so that all findings are told at once.
Where an UPDATE leaves a part of the object as it was, and what is found there was to be found before, it is an old
violation: told as a warning, and accepted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from kavip.admission.verdict import Awaited, Verdict, told
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """What an administrator may soften, as the settings of the same names spell it."""

    allow_missing_group: str = "refuse"  # or "warn": GitOps that applies Services before groups
    external_ips_scope: str = "managed"  # or "all", "off"
    ipam: str = "auto"  # or "always", "never"


DEFAULTS: Final = Options()
CLEAN: Final = Verdict()


@dataclass(frozen=True, slots=True)
class Caution:
    """What is allowed, and unwise."""

    message: str


@dataclass(frozen=True, slots=True)
class Pardonable:
    """A refusal that does not bind who may ``create`` ``services/externalips``."""

    refusal: Refusal


Finding = Refusal | Caution | Awaited | Pardonable


@dataclass(frozen=True, slots=True)
class Context(Generic[T]):
    """
    What a check may look at beside the object: the cluster, and what an UPDATE starts from.

    *group* is the key of the group that a Service belongs to (:meth:`Snapshot.group_of`), asked for once.
    """

    snapshot: Snapshot
    old: T | None = None
    options: Options = DEFAULTS
    group: str = ""


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One rule: *find* looks; *reads* gives the part of the object that a finding with that field path is about."""

    find: Callable[[T, Context[T]], Iterable[Finding]]
    reads: Callable[[T, str], object]


def run(chain: Sequence[Check[T]], subject: T, context: Context[T], *, since: T | None = None) -> Verdict:
    """Judge *subject* by every check; *since* is what an UPDATE starts from, where that was judged too."""
    refusals: dict[Refusal, None] = {}
    warnings: list[str] = []
    awaits: list[Awaited] = []
    pardonable: set[Refusal] = set()
    for check in chain:
        for finding in check.find(subject, context):
            if isinstance(finding, Caution):
                warnings.append(finding.message)
                continue
            if isinstance(finding, Awaited):
                awaits.append(finding)
                continue
            refusal = finding.refusal if isinstance(finding, Pardonable) else finding
            if isinstance(finding, Pardonable):
                pardonable.add(refusal)
            if since is not None and _is_old(refusal, check, subject, since, context):
                warnings.append(f"accepted, because it is not new: {told(refusal)}")
            else:
                refusals[refusal] = None
    if not (refusals or warnings):
        return CLEAN
    return Verdict(
        tuple(refusals), tuple(warnings), awaits=tuple(awaits), pardonable=frozenset(pardonable & refusals.keys())
    )


def _is_old(finding: Refusal, check: Check[T], subject: T, since: T, context: Context[T]) -> bool:
    """Whether *since* had *finding* as well, word for word, and its part of the object is as it was."""
    if check.reads(since, finding.field) != check.reads(subject, finding.field):
        return False
    findings = check.find(since, replace(context, old=None))
    return any(finding == (each.refusal if isinstance(each, Pardonable) else each) for each in findings)


def spec_part(subject: KeepalivedGroup | VIPPool, field: str) -> object:
    """The field of ``spec`` that the path *field* lies in, or all of ``spec`` and the labels where it lies in none."""
    parts: dict[str, Any] = msgspec.to_builtins(subject.spec)
    name = field.removeprefix("spec.").partition(".")[0].partition("[")[0]
    return parts.get(name) if field.startswith("spec.") else (parts, subject.metadata.labels)
