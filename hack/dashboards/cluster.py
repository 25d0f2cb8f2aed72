"""The dashboard of the cluster: whether all VIPs answer, and whether the controller works."""

from typing import Final

from hack.dashboards.model import Dashboard, Health, Kind, Panel, Query, Row, Unit, legend, quantiles, rate
from hack.dashboards.shared import ALERTS_OF_VIPS, agents, services
from kavip.names import Reason

_UNANSWERED: Final = "|".join(
    (Reason.NO_MASTER, Reason.SPLIT_BRAIN, Reason.ADDRESS_CONFLICT, Reason.ENDPOINTS_OUTSIDE_GROUP)
)
_SUMMARY: Final = Row(
    "Summary",
    (
        Panel(
            title="Leaders",
            description="Replicas that run the controller. Exactly one should.",
            queries=(Query("sum(kavip_leader) or vector(0)"),),
            kind=Kind.STAT,
            health=Health.NONE_IS_BAD,
            alerts=("KavipLeaderMissing",),
        ),
        Panel(
            title="Groups",
            description="Groups that the leader measures. It is 0 while no replica leads.",
            queries=(Query("count(count by (group) (kavip_services_advertised)) or vector(0)"),),
            kind=Kind.STAT,
        ),
        Panel(
            title="VIPs held",
            description="Services whose VIPs one node holds.",
            queries=(Query(f'sum(kavip_services_advertised{{reason=~"{Reason.MASTER}|{Reason.NO_ENDPOINTS}"}})'),),
            kind=Kind.STAT,
        ),
        Panel(
            title="VIPs that do not answer",
            description="Services whose VIPs no node holds, several machines hold, or whose endpoints are all on "
            "nodes outside the group.",
            queries=(Query(f'sum(kavip_services_advertised{{reason=~"{_UNANSWERED}"}})'),),
            kind=Kind.STAT,
            health=Health.SOME_IS_BAD,
            alerts=(*ALERTS_OF_VIPS, "KavipAddressConflict"),
        ),
        Panel(
            title="Services that wait",
            description="Services that get no address, for whatever reason.",
            queries=(Query("sum(kavip_services_waiting) or vector(0)"),),
            kind=Kind.STAT,
            health=Health.SOME_IS_BAD,
            alerts=("KavipPoolExhausted", "KavipServicesWaiting"),
        ),
        Panel(
            title="Silent agents",
            description="Nodes whose agent does not answer any more.",
            queries=(Query('sum(kavip_agents{state="silent"}) or vector(0)'),),
            kind=Kind.STAT,
            health=Health.SOME_IS_BAD,
            alerts=("KavipAgentsSilent",),
        ),
    ),
)

_CONTROLLER: Final = Row(
    "Controller",
    (
        Panel(
            title="Reconciles",
            description="Reconciles per second, by kind of object and by result. Errors are repeated with a growing "
            "delay; conflicts are normal while others write the same object.",
            queries=(rate("kavip_reconcile_total", "kind", "result"),),
            unit=Unit.PER_SECOND,
            alerts=("KavipReconcileErrors",),
        ),
        Panel(
            title="Duration of a reconcile",
            description="The median and the 99th percentile, with the writes to the API server.",
            queries=quantiles("kavip_reconcile_seconds", "kind"),
            unit=Unit.DURATION,
        ),
        Panel(
            title="Work queue",
            description="Objects that wait for a reconcile. It grows for a moment after a start or a change of many "
            "objects.",
            queries=(Query("max(kavip_workqueue_depth)", "waiting"),),
        ),
        Panel(
            title="Probes of agents",
            description="Questions of the controller to the agents per second, by result.",
            queries=(rate("kavip_agent_looks_total", "result"),),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Requests to the API server",
            description="Requests of all replicas per second, by verb and status. 409 is a conflict of writes.",
            queries=(rate("kavip_api_requests_total", "verb", "code"),),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Watches",
            description="Failed lists and watches, and malformed objects, per second. A few are normal when the API "
            "server restarts.",
            queries=(rate("kavip_watch_errors_total", "kind"),),
            unit=Unit.PER_SECOND,
            alerts=("KavipWatchBroken",),
        ),
        Panel(
            title="Caches",
            description="Whether the caches of all replicas are synced (1), by kind of object. The controller starts "
            "when they are.",
            queries=(Query("min by (kind) (kavip_informer_synced)", legend("kind")),),
        ),
        Panel(
            title="Events that were not sent",
            description="Kubernetes Events dropped per second. Conditions and metrics are not affected.",
            queries=(Query("sum(rate(kavip_events_dropped_total[$__rate_interval]))", "dropped"),),
            unit=Unit.PER_SECOND,
            alerts=("KavipEventsDropped",),
        ),
        Panel(
            title="Versions",
            description="Replicas of kavip by version. During an upgrade there are two.",
            queries=(Query("count by (version) (kavip_build_info)", legend("version")),),
        ),
    ),
)

CLUSTER: Final = Dashboard(
    name="cluster",
    title="kavip / Cluster",
    description="Whether all VIPs answer, and whether the controller works.",
    rows=(_SUMMARY, Row("VIPs and nodes", (services(""), agents(""))), _CONTROLLER),
)
