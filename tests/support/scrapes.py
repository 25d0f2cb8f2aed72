"""What a scrape of kavip and of its agents returns, with every label set that a dashboard reads."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kavip import names, telemetry
from kavip.agent.report.dump import Data, Entry
from kavip.agent.report.health import CheckStatus
from kavip.agent.report.metrics import exposition
from kavip.agent.report.state import AgentStatus
from kavip.api.group import Check, KeepalivedGroup
from kavip.api.meta import Condition
from kavip.controller.metrics import GroupMetrics, PoolMetrics
from kavip.ipam.request import read_request
from kavip.names import Exporter
from kavip.reconcile.observed.agentstates import AgentStates, NodeState
from kavip.snapshot import Snapshot
from tests.reconcile.service.planning import with_condition
from tests.support import build

POOL = "edge"
_LABELLED = (
    (telemetry.CERTIFICATE_EXPIRY, ("leaf",)),
    (telemetry.INFORMER_SYNCED, ("Service",)),
    (telemetry.WATCH_ERRORS, ("Service",)),
    (telemetry.API_REQUESTS, ("get", "200")),
)
"""Metrics whose label sets appear with the first event."""


@contextmanager
def of_leader(*groups: str) -> Iterator[str]:
    """The metrics of a replica that leads: *groups* with a Service each, and a pool for which a Service waits."""
    services = [
        with_condition(build.service(f"shop/{number}", group=key), names.ConditionType.ADVERTISED, "True", "Master")
        for number, key in enumerate(groups)
    ]
    snapshot = Snapshot.from_objects([build.pool(POOL), *map(_accepted, groups), *services])
    assert snapshot.parsed_pools.get(POOL)
    request, _ = read_request(build.service("shop/waits", pool=POOL))
    snapshot.ledger.wait(request, (POOL,), reason="PoolExhausted")
    pools, of_groups = PoolMetrics(), GroupMetrics()
    pools.update(snapshot, leads=True)
    of_groups.update(snapshot, AgentStates({key: {"n1": NodeState()} for key in groups}))
    for metric, labels in _LABELLED:
        metric.labels(*labels)
    try:
        yield telemetry.exposition().decode()
    finally:
        pools.update(Snapshot(), leads=True)
        of_groups.update(Snapshot(), AgentStates())
        for metric, labels in _LABELLED:
            metric.remove(*labels)


def of_agent(style: Exporter) -> str:
    """The metrics of a node with one instance and one health check."""
    one = (Entry(Data("shop/web", vrid=1, state=2, ifp_ifname="eth0", vips=["192.0.2.129 dev eth0"])),)
    check = CheckStatus(Check("api", "https://192.0.2.1/"))
    return exposition(AgentStatus(node="n1", version="2.2.7", checks=(check,)), one, style=style).decode()


def _accepted(key: str) -> KeepalivedGroup:
    group = build.group(key)
    conditions = [Condition(type="Accepted", status="True", reason="Accepted")]
    return msgspec.structs.replace(group, status=msgspec.structs.replace(group.status, conditions=conditions))
