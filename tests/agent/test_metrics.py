"""Every metric of the agent follows what a real keepalived does, with the names of both exporters."""

import socket
import struct
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.agent.report import exporters
from kavip.names import Exporter
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod, entered
from tests.agent.podstates import ONE, WEB, WEB_VIP, keepalived_that_accepts_lethal, leader_and_backup, master, started
from tests.vrrp.livedaemons import installed_version

pytestmark = pytest.mark.netns

TEXT = mounts.rendered({WEB: f"{WEB_VIP},192.0.2.131"}, nodes=2, **mounts.WITH_PASSWORD, unicast_enabled=False)
ROUTER_ID = 26
_PASS = 1
_GROUP = "224.0.0.18"
_VRRP = 112


def advert(
    *,
    kind: int = 1,
    authentication: int = _PASS,
    interval: int = 1,
    vip: str = WEB_VIP,
    password: str = mounts.PASSWORD,
) -> bytes:
    """A VRRP version 2 advert with a lower priority than kavip's."""
    head = struct.pack("!BBBBBBH", 2 << 4 | kind, ROUTER_ID, 1, 1, authentication, interval, 0)
    body = head + socket.inet_aton(vip) + password.encode().ljust(8, b"\0")
    total = sum(struct.unpack(f"!{len(body) // 2}H", body))
    total = (total >> 16) + (total & 0xFFFF)
    return body[:6] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + body[8:]


ERRORS = {
    "packet_len_err": (advert()[:-12], 255),
    "ip_ttl_err": (advert(), 64),
    "invalid_type_rcvd": (advert(kind=3), 255),
    "addr_list_err": (advert(vip="192.0.2.199"), 255),
    "invalid_authtype": (advert(authentication=9), 255),
    "authtype_mismatch": (advert(authentication=0), 255),
    "auth_failure": (advert(password="wrong"), 255),
}
"""Counter, the packet that moves it, and its TTL."""
UNCOUNTED = "advert_interval_err"
"""keepalived 2.2.7 has this counter, drops such adverts, and does not count them."""


def send(host: Host, packet: bytes, *, ttl: int) -> None:
    """Send *packet* to the VRRP routers of the segment."""

    def sending() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, _VRRP) as raw:
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host.ipv4))
            raw.sendto(packet, (_GROUP, 0))

    entered(host.netns, sending)


def samples(pod: Pod) -> dict[str, list[tuple[dict[str, str], float]]]:
    """One scrape by the names of samples."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(pod.answered(names.METRICS_PATH)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def counters(pod: Pod, style: Exporter) -> dict[str, float]:
    """keepalived's counters by the names of its dump; the labels are those of the exporter."""
    name, more = ("name", {"state"}) if style is Exporter.GEN2BRAIN else ("iname", set[str]())
    scraped, found = samples(pod), {}
    for field, other in exporters.MEHDY.items():
        ((labels, value),) = scraped[
            f"keepalived_vrrp_{field}" if style is Exporter.GEN2BRAIN else f"keepalived_{other}_total"
        ]
        assert labels.keys() == {name, "intf", "vrid"} | more
        assert (labels[name], labels["intf"], labels["vrid"]) == (WEB, "eth0", str(ROUTER_ID))
        found[field] = value
    return found


def test_every_counter_of_keepalived_moves(pod: MakePod, lan: Segment) -> None:
    """Each with the packet or event that it counts, except the one that never moves."""
    pods = [pod(node) for node in ("n1", "n2")]
    for each in pods:
        each.password.parent.mkdir(parents=True, exist_ok=True)
        each.password.write_text(mounts.PASSWORD)
        started(each, TEXT, authentication=True)
    first, second = leader_and_backup(pods, WEB)
    for name, (packet, ttl) in ERRORS.items():
        before = counters(second, Exporter.GEN2BRAIN)
        send(lan.client, packet, ttl=ttl)
        second.wait_until(f"{name} moves", lambda: counters(second, Exporter.GEN2BRAIN)[name] > before[name])  # noqa: B023 - called in the same pass
        after = counters(second, Exporter.GEN2BRAIN)
        assert {other for other in ERRORS if after[other] > before[other]} == {name}
    send(lan.client, advert(interval=7), ttl=255)
    second.wait_until("keepalived reports it", lambda: "advertisement interval mismatch" in second.logs())
    before_loss = first.transitions()[WEB]
    first.host.exec("ip", "address", "del", f"{WEB_VIP}/32", "dev", "eth0")  # it stops being master for that
    first.wait_until(
        "it is master again",
        lambda: all(now > was for now, was in zip(first.transitions()[WEB], before_loss, strict=True)),
    )
    leader_and_backup(pods, WEB)
    moved: dict[str, float] = {}
    for style in Exporter:
        for each in pods:
            if style is not Exporter.GEN2BRAIN:
                each.kill_agent()
                each.flags = (f"--metrics={style.value}",)
                each.start_agent()
            moved |= {f"{style}/{name}": value for name, value in counters(each, style).items() if value}
    fields = exporters.MEHDY.keys() - {UNCOUNTED}
    assert len(fields) == 13 and moved.keys() == {f"{style}/{name}" for style in Exporter for name in fields}
    for name in ("keepalived_vrrp_state", "keepalived_vrrp_excluded_state"):
        assert {samples(each)[name][0][1] for each in pods} == {1.0, 2.0}
    assert samples(first)["keepalived_gratuitous_arp_delay_total"][0][1] > 0


def test_every_metric_of_kavip_moves(pod: MakePod, tmp_path: Path) -> None:
    """Reloads, refusals, excluded instances, failures, stale addresses."""
    node = master(started(pod("n1", keepalived=keepalived_that_accepts_lethal(tmp_path)), ONE), WEB)

    def metric_value(name: str, **labels: str) -> float:
        return next(value for has, value in samples(node)[f"kavip_agent_{name}"] if labels.items() <= has.items())

    assert metric_value("config_info", running=mounts.hash_of(ONE), wanted=mounts.hash_of(ONE)) == 1
    assert metric_value("keepalived_info", version=installed_version()) == 1
    assert (metric_value("config_current"), metric_value("config_refused"), metric_value("left_out_instances")) == (
        1,
        0,
        0,
    )
    assert metric_value("instances", family="4", state="MASTER") == 1
    reloads = metric_value("reloads_total")
    assert reloads > 0
    assert 0 < metric_value("last_reload_seconds") < 60
    node.refuses(node.config.write(ONE.replace("router_id edge", "router_id")))
    assert (metric_value("config_current"), metric_value("config_refused"), metric_value("refusals_total")) == (0, 1, 1)
    node.runs(
        node.config.write(ONE.replace("state BACKUP", "state UP", 1).replace("router_id edge", "router_id other"))
    )
    assert (metric_value("left_out_instances"), metric_value("config_refused")) == (1, 0)
    assert metric_value("reloads_total") > reloads
    lethal = ONE.replace("router_id edge", "router_id lethal").replace("advert_int 0.2", "advert_int", 1)
    assert (metric_value("reload_failures_total"), metric_value("stale_addresses_removed_total")) == (0, 0)
    node.refuses(node.config.write(lethal))
    node.wait_until("the VIP is taken off", lambda: metric_value("stale_addresses_removed_total") > 0)
    assert metric_value("reload_failures_total") == 1
    assert metric_value("instances", family="4", state="MASTER") == samples(node)["keepalived_up"][0][1] == 0
