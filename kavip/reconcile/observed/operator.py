"""
Whether keepalived-operator still runs: two controllers of one group would fight over its VIPs.

Its Deployment shows it, or its Lease while something renews it. A Lease that merely exists proves nothing: it outlives
its holder. So each Lease is watched for its whole duration on the monotonic clock; the times in it are by the clock of
another machine. Until the result is known kavip writes nothing, not even a condition.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from kavip import names
from kavip.api.lease import Lease
from kavip.api.workload import Deployment
from kavip.names import Reason
from kavip.reconcile.plan import ConditionState

OperatorObject = Lease | Deployment

DURATION: Final = 15
"""Seconds for which a Lease without a duration holds."""


@dataclass(frozen=True, slots=True)
class WritesBlocked:
    """kavip writes nothing, because keepalived-operator runs; *by*: its objects, empty while that is unknown."""

    by: tuple[str, ...] = ()

    @property
    def accepted(self) -> ConditionState:
        """The condition ``Accepted`` of the groups."""
        message = (
            f"keepalived-operator is running ({'; '.join(self.by)}), so kavip writes nothing: scale its Deployment to "
            "0 or delete it (installed by OLM: delete its Subscription and ClusterServiceVersion); then kavip begins"
        )
        return ConditionState("False", Reason.OLD_OPERATOR_RUNNING, message)


@dataclass(frozen=True, slots=True)
class _WatchedLease:
    """A Lease, unchanged *since*; *is_renewed*: it was seen to change."""

    lease: Lease
    since: float
    is_renewed: bool = False

    def is_held(self, at: float) -> bool:
        spec = self.lease.spec
        return bool(spec.holder_identity) and at <= self.since + (spec.lease_duration_seconds or DURATION)


@dataclass(slots=True)
class OperatorWatch:
    """The Leases and Deployments of keepalived-operator. Times are seconds of the monotonic clock."""

    _leases: dict[str, _WatchedLease] = field(default_factory=dict)
    _deployments: dict[str, Deployment] = field(default_factory=dict)

    def store(self, old: OperatorObject | None, new: OperatorObject | None, *, at: float) -> None:
        """Replace *old* by *new*, as an informer saw it."""
        match new:
            case Lease():
                key = new.metadata.key
                before = self._leases.get(key)
                if before is None or before.lease.spec != new.spec:
                    self._leases[key] = _WatchedLease(new, at, is_renewed=before is not None)
            case Deployment():
                self._deployments[new.metadata.key] = new
            case None if old is not None:
                store = self._leases if isinstance(old, Lease) else self._deployments
                store.pop(old.metadata.key, None)

    def restart_leases(self, *, at: float) -> None:
        """Start the duration of held Leases again: the watch is broken, so a renewal would not have been seen."""
        for key, each in self._leases.items():
            if each.is_held(at):
                self._leases[key] = replace(each, since=at)

    def blocked(self, at: float) -> WritesBlocked | None:
        """Why kavip must not write; None: it may."""
        held = [each for _, each in sorted(self._leases.items()) if each.is_held(at)]
        running = [each for _, each in sorted(self._deployments.items()) if each.is_running]
        by = [f"{names.DEPLOYMENT} {each.metadata.key}" for each in running]
        by += [
            f"{names.LEASE} {each.lease.metadata.key}, which {each.lease.spec.holder_identity} renews"
            for each in held
            if each.is_renewed
        ]
        return WritesBlocked(tuple(by)) if by or held else None
