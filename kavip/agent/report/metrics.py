"""
Metrics in Prometheus' text format: the agent's own, then keepalived's by the names of another exporter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from kavip.agent.report import exporters
from kavip.agent.report.dump import STATES, Dump
from kavip.agent.report.state import AgentStatus
from kavip.api.agent import ConflictKind
from kavip.names import Exporter

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Collector:
    """Passes finished families to prometheus_client."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(status: AgentStatus, dump: Dump | None, *, style: Exporter) -> bytes:
    """All metrics of one scrape; *dump* is None if keepalived does not answer."""
    registry = CollectorRegistry(auto_describe=False)
    up = _gauge("keepalived_up", "Whether keepalived answers.", [((), dump is not None)])
    registry.register(_Collector([*_own(status, dump), up]))
    return generate_latest(registry) + exporters.TEXT[style](dump or ())


def _own(status: AgentStatus, dump: Dump | None) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "kavip_agent_config", "Hashes of the configuration that runs and of the one that is wanted."
    )
    info.add_metric((), {"running": status.config_hash, "wanted": status.wanted_hash})
    yield info
    version = InfoMetricFamily("kavip_agent_keepalived", "The keepalived program on this node.")
    version.add_metric((), {"version": status.version})
    yield version
    yield _gauge("kavip_agent_config_current", "Whether the wanted configuration runs.", [((), status.current)])
    yield _gauge(
        "kavip_agent_config_refused", "Whether the wanted one was refused.", [((), status.refused is not None)]
    )
    excluded = "Instances of the wanted one that this node refuses."
    yield _gauge("kavip_agent_left_out_instances", excluded, [((), len(status.excluded))])
    yield _counter("kavip_agent_reloads", "Reloads that the daemon was seen to carry out.", [((), status.reloads)])
    yield _counter(
        "kavip_agent_reload_failures", "Reloads that it did not survive or not confirm.", [((), status.failed_reloads)]
    )
    yield _counter(
        "kavip_agent_refusals", "Configurations refused before the daemon saw them.", [((), status.refusals)]
    )
    removed = "Addresses taken off that a daemon had left behind."
    yield _counter("kavip_agent_stale_addresses_removed", removed, [((), status.removed_addresses)])
    yield _gauge("kavip_agent_last_reload_seconds", "How long the last reload took.", [((), status.reload_seconds)])
    kinds = Counter(each.kind for each in status.conflicts)
    claimed: _Samples = [((kind.value,), kinds[kind]) for kind in (ConflictKind.WITHHELD, ConflictKind.HELD)]
    yield _gauge("kavip_agent_address_conflicts", "VIPs that another machine claims.", claimed, labels=("kind",))
    asked = "VIPs for which the LAN was asked."
    yield _counter("kavip_agent_probed_addresses", asked, [((), status.asked_addresses)])
    defended = "Announcements that defended a VIP against another machine."
    yield _counter("kavip_agent_defences", defended, [((), status.defences)])
    up: _Samples = [((each.check.name,), not each.health.fails) for each in status.checks]
    yield _gauge("kavip_agent_check_up", "Whether a health check passes.", up, labels=("check",))
    took: _Samples = [((each.check.name,), each.seconds) for each in status.checks]
    yield _gauge("kavip_agent_check_seconds", "How long its last answer took.", took, labels=("check",))
    count = dict.fromkeys(((str(family), state) for family in (4, 6) for state in STATES), 0)
    for each in dump or ():
        count[str(each.data.family), each.data.state_name] += 1
    yield _gauge("kavip_agent_instances", "VRRP instances.", list(count.items()), labels=("family", "state"))


_Samples = list[tuple[tuple[str, ...], float]]


def _gauge(name: str, doc: str, samples: _Samples, *, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=labels)
    for values, number in samples:
        family.add_metric(values, float(number))
    return family


def _counter(name: str, doc: str, samples: _Samples) -> Metric:
    family = CounterMetricFamily(name, doc, labels=())
    for values, number in samples:
        family.add_metric(values, number)
    return family
