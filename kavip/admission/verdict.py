"""
A verdict: all findings about one object, and the one-line text of a finding.

Each message is complete without its field path: kubectl prints the causes of a 422 as ``field: message``, but of a 403
it prints the messages alone.
"""

from dataclasses import dataclass, replace
from typing import Final

from kavip import names
from kavip.admission.text import bounded
from kavip.api.address import Address
from kavip.api.patch import Step
from kavip.api.refusal import LONGEST_FIELD, Refusal
from kavip.api.text import clipped_line, one_line
from kavip.snapshot import Snapshot

EXEMPTED: Final = "accepted because you may create services/externalips: "
UNCHANGED: Final = "accepted because the field is unchanged: "


@dataclass(frozen=True, slots=True)
class AdmissionWarning:
    """The object is accepted, but something in it has no effect or a bad one."""

    message: str
    field: str = ""

    def __post_init__(self) -> None:
        """Make the field printable, as that of a :class:`~kavip.api.refusal.Refusal`."""
        object.__setattr__(self, "field", clipped_line(self.field, LONGEST_FIELD))


@dataclass(frozen=True, slots=True)
class MissingReference:
    """A group or a pool that does not exist yet: by its *key*, a pool also by an *address* in it."""

    kind: str
    key: str = ""
    address: Address | None = None

    def exists(self, snapshot: Snapshot) -> bool:
        """Whether *snapshot* has it now."""
        if self.address is not None:
            return snapshot.parsed_pools.pool_of(self.address) is not None
        return self.key in (snapshot.groups if self.kind == names.KEEPALIVED_GROUP else snapshot.pools)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings about one object; the object is allowed if there is no refusal."""

    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[Step, ...] = ()
    missing: tuple[MissingReference, ...] = ()
    """If one of them exists after a short wait, the object is evaluated again."""
    exemptible: frozenset[Refusal] = frozenset()
    """Those of *refusals* that do not apply to users who may ``create`` ``services/externalips``."""
    conditional: tuple[Refusal, ...] = ()
    """Further refusals, for users who may not ``create`` ``daemonsets`` in the namespace of the object."""

    @property
    def allowed(self) -> bool:
        """Whether the object is accepted."""
        return not self.refusals

    def exempted(self) -> "Verdict":
        """The verdict for a user who may ``create`` ``services/externalips``: those refusals become warnings."""
        remaining = tuple(each for each in self.refusals if each not in self.exemptible)
        lifted = (f"{EXEMPTED}{describe(each)}" for each in self.refusals if each in self.exemptible)
        return replace(self, refusals=remaining, warnings=(*self.warnings, *lifted), exemptible=frozenset())

    def restricted(self) -> "Verdict":
        """
        The verdict for a user who may not ``create`` ``daemonsets`` in the namespace of the object.

        An object with other refusals keeps these alone: the user is looked up only for one that has none.
        """
        return replace(self, refusals=self.refusals or self.conditional, conditional=())


def describe(finding: Refusal | AdmissionWarning) -> str:
    """One line: field path, value, remedy."""
    return f"{finding.field}: {message_of(finding)}" if finding.field else message_of(finding)


def message_of(finding: Refusal | AdmissionWarning) -> str:
    """One line without the field path."""
    text = bounded(one_line(finding.message))
    return text.removeprefix(f"{finding.field}: ") if finding.field else text
