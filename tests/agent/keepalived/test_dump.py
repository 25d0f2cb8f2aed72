"""What keepalived says, and what the agent makes of it for ``/state`` and ``/metrics``."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from kavip.agent.config.model import Configuration, Fault, Instance, Judge, LeftOut
from kavip.agent.health.threshold import Asked, Health
from kavip.agent.http import metrics
from kavip.agent.http.state import State, Status, encode, moments_of, state_of
from kavip.agent.keepalived import dump
from kavip.api.group import Check
from kavip.names import Exporter
from tests.agent import scene
from tests.agent.config.test_localize import vip

STATUS = Status(node="n1", group="lb/edge", config_hash="abc", wanted_hash="abc", version="2.2.7", reloads=3)


def entry(name: str, **changes: Any) -> dict[str, Any]:
    """One instance as keepalived 2.2.7 writes it."""
    data = {
        "iname": name,
        "ifp_ifname": "eth0",
        "last_transition": 1795223314.878644,
        "vrid": 7,
        "base_priority": 200,
        "effective_priority": 199,
        "state": 2,
        "vips": ["192.0.2.130 dev eth0 scope global set"],
        "evips": ["192.0.2.9/24 dev eth1 scope global set"],
        "auth_type": 1,
        "auth_data": scene.PASSWORD,
        **changes,
    }
    return {"data": data, "stats": {"advert_sent": 7, "advert_interval_err": 4, "ip_ttl_err": 2}}


def read(*entries: dict[str, Any]) -> dump.Dump:
    """The dump that holds these entries."""
    found = dump.decode(json.dumps(entries).encode())
    assert found is not None
    return found


def test_a_dump_that_is_still_being_written_is_none() -> None:
    """keepalived renames the file into place before it fills it."""
    whole = json.dumps([entry("shop/web")]).encode()
    assert all(dump.decode(whole[:length]) is None for length in range(0, len(whole), 11))
    assert dump.decode(whole) is not None


def test_a_dump_shows_a_configuration() -> None:
    """Name, VRID, priority and addresses of every instance must agree."""
    wanted = Instance("shop/web", 7, "eth0", 200, (vip("192.0.2.130"), vip("192.0.2.9/24", "eth1")))
    assert dump.shows(read(entry("shop/web")), Configuration((wanted,)))
    changes: tuple[dict[str, Any], ...] = ({"vrid": 8}, {"base_priority": 100}, {"evips": []}, {"iname": "shop/cart"})
    for change in changes:
        assert not dump.shows(read(entry("shop/web", **change)), Configuration((wanted,)))
    assert not dump.shows((), Configuration((wanted,)))
    assert dump.shows((), Configuration())


def state(found: dump.Dump | None) -> State:
    """The state of a node that is looked at for the first time."""
    return state_of(STATUS, found, moments_of(found or (), {}))


def test_state_is_what_the_controller_reads() -> None:
    """Sorted, in JSON's names, with canonical addresses and without the password."""
    body = encode(state(read(entry("shop/web"), entry("a/b", state=1, vips=["2001:DB8::1 dev eth0"], evips=[]))))
    told = msgspec.json.decode(body)
    fields = ["node", "group", "configHash", "wantedHash", "refused", "note", "keepalived", "instances", "leftOut"]
    fields += ["checks"]
    fields += ["prepared", "nextRefused", "switchAt", "now", "newPassword", "locals"]
    assert list(told) == fields
    assert told["leftOut"] == []
    assert told["keepalived"] == {"version": "2.2.7", "running": True}
    assert [each["name"] for each in told["instances"]] == ["a/b", "shop/web"]
    assert told["instances"][0]["family"] == 6
    assert told["instances"][0]["virtualIPs"] == ["2001:db8::1"]
    assert told["instances"][1] == {
        "name": "shop/web",
        "routerID": 7,
        "family": 4,
        "state": "MASTER",
        "virtualIPs": ["192.0.2.9", "192.0.2.130"],
        "priority": 199,
        "lastTransition": "2026-11-21T01:08:34.878Z",
        "interface": "eth0",
        "transitions": 0,
        "errors": {"interval": 4},
    }
    assert scene.PASSWORD.encode() not in body


def test_state_tells_what_is_left_out() -> None:
    """Name, reason, who refuses it, whether it runs on as it last ran, and the VIPs that it was to have."""
    vips = (vip("192.0.2.131/32"), vip("192.0.2.130/32"))
    status = replace(STATUS, left_out=(LeftOut("shop/web", Fault("line 3", Judge.KEEPALIVED), vips, kept=True),))
    assert status.current
    (told,) = msgspec.json.decode(encode(state_of(status, (), {})))["leftOut"]
    assert told == {
        "name": "shop/web",
        "reason": "line 3",
        "by": "keepalived",
        "kept": True,
        "virtualIPs": ["192.0.2.130", "192.0.2.131"],
    }


