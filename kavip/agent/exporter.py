"""
Metrics in Prometheus' text format: kavip's own, and those of the exporter that dashboards were built for.

keepalived-operator shipped gen2brain/keepalived_exporter, so its names and labels are the default; mehdy's
keepalived-exporter, the one in wider use, is the other choice. What the former got wrong is right here:
``keepalived_vrrp_ip_ttl_err`` shows TTL errors, not interval errors. What they tell of IPVS and of scripts is left out:
kavip's keepalived has neither.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from kavip.agent.dump import STATES, Dump, Entry
from kavip.agent.state import Status
from kavip.names import Exporter

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


_GEN2BRAIN: Final = {
    "advert_rcvd": "Advertisements received",
    "advert_sent": "Advertisements sent",
    "become_master": "Times this node became master",
    "release_master": "Times this node released master",
    "packet_len_err": "Packets with a wrong length",
    "advert_interval_err": "Advertisements with another interval",
    "ip_ttl_err": "Packets with a wrong TTL",
    "invalid_type_rcvd": "Packets of an invalid type",
    "addr_list_err": "Advertisements with other addresses",
    "invalid_authtype": "Packets with an unknown authentication type",
    "authtype_mismatch": "Packets with another authentication type",
    "auth_failure": "Packets with a wrong password",
    "pri_zero_rcvd": "Advertisements with priority 0 received",
    "pri_zero_sent": "Advertisements with priority 0 sent",
}
"""Field of the dump, which is also the end of the name, and its help text."""

MEHDY: Final = {
    "advert_rcvd": "advertisements_received",
    "advert_sent": "advertisements_sent",
    "become_master": "become_master",
    "release_master": "release_master",
    "packet_len_err": "packet_length_errors",
    "advert_interval_err": "advertisements_interval_errors",
    "ip_ttl_err": "ip_ttl_errors",
    "invalid_type_rcvd": "invalid_type_received",
    "addr_list_err": "address_list_errors",
    "invalid_authtype": "authentication_invalid",
    "authtype_mismatch": "authentication_mismatch",
    "auth_failure": "authentication_failure",
    "pri_zero_rcvd": "priority_zero_received",
    "pri_zero_sent": "priority_zero_sent",
}
"""Field of the dump, and what stands between ``keepalived_`` and ``_total``."""


class _Collector:
    """Hands ready-made families to prometheus_client."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(status: Status, dump: Dump | None, *, style: Exporter) -> bytes:
    """All metrics of one scrape; *dump* is None when the daemon does not answer."""
    keepalived: dict[Exporter, Callable[[Dump], Iterator[Metric]]] = {
        Exporter.GEN2BRAIN: _gen2brain,
        Exporter.MEHDY: _mehdy,
    }
    registry = CollectorRegistry(auto_describe=False)
    up = _gauge("keepalived_up", "Whether keepalived answers.", [((), dump is not None)])
    registry.register(_Collector([*_own(status, dump), up, *keepalived[style](dump or ())]))
    return generate_latest(registry)


def _own(status: Status, dump: Dump | None) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "kavip_agent_config", "Hashes of the configuration that runs and of the one that is wanted."
    )
    info.add_metric((), {"running": status.config_hash, "wanted": status.wanted_hash})
    yield info
    version = InfoMetricFamily("kavip_agent_keepalived", "The keepalived program on this node.")
    version.add_metric((), {"version": status.version})
    yield version
    yield _gauge("kavip_agent_config_current", "Whether the wanted configuration runs.", [((), status.current)])
    yield _gauge("kavip_agent_config_refused", "Whether the wanted one was refused.", [((), bool(status.refused))])
    left_out = "Instances of the wanted one that this node refuses."
    yield _gauge("kavip_agent_left_out_instances", left_out, [((), len(status.left_out))])
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
    up: _Samples = [((each.check.name,), not each.health.fails) for each in status.checks]
    yield _gauge("kavip_agent_check_up", "Whether a health check passes.", up, labels=("check",))
    took: _Samples = [((each.check.name,), each.seconds) for each in status.checks]
    yield _gauge("kavip_agent_check_seconds", "How long its last answer took.", took, labels=("check",))
    count = dict.fromkeys(((str(family), state) for family in (4, 6) for state in STATES), 0)
    for each in dump or ():
        count[str(each.data.family), each.data.state_name] += 1
    yield _gauge("kavip_agent_instances", "VRRP instances.", list(count.items()), labels=("family", "state"))


def _gen2brain(dump: Dump) -> Iterator[Metric]:
    """Counters without ``_total`` cannot be printed with the type counter; the exporter itself had no such scruple."""
    for name, doc in _GEN2BRAIN.items():
        metric = Metric(f"keepalived_vrrp_{name}", doc, "unknown")
        for each in dump:
            labels = {**_labels(each, name="name"), "state": each.data.state_name}
            metric.add_sample(metric.name, labels, getattr(each.stats, name))
        yield metric


def _mehdy(dump: Dump) -> Iterator[Metric]:
    for field, name in MEHDY.items():
        family = CounterMetricFamily(f"keepalived_{name}", _GEN2BRAIN[field], labels=("iname", "intf", "vrid"))
        for each in dump:
            family.add_metric(list(_labels(each, name="iname").values()), getattr(each.stats, field))
        yield family
    delay = CounterMetricFamily(
        "keepalived_gratuitous_arp_delay", "Gratuitous ARP delay", labels=("iname", "intf", "vrid")
    )
    for each in dump:
        delay.add_metric(list(_labels(each, name="iname").values()), each.data.garp_delay)
    yield delay
    for name, field in (("keepalived_vrrp_state", "vips"), ("keepalived_vrrp_excluded_state", "evips")):
        gauge = GaugeMetricFamily(name, "State of vrrp", labels=("iname", "intf", "vrid", "ip_address"))
        for each in dump:
            for text in getattr(each.data, field) or ([""] if field == "vips" else []):
                words = text.split()
                interface = words[2] if len(words) > 2 else each.data.ifp_ifname
                gauge.add_metric(
                    [each.data.iname, interface, str(each.data.vrid), words[0] if words else ""], each.data.state
                )
        yield gauge


def _labels(entry: Entry, *, name: str) -> dict[str, str]:
    return {name: entry.data.iname, "intf": entry.data.ifp_ifname, "vrid": str(entry.data.vrid)}


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
