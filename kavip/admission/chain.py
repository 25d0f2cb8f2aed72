"""
Chains of named rules, and how their findings become a verdict.

A chain is a tuple of rules and reads as a table of contents. Every rule is evaluated, so one response reports all
findings. Updates are ratcheted as Kubernetes ratchets CRD validation: if an UPDATE leaves the part of the object that a
rule reads as it was, and the old object has the same finding, the finding is a warning and the UPDATE is accepted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec

from kavip.admission.verdict import UNCHANGED, AdmissionWarning, MissingReference, Verdict, describe
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The settings of the same names."""

    allow_missing_group: str = "refuse"  # or "warn", for GitOps tools that apply Services before groups
    external_ips_scope: str = "managed"  # or "all", "off"
    ipam: str = "auto"  # or "always", "never"


DEFAULTS: Final = PolicyOptions()
ALLOWED: Final = Verdict()


@dataclass(frozen=True, slots=True)
class Exemptible:
    """A refusal that does not apply to users who may ``create`` ``services/externalips``."""

    refusal: Refusal


Finding = Refusal | Exemptible | AdmissionWarning | MissingReference
Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Context(Generic[T]):
    """
    The input of a rule besides the object: the cluster, and the object that an UPDATE starts from.

    *group* is the key of the group that a Service belongs to (:meth:`Snapshot.group_of`), looked up once.
    """

    snapshot: Snapshot
    old: T | None = None
    options: PolicyOptions = DEFAULTS
    group: str = ""


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """
    One check. *evaluate* yields the findings about an object.

    *reads* returns the part of the object that a finding at the given field path depends on.
    """

    evaluate: Callable[[T, Context[T]], Iterable[Finding]]
    reads: Callable[[T, str], object]


def run(chain: Sequence[Rule[T]], subject: T, context: Context[T], *, since: T | None = None) -> Verdict:
    """Evaluate *chain* for *subject*; *since* is the old object of an UPDATE that the same chain applied to."""
    refusals: dict[Refusal, None] = {}
    warnings: list[str] = []
    missing: list[MissingReference] = []
    exemptible: set[Refusal] = set()
    for rule in chain:
        for finding in rule.evaluate(subject, context):
            if isinstance(finding, AdmissionWarning):
                warnings.append(describe(finding))
                continue
            if isinstance(finding, MissingReference):
                missing.append(finding)
                continue
            refusal = _refusal(finding)
            if isinstance(finding, Exemptible):
                exemptible.add(refusal)
            if since is not None and _is_unchanged(refusal, rule, subject, since, context):
                warnings.append(f"{UNCHANGED}{describe(refusal)}")
            else:
                refusals[refusal] = None
    if not (refusals or warnings):
        return ALLOWED
    return Verdict(
        tuple(refusals), tuple(warnings), missing=tuple(missing), exemptible=frozenset(exemptible & refusals.keys())
    )


def _refusal(finding: Refusal | Exemptible) -> Refusal:
    return finding.refusal if isinstance(finding, Exemptible) else finding


def _is_unchanged(refusal: Refusal, rule: Rule[T], subject: T, since: T, context: Context[T]) -> bool:
    """Whether *rule* refuses *since* for the same cause, and the part of the object that it reads is the same."""
    if rule.reads(since, refusal.field) != rule.reads(subject, refusal.field):
        return False
    findings = rule.evaluate(since, replace(context, old=None))
    return any(isinstance(each, Refusal | Exemptible) and _refusal(each) == refusal for each in findings)


def spec_part(subject: KeepalivedGroup | VIPPool, field: str) -> object:
    """The field of ``spec`` that contains the path *field*; all of ``spec`` and the labels for a path outside it."""
    parts: dict[str, Any] = msgspec.to_builtins(subject.spec)
    name = field.removeprefix("spec.").partition(".")[0].partition("[")[0]
    return parts.get(name) if field.startswith("spec.") else (parts, subject.metadata.labels)
