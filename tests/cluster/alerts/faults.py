"""
The table of faults: each breaks one thing, and fires one alert.

While it lasts, *consequences* may fire too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hack.demo.session import Session
from kavip.names import Reason
from tests.cluster.alerts import breaking
from tests.cluster.alerts.shop import GROUP
from tests.cluster.prometheus import Alert
from tests.cluster.site import SHOP

_OF_GROUP: Final = {"group": GROUP}


@dataclass(frozen=True, slots=True)
class Fault:
    """During *breaks*, which is mended afterwards, *alert* fires with *labels*, and at most *consequences* with it."""

    alert: str
    breaks: Callable[[Session], breaking.Broken]
    labels: Mapping[str, str] = field(default_factory=dict)
    consequences: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What is broken."""
        return (self.breaks.__doc__ or "").rstrip(".")

    def is_own(self, alert: Alert) -> bool:
        """Whether *alert* is the one that must fire."""
        return alert.name == self.alert and self.labels.items() <= alert.labels.items()


FAULTS: Final[Sequence[Fault]] = (
    Fault(
        "KavipVIPWithoutMaster",
        breaking.no_node,
        _OF_GROUP,
        ("KavipPodsNotReady", "KavipNodesBehind", "KavipVIPHolderUnknown"),
    ),
    Fault("KavipPoolExhausted", breaking.full_pool, {"pool": "single"}),
    Fault("KavipPoolNearlyExhausted", breaking.nearly_full_pool, {"pool": "ten", "family": "ipv4"}),
    Fault("KavipServicesWaiting", breaking.no_pool, {"reason": Reason.NO_POOL}),
    Fault("KavipEndpointsOutsideGroup", breaking.pod_outside, _OF_GROUP),
    # a new pod without a password does not start keepalived
    Fault(
        "KavipConfigurationRefused",
        breaking.no_secret,
        {"group": "lb/locked", "reason": Reason.SECRET_MISSING},
        ("KavipVIPHolderUnknown", "KavipKeepalivedDown", "KavipPodsNotReady", "KavipNodesBehind"),
    ),
    Fault("KavipGroupNotAccepted", breaking.foreign_daemonset, {"group": "lb/taken", "reason": Reason.OBJECT_CONFLICT}),
    Fault("KavipHealthCheckFailing", breaking.failing_check, {"namespace": "lb", "check": "api"}),
    Fault("KavipAgentsSilent", breaking.silent_agent, _OF_GROUP, ("KavipPodsNotReady", "KavipVIPHolderUnknown")),
    Fault("KavipVIPHolderUnknown", breaking.silent_agents, _OF_GROUP, ("KavipPodsNotReady", "KavipAgentsSilent")),
    Fault("KavipLeaderMissing", breaking.no_leader),
    Fault("KavipAddressConflict", breaking.address_conflict, _OF_GROUP),
    Fault("KavipVIPSplitBrain", breaking.split_brain, _OF_GROUP, ("KavipVIPFlapping",)),
    Fault(
        "KavipVIPFlapping",
        breaking.flapping,
        {"namespace": "lb", "name": f"{SHOP}/web"},
        ("KavipVIPFlapping", "KavipVIPSplitBrain"),
    ),
    Fault("KavipVRIDCollision", breaking.other_router, _OF_GROUP),
    Fault(
        "KavipNodesBehind", breaking.hanging_kubelet, {**_OF_GROUP, "reason": Reason.PENDING}, ("KavipPodsNotReady",)
    ),
    Fault(
        "KavipKeepalivedDown",
        breaking.dying_keepalived,
        {"namespace": "lb"},
        ("KavipPodsNotReady", "KavipNodesBehind"),
    ),
    Fault(
        "KavipPodsNotReady",
        breaking.no_image,
        {**_OF_GROUP, "reason": Reason.PODS_NOT_READY},
        ("KavipAgentsSilent", "KavipNodesBehind"),
    ),
    Fault("KavipEventsDropped", breaking.no_right_to_events),
    Fault("KavipReconcileErrors", breaking.no_right_to_write, {"kind": "service"}),
    Fault("KavipCertificateExpiring", breaking.expiring_certificate, {"certificate": "leaf"}),
    Fault("KavipWatchBroken", breaking.no_right_to_watch, {"kind": "VIPPool"}, ("KavipLeaderMissing",)),
)

UNTRIED: Final = {
    "KavipWebhookErrors": "it is a fault of kavip",
    "KavipWebhookSlow": "a webhook that hangs does not measure that",
}
"""The alerts without a fault, and why."""
