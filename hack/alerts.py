"""
The table of kavip's alerts: what fires, when, and how urgent it is.

``make reference`` writes it as rules (:mod:`hack.alertrules`) and into the page of the runbooks, whose prose is written
there by hand. Metrics of the leader are gone while no replica leads: their alerts end, and ``KavipLeaderMissing``
begins. Expressions drop the labels of the target unless the alert is about a node: which replica measured does not
matter.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kavip.names import ConditionType, Reason


class Severity(StrEnum):
    """*critical*: clients get no answer, or soon will not. *warning*: it works, but not as it should."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    One alert: *expr* has held for *lasts*, a duration of Prometheus ("": at once).

    *summary* is a template of Prometheus, with the labels and the value of *expr*.
    """

    name: str
    expr: str
    lasts: str = ""
    severity: Severity
    summary: str


@dataclass(frozen=True, slots=True)
class Section:
    """Alerts about one subject."""

    title: str
    alerts: tuple[Alert, ...]


def _advertised(reason: Reason) -> str:
    metrics = "kavip_services_advertised|kavip_group_virtual_ips"
    return f'sum by (group) ({{__name__=~"{metrics}",reason="{reason}"}}) > 0'


def _condition(kind: ConditionType, reasons: str) -> str:
    return f'max by (group, reason) (kavip_group_conditions{{type="{kind}",status="False",{reasons}}}) == 1'


def _condition_of_accepted(kind: ConditionType, reasons: str) -> str:
    """The same, of groups that kavip serves: the others have no configuration and no pods, because of that."""
    refused = f'kavip_group_conditions{{type="Accepted",status="False",reason!="{Reason.DUPLICATE_DEFAULT}"}}'
    return f"{_condition(kind, reasons)} unless on (group) {refused}"


_WAITING_FOR_ROOM: Final = f'kavip_services_waiting{{reason="{Reason.POOL_EXHAUSTED}"}}'

_VIPS: Final = Section(
    "VIPs",
    (
        Alert(
            name="KavipVIPWithoutMaster",
            expr=_advertised(Reason.NO_MASTER),
            lasts="1m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} Services or virtualIPs of group {{ $labels.group }} have a VIP that no node holds.",
        ),
        Alert(
            name="KavipVIPSplitBrain",
            expr=_advertised(Reason.SPLIT_BRAIN),
            lasts="1m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} Services or virtualIPs of group {{ $labels.group }} have a VIP that several nodes "
            "hold.",
        ),
        Alert(
            name="KavipAddressConflict",
            expr=f"sum by (group) (kavip_group_duplicate_addresses) > 0 or {_advertised(Reason.ADDRESS_CONFLICT)}",
            lasts="1m",
            severity=Severity.CRITICAL,
            summary="Another machine on the network has VIPs of group {{ $labels.group }}.",
        ),
        Alert(
            name="KavipEndpointsOutsideGroup",
            expr=_advertised(Reason.ENDPOINTS_OUTSIDE_GROUP),
            lasts="5m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} Services of group {{ $labels.group }} have endpoints only on nodes outside it.",
        ),
        Alert(
            name="KavipVIPHolderUnknown",
            expr=_advertised(Reason.UNKNOWN),
            lasts="5m",
            severity=Severity.WARNING,
            summary="It is not known which node holds the VIPs of {{ $value }} Services or virtualIPs of group "
            "{{ $labels.group }}.",
        ),
        Alert(
            name="KavipVIPFlapping",
            # each move changes the label state, so the series of one state alone do not count the moves
            expr="sum by (namespace, name) (increase(max without (state) (keepalived_vrrp_become_master)[1h:])) > 5"
            " or sum by (namespace, iname) (increase(keepalived_become_master_total[1h])) > 5",
            severity=Severity.WARNING,
            summary="The VIPs of instance {{ $labels.name }}{{ $labels.iname }} moved "
            "{{ $value | printf `%.0f` }} times in an hour.",
        ),
        Alert(
            name="KavipVRIDCollision",
            expr="sum by (group) (kavip_group_vrid_collisions) > 0",
            lasts="1m",
            severity=Severity.WARNING,
            summary="Another router on the network uses {{ $value }} VRIDs of group {{ $labels.group }}.",
        ),
    ),
)

_ADDRESSES: Final = Section(
    "Addresses",
    (
        Alert(
            name="KavipPoolExhausted",
            expr=f"sum by (pool) ({_WAITING_FOR_ROOM}) > 0",
            lasts="1m",
            severity=Severity.CRITICAL,
            summary="{{ $value }} Services get no address, because pool {{ $labels.pool }} is full.",
        ),
        Alert(
            name="KavipPoolNearlyExhausted",
            expr='max by (pool, family) (kavip_pool_addresses{state="available"})'
            ' < 0.1 * max by (pool, family) (kavip_pool_addresses{state="total"} >= 10)'
            f" unless on (pool) {_WAITING_FOR_ROOM} > 0",
            lasts="10m",
            severity=Severity.WARNING,
            summary="Pool {{ $labels.pool }} has {{ $value }} free {{ $labels.family }} addresses left.",
        ),
        Alert(
            name="KavipServicesWaiting",
            expr=f'sum by (pool, reason) (kavip_services_waiting{{reason!="{Reason.POOL_EXHAUSTED}"}}) > 0',
            lasts="5m",
            severity=Severity.WARNING,
            summary="{{ $value }} Services get no address: {{ $labels.reason }}.",
        ),
    ),
)

_GROUPS: Final = Section(
    "Groups and nodes",
    (
        Alert(
            name="KavipGroupNotAccepted",
            expr=_condition(ConditionType.ACCEPTED, f'reason!="{Reason.OLD_OPERATOR_RUNNING}"'),
            lasts="5m",
            severity=Severity.WARNING,
            summary="Group {{ $labels.group }} is not accepted: {{ $labels.reason }}.",
        ),
        Alert(
            name="KavipConfigurationRefused",
            expr=_condition(ConditionType.PROGRAMMED, f'reason=~"{Reason.REFUSED_BY_AGENT}|{Reason.SECRET_MISSING}"'),
            lasts="5m",
            severity=Severity.WARNING,
            summary="Nodes of group {{ $labels.group }} refuse the configuration: {{ $labels.reason }}.",
        ),
        Alert(
            name="KavipNodesBehind",
            expr=_condition_of_accepted(ConditionType.PROGRAMMED, f'reason="{Reason.PENDING}"'),
            lasts="15m",
            severity=Severity.WARNING,
            summary="Nodes of group {{ $labels.group }} do not run the newest configuration.",
        ),
        Alert(
            name="KavipPodsNotReady",
            expr=_condition_of_accepted(ConditionType.READY, f'reason=~"{Reason.PODS_NOT_READY}|{Reason.NO_NODES}"'),
            lasts="30m",
            severity=Severity.WARNING,
            summary="Group {{ $labels.group }} lacks ready pods: {{ $labels.reason }}.",
        ),
        Alert(
            name="KavipAgentsSilent",
            expr='sum by (group) (kavip_agents{state="silent"}) > 0',
            lasts="5m",
            severity=Severity.WARNING,
            summary="The agents of {{ $value }} nodes of group {{ $labels.group }} do not answer any more.",
        ),
        Alert(
            name="KavipKeepalivedDown",
            expr="min by (namespace, pod, instance) (keepalived_up and on (instance) kavip_agent_config_current) == 0",
            lasts="5m",
            severity=Severity.WARNING,
            summary="keepalived does not run on {{ $labels.instance }}.",
        ),
        Alert(
            name="KavipHealthCheckFailing",
            expr="min by (namespace, pod, instance, check) (kavip_agent_check_up) == 0",
            lasts="5m",
            severity=Severity.WARNING,
            summary="Health check {{ $labels.check }} fails on {{ $labels.instance }}.",
        ),
    ),
)

_CONTROLLER: Final = Section(
    "Controller and webhook",
    (
        Alert(
            name="KavipLeaderMissing",
            expr="sum(kavip_leader) < 1 or absent(kavip_leader)",
            lasts="2m",
            severity=Severity.CRITICAL,
            summary="No replica of kavip leads: addresses are not assigned, and VIPs are not watched.",
        ),
        Alert(
            name="KavipWatchBroken",
            expr="sum by (kind) (increase(kavip_watch_errors_total[5m])) > 0",
            lasts="10m",
            severity=Severity.WARNING,
            summary="kavip fails to list or watch objects of kind {{ $labels.kind }}.",
        ),
        Alert(
            name="KavipReconcileErrors",
            # the longest back-off is five minutes, and a write and a scrape take time: each window has an error
            expr='sum by (kind) (increase(kavip_reconcile_total{result="error"}[8m])) > 0',
            lasts="15m",
            severity=Severity.WARNING,
            summary="Reconciles of kind {{ $labels.kind }} fail again and again.",
        ),
        Alert(
            name="KavipEventsDropped",
            expr="sum(increase(kavip_events_dropped_total[15m])) > 0",
            severity=Severity.WARNING,
            summary="kavip could not send {{ $value | printf `%.0f` }} Events.",
        ),
        Alert(
            name="KavipWebhookErrors",
            expr='sum by (path) (increase(kavip_webhook_requests_total{verdict="error"}[15m])) > 0',
            severity=Severity.WARNING,
            summary="The webhook {{ $labels.path }} failed to judge {{ $value | printf `%.0f` }} requests.",
        ),
        Alert(
            name="KavipWebhookSlow",
            expr="histogram_quantile(0.99, sum by (path, le) (rate(kavip_webhook_request_seconds_bucket[5m]))) > 1",
            lasts="10m",
            severity=Severity.WARNING,
            summary="The webhook {{ $labels.path }} needs {{ $value | humanize }} s for its slowest requests.",
        ),
        Alert(
            name="KavipCertificateExpiring",
            expr="min by (certificate) (kavip_certificate_expiry_timestamp_seconds) - time() < 86400",
            lasts="10m",
            severity=Severity.CRITICAL,
            summary="The certificate {{ $labels.certificate }} expires in {{ $value | humanizeDuration }}.",
        ),
    ),
)

SECTIONS: Final = (_VIPS, _ADDRESSES, _GROUPS, _CONTROLLER)
"""In the order of the page."""
ALERTS: Final = tuple(alert for section in SECTIONS for alert in section.alerts)
"""All of them, in that order."""
