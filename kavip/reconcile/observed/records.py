"""
What the controller records of its own plans and writes, because no cache shows it yet or ever.

Worker and writer keep it, decisions only read it. A new leader starts without it: then objects are applied once more,
and what was in the way or refused is tried again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from kavip import names
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.plan import AddressRemoval, Apply, GroupRecord, GroupReservation

_NO_RECORD: Final = GroupRecord()


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """What was last applied under a key: the *digest* of the body, and which object came out of it."""

    digest: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class ObjectConflict:
    """An object of a name that kavip needs and must leave alone, read at the time *since*."""

    owner: OwnerConflict
    since: datetime


@dataclass(frozen=True, slots=True)
class RejectedObject:
    """A body, by *digest*, that the API server refused with *message* at the time *since*."""

    digest: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ReplacedPod:
    """The pod *uid* that was deleted to be replaced; not *is_done* until the API server has confirmed it."""

    uid: str
    is_done: bool


@dataclass(slots=True)
class Records:
    """
    The records of worker and writer.

    By ``Kind ns/name``: *applied*, *conflicts* and *rejected*. By group: *groups*, from its last plan; *replaced*, the
    pod that was deleted last. By Service: *removals*, the addresses that other controllers removed.
    """

    applied: dict[str, AppliedObject] = field(default_factory=dict)
    conflicts: dict[str, ObjectConflict] = field(default_factory=dict)
    rejected: dict[str, RejectedObject] = field(default_factory=dict)
    groups: dict[str, GroupRecord] = field(default_factory=dict)
    replaced: dict[str, ReplacedPod] = field(default_factory=dict)
    removals: dict[str, AddressRemoval] = field(default_factory=dict)

    def group(self, group: str) -> GroupRecord:
        """The record of the last plan of *group*; an empty one before the first."""
        return self.groups.get(group, _NO_RECORD)

    @property
    def reserved(self) -> Mapping[str, GroupReservation]:
        """By group, what no other group may take."""
        return {key: record.reservation for key, record in self.groups.items()}

    def settle(self) -> None:
        """Forget what was reserved by writes: the caches show every write that was done."""
        self.groups = {key: replace(record, reservation=GroupReservation()) for key, record in self.groups.items()}

    def forget_group(self, group: str) -> None:
        """Forget a *group* that is gone."""
        self.groups.pop(group, None)
        self.replaced.pop(group, None)
        for records in (self.applied, self.conflicts, self.rejected):
            for name in [
                name for name in records if name.endswith((f" {group}", f" {group}{names.PROMETHEUS_ROLE_SUFFIX}"))
            ]:
                del records[name]


def record_key(write: Apply) -> str:
    """The key under which :class:`Records` has the object of *write*."""
    return f"{write.kind} {write.key}"
