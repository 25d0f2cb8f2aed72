"""
Whether keepalived-operator still runs: two controllers of one group would fight over its VIPs.

Its Deployment says so, or its Lease while somebody renews it. A Lease that is merely there says nothing: it outlives
its holder. So each is watched for as long as its holder asked for, on the monotonic clock; the times that stand in it
are another machine's. Until that is known kavip writes nothing, not even why.
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
"""Seconds for which a Lease holds that does not say."""


@dataclass(frozen=True, slots=True)
class WritesBlocked:
    """Why kavip writes nothing: *who* runs, by object; nobody: it is not known yet."""

    who: tuple[str, ...] = ()

    @property
    def verdict(self) -> ConditionState:
        """What groups are told."""
        message = (
            f"keepalived-operator is running ({'; '.join(self.who)}), so kavip writes nothing: scale its Deployment to "
            "0 or delete it (installed by OLM: delete its Subscription and ClusterServiceVersion); then kavip begins"
        )
        return ConditionState("False", Reason.OLD_OPERATOR_RUNNING, message)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A Lease, unchanged *since*; *renewed*: it has been seen to change."""

    lease: Lease
    since: float
    renewed: bool = False

    def is_held(self, at: float) -> bool:
        spec = self.lease.spec
        return bool(spec.holder_identity) and at <= self.since + (spec.lease_duration_seconds or DURATION)


@dataclass(slots=True)
class OperatorWatch:
    """What has been seen of keepalived-operator. Times are seconds of the monotonic clock."""

    _leases: dict[str, _Watched] = field(default_factory=dict)
    _deployments: dict[str, Deployment] = field(default_factory=dict)

    def see(self, old: OperatorObject | None, new: OperatorObject | None, *, at: float) -> None:
        """Take what an informer tells."""
        match new:
            case Lease():
                key = new.metadata.key
                before = self._leases.get(key)
                if before is None or before.lease.spec != new.spec:
                    self._leases[key] = _Watched(new, at, renewed=before is not None)
            case Deployment():
                self._deployments[new.metadata.key] = new
            case None if old is not None:
                store = self._leases if isinstance(old, Lease) else self._deployments
                store.pop(old.metadata.key, None)

    def blink(self, *, at: float) -> None:
        """Nothing was seen of late: whether a Lease was renewed meanwhile is not known."""
        for key, each in self._leases.items():
            if each.is_held(at):
                self._leases[key] = replace(each, since=at)

    def hindrance(self, at: float) -> WritesBlocked | None:
        """Why kavip may not write; None: it may."""
        held = [each for _, each in sorted(self._leases.items()) if each.is_held(at)]
        running = [each for _, each in sorted(self._deployments.items()) if each.is_running]
        who = [f"{names.DEPLOYMENT} {each.metadata.key}" for each in running]
        who += [
            f"{names.LEASE} {each.lease.metadata.key}, which {each.lease.spec.holder_identity} renews"
            for each in held
            if each.renewed
        ]
        return WritesBlocked(tuple(who)) if who or held else None
