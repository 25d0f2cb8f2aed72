"""
Chains of named rules, and how their findings become a verdict.

A chain is a tuple of rules and reads as a table of contents. Every rule is evaluated, so one response reports all
findings. Updates are ratcheted as Kubernetes ratchets CRD validation: if an UPDATE leaves the part of the object that a
rule reads as it was, and the old object has the same finding, the finding is a warning and the UPDATE is accepted.

The cost of a verdict is bounded by counts. A rule is evaluated at most once for the old object, and a chain collects at
most :data:`MAX_FINDINGS`. An object with more is only accepted if the UPDATE changes neither spec, labels nor
annotations.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from kavip.admission.verdict import UNCHANGED, AdmissionWarning, MissingReference, Verdict, describe
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.refusal import MAX_FINDINGS, Refusal
from kavip.names import Reason
from kavip.podtemplate.permissions import NOTHING_PERMITTED, TemplatePermissions
from kavip.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The settings of the same names."""

    allow_missing_group: str = "refuse"  # or "warn", for GitOps tools that apply Services before groups
    external_ips_scope: str = "managed"  # or "all", "off"
    ipam: str = "auto"  # or "always", "never"
    templates: TemplatePermissions = NOTHING_PERMITTED

    @classmethod
    def of(cls, *, template_namespaces: str, template_privileges: str, **settings: str) -> Self:
        """The options by *settings* of these names."""
        return cls(templates=TemplatePermissions.of(template_namespaces, template_privileges), **settings)


DEFAULTS: Final = PolicyOptions()
ALLOWED: Final = Verdict()
_TOO_MANY: Final = f"the object has more than {MAX_FINDINGS:,} problems; fix the others first"


@dataclass(frozen=True, slots=True)
class Exemptible:
    """A refusal that does not apply to users who may ``create`` ``services/externalips``."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Conditional:
    """A refusal that applies only to users who may not ``create`` ``daemonsets`` in the namespace of the object."""

    refusal: Refusal


Finding = Refusal | Exemptible | Conditional | AdmissionWarning | MissingReference
Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Context(Generic[T]):
    """
    The input of a rule besides the object: the cluster, and the object that an UPDATE starts from.

    *group* is the key of the group that a Service belongs to (:meth:`Snapshot.group_of`), looked up once; *old_group*
    that of *old*. *parsed* has the parsed objects by identity, because several rules need them.
    """

    snapshot: Snapshot
    old: T | None = None
    options: PolicyOptions = DEFAULTS
    group: str = ""
    old_group: str = ""
    parsed: dict[int, Any] = field(default_factory=dict)


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
    every = ((rule, finding) for rule in chain for finding in rule.evaluate(subject, context))
    findings = list(islice(every, MAX_FINDINGS + 1))
    if not findings:  # most reviews
        return ALLOWED
    collected = _Collected()
    for rule, same_rule in groupby(findings, key=itemgetter(0)):
        ratchet = None if since is None else _Ratchet(rule, subject, since, context)
        for _, finding in same_rule:
            collected.add(finding, ratchet)
    if len(findings) > MAX_FINDINGS:
        return collected.without_rest(is_unchanged=_is_same_object(subject, since))
    return collected.verdict()


@dataclass(slots=True)
class _Collected:
    """The findings of a chain."""

    refusals: dict[Refusal, None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    missing: list[MissingReference] = field(default_factory=list)
    exemptible: set[Refusal] = field(default_factory=set)
    conditional: dict[Refusal, None] = field(default_factory=dict)

    def add(self, finding: Finding, ratchet: "_Ratchet[Any] | None") -> None:
        """Sort *finding* in; *ratchet* is that of its rule on an UPDATE."""
        if isinstance(finding, AdmissionWarning):
            self.warnings.append(describe(finding))
            return
        if isinstance(finding, MissingReference):
            self.missing.append(finding)
            return
        if isinstance(finding, Conditional):
            self.conditional[finding.refusal] = None
            return
        refusal = _refusal(finding)
        if isinstance(finding, Exemptible):
            self.exemptible.add(refusal)
        if ratchet is not None and ratchet.is_unchanged(refusal):
            self.warnings.append(f"{UNCHANGED}{describe(refusal)}")
        else:
            self.refusals[refusal] = None

    def verdict(self) -> Verdict:
        """The verdict if these are all findings."""
        if not (self.refusals or self.warnings or self.conditional):
            return ALLOWED
        return Verdict(
            tuple(self.refusals),
            tuple(self.warnings),
            missing=tuple(self.missing),
            exemptible=frozenset(self.exemptible & self.refusals.keys()),
            conditional=tuple(self.conditional),
        )

    def without_rest(self, *, is_unchanged: bool) -> Verdict:
        """The verdict if evaluation stopped at :data:`MAX_FINDINGS`."""
        if is_unchanged:
            return Verdict(warnings=(f"{UNCHANGED}{_TOO_MANY}", *self.warnings, *map(describe, self.refusals)))
        return Verdict((*self.refusals, Refusal(Reason.INVALID, _TOO_MANY, "spec")), tuple(self.warnings))


class _Ratchet(Generic[T]):
    """Which findings of *rule* an UPDATE from *since* to *subject* may keep."""

    def __init__(self, rule: Rule[T], subject: T, since: T, context: Context[T]) -> None:
        self._rule, self._subject, self._since, self._context = rule, subject, since, context
        self._same: dict[str, bool] = {}  # by field

    def is_unchanged(self, refusal: Refusal) -> bool:
        """Whether the rule refuses *since* for the same cause, and the part of the object that it reads is the same."""
        return self._reads_the_same(refusal.field) and refusal in self._before

    def _reads_the_same(self, path: str) -> bool:
        name = field_of(path)
        if name not in self._same:
            self._same[name] = self._rule.reads(self._since, path) == self._rule.reads(self._subject, path)
        return self._same[name]

    @cached_property
    def _before(self) -> frozenset[Refusal]:
        """The refusals of *since*."""
        found = islice(
            self._rule.evaluate(self._since, replace(self._context, old=None, group=self._context.old_group)),
            MAX_FINDINGS,
        )
        return frozenset(_refusal(each) for each in found if isinstance(each, Refusal | Exemptible))


def _is_same_object(subject: Any, since: Any) -> bool:
    """Whether an UPDATE changes neither spec, labels nor annotations."""
    if since is None:
        return False
    new, old = subject.metadata, since.metadata
    return bool(subject.spec == since.spec and new.labels == old.labels and new.annotations == old.annotations)


def _refusal(finding: Refusal | Exemptible) -> Refusal:
    return finding.refusal if isinstance(finding, Exemptible) else finding


def field_of(path: str) -> str:
    """The field of ``spec`` that contains *path*; "" for a path outside ``spec``."""
    return path.removeprefix("spec.").partition(".")[0].partition("[")[0] if path.startswith("spec.") else ""


def spec_part(subject: KeepalivedGroup | VIPPool, path: str) -> object:
    """The field of ``spec`` that contains *path*; all of ``spec`` and the labels for a path outside it."""
    spec = subject.spec
    if name := field_of(path):
        return getattr(spec, _FIELDS[type(spec)].get(name, ""), None)
    return spec, subject.metadata.labels


_FIELDS: Final = {
    kind: {info.encode_name: info.name for info in msgspec.structs.fields(kind)} for kind in (GroupSpec, PoolSpec)
}
"""The attribute of each field of ``spec``."""
