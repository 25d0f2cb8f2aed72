"""
Logs and metrics.

Logs: structlog, JSON unless on a terminal; the message is a stable lower-case phrase, values are fields. Metrics: all
declared here, on a registry of our own, with every label set that is known beforehand created at 0, so that ``rate()``
and alerts work from the first scrape. Labels never carry names of objects, but for pools and groups.
"""

import logging
import sys
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kavip import __version__, names

REGISTRY: Final = CollectorRegistry()
_FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PATIENT: Final = (*_FAST, 5.0, 10.0, 30.0, 60.0)


def _counter(name: str, doc: str, *labels: str) -> Counter:
    return Counter(names.METRIC_PREFIX + name, doc, labels, registry=REGISTRY)


def _gauge(name: str, doc: str, *labels: str) -> Gauge:
    return Gauge(names.METRIC_PREFIX + name, doc, labels, registry=REGISTRY)


def _histogram(name: str, doc: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(names.METRIC_PREFIX + name, doc, labels, registry=REGISTRY, buckets=buckets)


BUILD_INFO: Final = _gauge("build_info", "Version of kavip; always 1.", "version")
LEADER: Final = _gauge("leader", "Whether this replica runs the controller.")
RESULTS: Final = ("done", "error", "conflict", "withheld")
"""What becomes of a key that was worked on."""
RECONCILES: Final = _counter(
    "reconcile_total",
    "Keys worked on. result: withheld where the lease was lost before the write left.",
    "kind",
    "result",
)
RECONCILE_SECONDS: Final = _histogram("reconcile_seconds", "Time to work on one key, writes included.", "kind")
QUEUE_DEPTH: Final = _gauge("workqueue_depth", "Keys that wait for a worker.")
API_REQUESTS: Final = _counter("api_requests_total", "Calls to the API server.", "verb", "code")
WATCH_ERRORS: Final = _counter("watch_errors_total", "Watches that broke, and objects that could not be read.", "kind")
INFORMER_SYNCED: Final = _gauge("informer_synced", "Whether the cache of a kind is filled.", "kind")
EVENTS_DROPPED: Final = _counter("events_dropped_total", "Kubernetes Events that were never sent: the queue was full.")
REVIEWS: Final = _counter("webhook_requests_total", "Admission reviews answered.", "path", "verdict")
REVIEW_SECONDS: Final = _histogram("webhook_request_seconds", "Time to answer one admission review.", "path")
CERTIFICATE_EXPIRY: Final = _gauge(
    "certificate_expiry_timestamp_seconds", "When a certificate of the webhook ends.", "certificate"
)
POOL_ADDRESSES: Final = _gauge(
    "pool_addresses",
    "Addresses of a pool in force, as in its status. state: total, assigned, available, cooling.",
    *("pool", "family", "state"),
)
EVICTIONS: Final = _counter(
    "connections_evicted_total", "Idle connections that gave way to others: a port had no place left.", "port"
)
SERVICES_WAITING: Final = _gauge(
    "services_waiting",
    "Services whose AddressAssigned is False, each once: by its reason, and the first pool that it waits for (empty: "
    "none). The leader's alone.",
    *("pool", "reason"),
)
SERVICES_ADVERTISED: Final = _gauge(
    "services_advertised",
    "Services by the reason of their condition Advertised. The leader's alone.",
    "group",
    "reason",
)
VRID_COLLISIONS: Final = _gauge(
    "group_vrid_collisions",
    "VRIDs of a group that another router uses, as keepalived's counters show. The leader's alone.",
    "group",
)
AGENTS: Final = _gauge(
    "agents",
    "Nodes whose agents have answered. state: answering, silent (of late). The leader's alone.",
    "group",
    "state",
)
AGENT_LOOKS: Final = _counter(
    "agent_looks_total",
    "Times that an agent was asked for its state. result: answered, unanswered, unreadable.",
    "result",
)
ALLOCATION_SECONDS: Final = _histogram(
    "allocation_seconds",
    "From the moment the leader sees a Service without the addresses it asks for, or sees them freed for it, until the "
    "write that gives them is answered.",
    buckets=_PATIENT,
)
ADDRESS_CONFLICTS: Final = _counter(
    "address_conflicts_total",
    "Contests for an address. reason: TwoServices that hold it, NodeOrGroup that has it beside its holder, as each "
    "replica sees it; WriteConflict, a write of one that met a 409.",
    "reason",
)

BUILD_INFO.labels(__version__).set(1)
for _conflict in names.Contest:
    ADDRESS_CONFLICTS.labels(_conflict)
for _look in ("answered", "unanswered", "unreadable"):
    AGENT_LOOKS.labels(_look)
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
    """Send structlog's and the standard library's lines to stderr, alike; *form* is auto, json or text."""
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
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    # Libraries below warning would print request lines, and kubernetes_asyncio response bodies with Secrets in them.
    for noisy in ("aiohttp", "asyncio", "kubernetes_asyncio", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
