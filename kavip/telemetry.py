"""
Logs and metrics.

Logs: structlog, JSON unless on a terminal. The event of a line is a stable lower-case phrase; values are fields.

Metrics: all are declared here, in kavip's own registry. Every label set that is known in advance starts at 0, so
``rate()`` and alerts work from the first scrape. Only pools and groups are labels; other objects never are.
"""

import logging
import sys
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kavip import __version__, names
from kavip.api.text import printable

REGISTRY: Final = CollectorRegistry()
LABELS: Final[dict[str, tuple[str, ...]]] = {}
"""The labels of each metric, by its name without the suffix of its type."""
_FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PATIENT: Final = (*_FAST, 5.0, 10.0, 30.0, 60.0)


def _counter(name: str, doc: str, *labels: str) -> Counter:
    return Counter(_labelled(name, labels), doc, labels, registry=REGISTRY)


def _gauge(name: str, doc: str, *labels: str) -> Gauge:
    return Gauge(_labelled(name, labels), doc, labels, registry=REGISTRY)


def _histogram(name: str, doc: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(_labelled(name, labels), doc, labels, registry=REGISTRY, buckets=buckets)


def _labelled(name: str, labels: tuple[str, ...]) -> str:
    """The whole name of a metric, whose *labels* are recorded."""
    whole = names.METRIC_PREFIX + name
    LABELS[whole.removesuffix("_total")] = labels
    return whole


BUILD_INFO: Final = _gauge("build_info", "Version of kavip; always 1.", "version")
LEADER: Final = _gauge("leader", "Whether this replica runs the controller.")
RESULTS: Final = ("done", "error", "conflict", "withheld")
"""The results of a reconcile."""
RECONCILES: Final = _counter(
    "reconcile_total",
    "Reconciles. result: done, error, conflict (a write got a 409), withheld if the lease was lost before the write.",
    "kind",
    "result",
)
RECONCILE_SECONDS: Final = _histogram("reconcile_seconds", "Duration of a reconcile, including writes.", "kind")
QUEUE_DEPTH: Final = _gauge("workqueue_depth", "Keys in the work queue.")
API_REQUESTS: Final = _counter("api_requests_total", "Requests to the API server.", "verb", "code")
WATCH_ERRORS: Final = _counter(
    "watch_errors_total", "Failed lists and watches of kinds that are installed, and malformed objects.", "kind"
)
INFORMER_SYNCED: Final = _gauge("informer_synced", "Whether the cache of a kind is synced.", "kind")
EVENTS_DROPPED: Final = _counter(
    "events_dropped_total", "Kubernetes Events that were not sent: the queue was full, or the API server refused them."
)
REVIEWS: Final = _counter(
    "webhook_requests_total", "Admission reviews answered. verdict: allowed, denied, error.", "path", "verdict"
)
REVIEW_SECONDS: Final = _histogram("webhook_request_seconds", "Time to answer one admission review.", "path")
CERTIFICATE_EXPIRY: Final = _gauge(
    "certificate_expiry_timestamp_seconds", "When a certificate of the webhook or of /metrics expires.", "certificate"
)
POOL_ADDRESSES: Final = _gauge(
    "pool_addresses",
    "Addresses of a pool in force, as its status has them. state: total, assigned, available, cooling.",
    *("pool", "family", "state"),
)
EVICTIONS: Final = _counter(
    "connections_evicted_total", "Connections that were closed because a port had too many.", "port"
)
SERVICES_WAITING: Final = _gauge(
    "services_waiting",
    "Services whose AddressAssigned is False, by reason and by the first pool that they wait for (empty: none). "
    "Only on the leader.",
    *("pool", "reason"),
)
SERVICES_ADVERTISED: Final = _gauge(
    "services_advertised",
    "Services by the reason of their condition Advertised. Only on the leader.",
    "group",
    "reason",
)
GROUP_VIRTUAL_IPS: Final = _gauge(
    "group_virtual_ips",
    "VIPs of a group itself (spec.virtualIPs) by their state, with the reasons of Advertised. Only on the leader.",
    "group",
    "reason",
)
VRID_COLLISIONS: Final = _gauge(
    "group_vrid_collisions",
    "VRIDs of a group that another router uses, according to keepalived's counters. Only on the leader.",
    "group",
)
DUPLICATE_ADDRESSES: Final = _gauge(
    "group_duplicate_addresses",
    "VIPs of a group that another machine on the LAN claims, according to the agents. Only on the leader.",
    "group",
)
GROUP_CONDITIONS: Final = _gauge(
    "group_conditions",
    "Status and reason of the conditions Accepted, Programmed and Ready of a group; always 1. Only on the leader.",
    *("group", "type", "status", "reason"),
)
AGENTS: Final = _gauge(
    "agents",
    "Nodes by the state of their agent: answering, or silent after it has answered before. Only on the leader.",
    "group",
    "state",
)
AGENT_PROBES: Final = _counter(
    "agent_looks_total",
    "Probes of agents. result: answered, unanswered, unreadable.",
    "result",
)
ALLOCATION_SECONDS: Final = _histogram(
    "allocation_seconds",
    "Time from when the leader sees that a Service needs addresses, or that they were freed for it, to the response to "
    "the write that assigns them.",
    buckets=_PATIENT,
)
COOLDOWN_RECOVERIES: Final = _counter(
    "cooldown_recoveries_total",
    "Terms that began with a gap since the version up to which cool-downs are persisted. result: complete; partial if "
    "the changes since then were not replayed; expired if the API server no longer had that version.",
    "result",
)
ADDRESS_CONFLICTS: Final = _counter(
    "address_conflicts_total",
    "Conflicts about an address. reason: TwoServices hold it, or a NodeOrGroup has it too (counted by each replica); "
    "WriteConflict: a write of it got a 409.",
    "reason",
)

BUILD_INFO.labels(__version__).set(1)
for _conflict in names.Contest:
    ADDRESS_CONFLICTS.labels(_conflict)
for _result in ("complete", "partial", "expired"):
    COOLDOWN_RECOVERIES.labels(_result)
for _probe in ("answered", "unanswered", "unreadable"):
    AGENT_PROBES.labels(_probe)
for _port in ("webhook", "metrics", "probe"):
    EVICTIONS.labels(_port)
for _kind in ("service", "group", "pool"):
    RECONCILE_SECONDS.labels(_kind)
    for _result in RESULTS:
        RECONCILES.labels(_kind, _result)
for _path in (
    names.MUTATE_SERVICE_PATH,
    names.MUTATE_GROUP_PATH,
    names.VALIDATE_SERVICE_PATH,
    names.VALIDATE_GROUP_PATH,
    names.VALIDATE_POOL_PATH,
):
    REVIEW_SECONDS.labels(_path)
    for _verdict in ("allowed", "denied", "error"):
        REVIEWS.labels(_path, _verdict)


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)


def configure_logging(level: str, form: str) -> None:
    """Write the lines of structlog and of the standard library to stderr; *form* is auto, json or text."""
    number = logging.getLevelNamesMapping()[level.upper()]
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer = structlog.dev.ConsoleRenderer(colors=False) if as_text else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _escape, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    # Below level warning libraries log request lines, and kubernetes_asyncio logs response bodies, including Secrets.
    for noisy in ("aiohttp", "asyncio", "kubernetes_asyncio", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _escape(logger: object, method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:  # noqa: ARG001 - structlog's signature
    """Escape what could forge a line of the log, or what a terminal shows. Only tracebacks keep their lines."""
    for field, value in line.items():
        if isinstance(value, str):
            rows = value.splitlines() if field in _TRACEBACKS else [value]
            line[field] = "\n".join(map(printable, rows))
    return line


_TRACEBACKS: Final = frozenset({"exception", "stack"})
