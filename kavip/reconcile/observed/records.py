"""
What the controller records of its own plans and writes, because no cache shows it yet or ever.

Worker and writer keep it, decisions only read it. A new leader starts without it: then objects are applied once more,
and what was in the way or refused is tried again. A process that leads again keeps the rest of it
(:meth:`Records.settle`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from kavip import names
from kavip.reconcile.observed.ownership import OwnerConflict
from kavip.reconcile.plan import AddressRemoval, Allowance, Apply, GroupRecord, GroupReservation

RECHECK: Final = 60.0
"""Seconds after which a foreign object, or what the API server refuses again and again, is tried again."""

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
    """
    What the API server refused with *message* at the time *since*, for the *times*-th time.

    *digest* identifies it: that of a body, the value of an annotation, or the UID of a pod to delete.
    """

    digest: str
    message: str
    since: datetime
    times: int = 1

    def delay(self, digest: str, now: datetime) -> float:
        """
        The seconds until that with *digest* is tried again; 0 if now.

        An admission policy may change, or apply to a new group only after a moment: the delay doubles from a second.
        """
        longest = min(RECHECK, 2.0 ** (self.times - 1))
        return max(0.0, longest - (now - self.since).total_seconds()) if digest == self.digest else 0.0


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
    pod that was deleted last; *pods*, the last refusal of a write to its pods. By Service: *removals*, the addresses
    that other controllers removed. *pod_allowance*: how many pods of all groups may be annotated.
    """

    applied: dict[str, AppliedObject] = field(default_factory=dict)
    conflicts: dict[str, ObjectConflict] = field(default_factory=dict)
    rejected: dict[str, RejectedObject] = field(default_factory=dict)
    groups: dict[str, GroupRecord] = field(default_factory=dict)
    replaced: dict[str, ReplacedPod] = field(default_factory=dict)
    pods: dict[str, RejectedObject] = field(default_factory=dict)
    removals: dict[str, AddressRemoval] = field(default_factory=dict)
    pod_allowance: Allowance = field(default_factory=Allowance)

    def group(self, group: str) -> GroupRecord:
        """The record of the last plan of *group*; an empty one before the first."""
        return self.groups.get(group, _NO_RECORD)

    @property
    def reserved(self) -> Mapping[str, GroupReservation]:
        """By group, what no other group may take."""
        return {key: record.reservation for key, record in self.groups.items()}

    def settle(self) -> None:
        """
        Begin a term: forget what was reserved by writes, because the caches show every write that was done.

        The times since which masters are unknown are dropped too: between two terms the agents were not asked.
        """
        new = GroupRecord()
        self.groups = {
            key: replace(
                record,
                reservation=new.reservation,
                unconfirmed=new.unconfirmed,
                unconfirmed_masters=new.unconfirmed_masters,
            )
            for key, record in self.groups.items()
        }

    def forget_group(self, group: str) -> None:
        """Forget a *group* that is gone."""
        self.groups.pop(group, None)
        self.replaced.pop(group, None)
        self.pods.pop(group, None)
        for records in (self.applied, self.conflicts, self.rejected):
            for name in [
                name for name in records if name.endswith((f" {group}", f" {group}{names.PROMETHEUS_ROLE_SUFFIX}"))
            ]:
                del records[name]


def rejected_again(last: RejectedObject | None, digest: str, message: str, now: datetime) -> RejectedObject:
    """The record of a refusal after the *last* one."""
    times = last.times + 1 if last is not None and last.digest == digest else 1
    return RejectedObject(digest, message, now, times)


def record_key(write: Apply) -> str:
    """The key under which :class:`Records` has the object of *write*."""
    return f"{write.kind} {write.key}"
