"""
keepalived's metrics under the names of an exporter, so that existing dashboards work.

keepalived-operator shipped gen2brain/keepalived_exporter, so its names and labels are the default. The other choice is
mehdy's keepalived-exporter, which is in wider use. One error of the former is corrected: ``keepalived_vrrp_ip_ttl_err``
counts TTL errors, not interval errors. Metrics of IPVS and of scripts are left out, because kavip's keepalived has
neither. keepalived 2.2.7 never counts ``advert_interval_err``.

The text is written directly. A node with 255 instances has thousands of samples, and prometheus_client's objects for
them would take more memory than the rest of the agent.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kavip.agent.report.dump import Dump, Entry
from kavip.names import Exporter

GEN2BRAIN: Final = {
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
"""The fields of the dump and their help texts; a field's name is also the end of the metric's name."""

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
"""The fields of the dump; the value is the part of the metric's name between ``keepalived_`` and ``_total``."""

_STATES: Final = {"keepalived_vrrp_state": "vips", "keepalived_vrrp_excluded_state": "evips"}
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_Samples = Iterable[tuple[str, float]]
"""Labels in the text format, and a value."""


def _gen2brain(dump: Dump) -> bytes:
    """The type is untyped, not the exporter's counter: Prometheus requires ``_total`` in a counter's name."""
    labels = [_label_text({**_labels(each, name="name"), "state": each.data.state_name}) for each in dump]
    return b"".join(
        _family(f"keepalived_vrrp_{field}", "untyped", doc, zip(labels, _counter_values(dump, field), strict=True))
        for field, doc in GEN2BRAIN.items()
    )


def _mehdy(dump: Dump) -> bytes:
    labels = [_label_text(_labels(each, name="iname")) for each in dump]
    counters = [
        _family(
            f"keepalived_{name}_total",
            "counter",
            GEN2BRAIN[field],
            zip(labels, _counter_values(dump, field), strict=True),
        )
        for field, name in MEHDY.items()
    ]
    delays = zip(labels, (each.data.garp_delay for each in dump), strict=True)
    counters.append(_family("keepalived_gratuitous_arp_delay_total", "counter", "Gratuitous ARP delay", delays))
    states = [_family(name, "gauge", "State of vrrp", _vip_states(dump, field)) for name, field in _STATES.items()]
    return b"".join((*counters, *states))


TEXT: Final[Mapping[Exporter, Callable[[Dump], bytes]]] = {Exporter.GEN2BRAIN: _gen2brain, Exporter.MEHDY: _mehdy}
"""The text of keepalived's metrics for each choice of names."""


def _counter_values(dump: Dump, field: str) -> Iterable[int]:
    return (getattr(each.stats, field) for each in dump)


def _vip_states(dump: Dump, field: str) -> _Samples:
    """The state of each VIP with its interface; an instance without a VIP has one sample, too."""
    for each in dump:
        for text in getattr(each.data, field) or ([""] if field == "vips" else []):
            words = text.split()
            interface = words[2] if len(words) > 2 else each.data.ifp_ifname
            labels = {**_labels(each, name="iname"), "intf": interface, "ip_address": words[0] if words else ""}
            yield _label_text(labels), each.data.state


def _labels(entry: Entry, *, name: str) -> dict[str, str]:
    return {name: entry.data.iname, "intf": entry.data.ifp_ifname, "vrid": str(entry.data.vrid)}


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(labels.items()))


def _family(name: str, kind: str, doc: str, samples: _Samples) -> bytes:
    lines = [f"# HELP {name} {doc}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {float(value)}" for labels, value in samples]
    return ("\n".join(lines) + "\n").encode()