def test_state_tells_what_checks_come_to() -> None:
    """Whether each is ok, since when, and what was answered last; one that was not asked yet is taken to be well."""
    router = Asked(Check("router", "kubelet"), Health(False), "2026-11-21T01:08:34.878Z", "status 503", 0.5)
    status = replace(STATUS, checks=(Asked(Check("api", "kube-apiserver")), router))
    assert msgspec.json.decode(encode(state_of(status, (), {})))["checks"] == [
        {"name": "api", "ok": True, "since": "", "message": "not asked yet"},
        {"name": "router", "ok": False, "since": "2026-11-21T01:08:34.878Z", "message": "status 503"},
    ]
    page = metrics.exposition(status, (), style=Exporter.GEN2BRAIN).decode()
    assert 'kavip_agent_check_up{check="api"} 1.0' in page
    assert 'kavip_agent_check_up{check="router"} 0.0' in page
    assert 'kavip_agent_check_seconds{check="router"} 0.5' in page


def test_state_without_an_answer_says_that_nothing_runs() -> None:
    """A daemon that does not answer is not running, whatever its pid."""
    assert not state(None).keepalived.running
    assert state(()).keepalived.running


def test_a_reload_is_no_transition() -> None:
    """keepalived resets the moment at every reload; it counts only true changes."""
    first = moments_of(read(entry("shop/web")), {})
    reloaded = read(entry("shop/web", last_transition=1795229999.0))
    assert moments_of(reloaded, first) == first
    assert moments_of(reloaded, {})["shop/web"].seconds == 1795229999.0
    fallen = read(entry("shop/web", state=1, last_transition=1795229999.0))
    assert moments_of(fallen, first)["shop/web"].seconds == 1795229999.0


def samples(style: Exporter, found: dump.Dump | None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of one scrape, by name, as a Prometheus parser reads them."""
    families = text_string_to_metric_families(metrics.exposition(STATUS, found, style=style).decode())
    result: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            result.setdefault(sample.name, []).append((sample.labels, sample.value))
    return result


def keepalived(found: Iterable[str]) -> set[str]:
    """Those of these names that are not kavip's own."""
    return {name for name in found if name.startswith("keepalived_")}


def test_metrics_bear_the_predecessors_names() -> None:
    """Fourteen counters with name, intf, vrid and state; TTL errors are TTL errors."""
    found = samples(Exporter.GEN2BRAIN, read(entry("shop/web")))
    labels = {"name": "shop/web", "intf": "eth0", "vrid": "7", "state": "MASTER"}
    assert found["keepalived_up"] == [({}, 1.0)]
    assert found["keepalived_vrrp_advert_sent"] == [(labels, 7.0)]
    assert found["keepalived_vrrp_advert_interval_err"] == [(labels, 4.0)]
    assert found["keepalived_vrrp_ip_ttl_err"] == [(labels, 2.0)]
    told = "advert_rcvd advert_sent become_master release_master packet_len_err advert_interval_err ip_ttl_err"
    told += (
        " invalid_type_rcvd addr_list_err invalid_authtype authtype_mismatch auth_failure pri_zero_rcvd pri_zero_sent"
    )
    assert keepalived(found) == {"keepalived_up", *(f"keepalived_vrrp_{name}" for name in told.split())}
    assert all(set(sample[0]) == set(labels) for name in told.split() for sample in found[f"keepalived_vrrp_{name}"])


def test_metrics_bear_the_other_exporters_names_when_asked() -> None:
    """Counters end in ``_total``; the state stands for each VIP, with the interface that it is on."""
    found = samples(Exporter.MEHDY, read(entry("shop/web"), entry("a/none", vips=[], evips=[])))
    instance = {"iname": "shop/web", "intf": "eth0", "vrid": "7"}
    assert ({**instance}, 7.0) in found["keepalived_advertisements_sent_total"]
    told = "advertisements_received advertisements_sent become_master release_master packet_length_errors ip_ttl_errors"
    told += " advertisements_interval_errors invalid_type_received address_list_errors authentication_invalid"
    told += " authentication_mismatch authentication_failure priority_zero_received priority_zero_sent"
    told += " gratuitous_arp_delay"
    states = {"keepalived_up", "keepalived_vrrp_state", "keepalived_vrrp_excluded_state"}
    assert keepalived(found) == {*states, *(f"keepalived_{name}_total" for name in told.split())}
    assert ({**instance, "ip_address": "192.0.2.130"}, 2.0) in found["keepalived_vrrp_state"]
    assert ({"iname": "a/none", "intf": "eth0", "vrid": "7", "ip_address": ""}, 2.0) in found["keepalived_vrrp_state"]
    assert found["keepalived_vrrp_excluded_state"] == [
        ({**instance, "intf": "eth1", "ip_address": "192.0.2.9/24"}, 2.0)
    ]


def test_metrics_of_our_own() -> None:
    """Every family and state is there from the first scrape; a silent daemon is down."""
    found = samples(Exporter.GEN2BRAIN, None)
    assert found["keepalived_up"] == [({}, 0.0)]
    assert len(found["kavip_agent_instances"]) == 8
    assert found["kavip_agent_reloads_total"] == [({}, 3.0)]
    assert found["kavip_agent_config_current"] == [({}, 1.0)]
    assert found["kavip_agent_config_info"] == [({"running": "abc", "wanted": "abc"}, 1.0)]
