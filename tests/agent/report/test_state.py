"""keepalived's dump, and ``/state`` and ``/metrics`` made from it."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from kavip.agent.config.model import ConfiguredInstance, Exclusion, InstanceFault, ParsedConfig
from kavip.agent.report import dump, metrics
from kavip.agent.report.health import CheckHealth, CheckStatus
from kavip.agent.report.state import AgentStatus, agent_state, encode, state_changes
from kavip.api.agent import AgentState, ProblemCode, RefusedBy
from kavip.api.group import Check
from kavip.names import Exporter
from tests.agent import mounts
from tests.agent.config.test_localize import vip

CODE = ProblemCode.REFUSED_BY_KEEPALIVED
STATUS = AgentStatus(node="n1", group="lb/edge", config_hash="abc", wanted_hash="abc", version="2.2.7", reloads=3)


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
        "auth_data": mounts.PASSWORD,
        **changes,
    }
    return {"data": data, "stats": {"advert_sent": 7, "advert_interval_err": 4, "ip_ttl_err": 2}}


def read(*entries: dict[str, Any]) -> dump.Dump:
    """The dump with these entries."""
    found = dump.decode(json.dumps(entries).encode())
    assert found is not None
    return found


def test_a_dump_that_is_still_being_written_is_none() -> None:
    """keepalived renames the file before it writes it."""
    whole = json.dumps([entry("shop/web")]).encode()
    assert all(dump.decode(whole[:length]) is None for length in range(0, len(whole), 11))
    assert dump.decode(whole) is not None


def test_a_dump_shows_a_configuration() -> None:
    """Name, VRID, priority and addresses of every instance must match."""
    wanted = ConfiguredInstance("shop/web", 7, "eth0", 200, (vip("192.0.2.130"), vip("192.0.2.9/24", "eth1")))
    assert dump.shows(read(entry("shop/web")), ParsedConfig((wanted,)))
    changes: tuple[dict[str, Any], ...] = ({"vrid": 8}, {"base_priority": 100}, {"evips": []}, {"iname": "shop/cart"})
    for change in changes:
        assert not dump.shows(read(entry("shop/web", **change)), ParsedConfig((wanted,)))
    assert not dump.shows((), ParsedConfig((wanted,)))
    assert dump.shows((), ParsedConfig())


def state(found: dump.Dump | None) -> AgentState:
    """The first state of a node."""
    return agent_state(STATUS, found, state_changes(found or (), {}))


def test_state_has_the_documented_fields() -> None:
    """Sorted instances, canonical addresses, and no password."""
    body = encode(state(read(entry("shop/web"), entry("a/b", state=1, vips=["2001:DB8::1 dev eth0"], evips=[]))))
    document = msgspec.json.decode(body)
    fields = ["node", "group", "configHash", "wantedHash", "refused", "note", "keepalived", "instances", "leftOut"]
    fields += ["checks"]
    fields += ["prepared", "nextRefused", "switchAt", "now", "newPassword", "locals"]
    fields += ["refusedCode", "nextRefusedCode", "notes", "hardwareAddresses", "conflicts"]
    fields += ["missingInterfaces", "routedPools", "standing", "sources", "peers", "fileHash", "capabilities"]
    assert list(document) == fields
    assert document["leftOut"] == []
    assert document["keepalived"] == {"version": "2.2.7", "running": True}
    assert [each["name"] for each in document["instances"]] == ["a/b", "shop/web"]
    assert document["instances"][0]["family"] == 6
    assert document["instances"][0]["virtualIPs"] == ["2001:db8::1"]
    assert document["instances"][1] == {
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
        "virtualIPsHash": "",
        "anchor": "192.0.2.130",
    }
    assert mounts.PASSWORD.encode() not in body


def test_state_lists_excluded_instances() -> None:
    """Name, reason and code, what refuses it, whether it is kept, and its wanted VIPs."""
    vips = (vip("192.0.2.131/32"), vip("192.0.2.130/32"))
    status = replace(
        STATUS, excluded=(Exclusion("shop/web", InstanceFault(CODE, "line 3", RefusedBy.KEEPALIVED), vips, kept=True),)
    )
    assert status.current
    (document,) = msgspec.json.decode(encode(agent_state(status, (), {})))["leftOut"]
    assert document == {
        "name": "shop/web",
        "reason": "line 3",
        "by": "keepalived",
        "kept": True,
        "virtualIPs": ["192.0.2.130", "192.0.2.131"],
        "code": "RefusedByKeepalived",
        "interface": "",
    }


def test_state_lists_health_checks() -> None:
    """Result, since when, and the last answer; a check without answer counts as passing."""
    router = CheckStatus(Check("router", "kubelet"), CheckHealth(False), "2026-11-21T01:08:34.878Z", "status 503", 0.5)
    status = replace(STATUS, checks=(CheckStatus(Check("api", "kube-apiserver")), router))
    assert msgspec.json.decode(encode(agent_state(status, (), {})))["checks"] == [
        {"name": "api", "ok": True, "since": "", "message": "not run yet"},
        {"name": "router", "ok": False, "since": "2026-11-21T01:08:34.878Z", "message": "status 503"},
    ]
    page = metrics.exposition(status, (), style=Exporter.GEN2BRAIN).decode()
    assert 'kavip_agent_check_up{check="api"} 1.0' in page
    assert 'kavip_agent_check_up{check="router"} 0.0' in page
    assert 'kavip_agent_check_seconds{check="router"} 0.5' in page


def test_a_keepalived_that_does_not_answer_is_not_running() -> None:
    """Whatever its pid file says."""
    assert not state(None).keepalived.running
    assert state(()).keepalived.running


def test_a_reload_is_not_a_state_change() -> None:
    """keepalived resets the time at every reload; its counters show the state changes."""
    first = state_changes(read(entry("shop/web")), {})
    reloaded = read(entry("shop/web", last_transition=1795229999.0))
    assert state_changes(reloaded, first) == first
    assert state_changes(reloaded, {})["shop/web"].seconds == 1795229999.0
    fallen = read(entry("shop/web", state=1, last_transition=1795229999.0))
    assert state_changes(fallen, first)["shop/web"].seconds == 1795229999.0


def samples(style: Exporter, found: dump.Dump | None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of one scrape by name, as a Prometheus parser reads them."""
    families = text_string_to_metric_families(metrics.exposition(STATUS, found, style=style).decode())
    result: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            result.setdefault(sample.name, []).append((sample.labels, sample.value))
    return result


def keepalived(found: Iterable[str]) -> set[str]:
    """Those of *found* that are keepalived's."""
    return {name for name in found if name.startswith("keepalived_")}


def test_metrics_have_the_names_of_gen2brains_exporter() -> None:
    """Fourteen counters with name, intf, vrid and state; TTL errors are TTL errors."""
    found = samples(Exporter.GEN2BRAIN, read(entry("shop/web")))
    labels = {"name": "shop/web", "intf": "eth0", "vrid": "7", "state": "MASTER"}
    assert found["keepalived_up"] == [({}, 1.0)]
    assert found["keepalived_vrrp_advert_sent"] == [(labels, 7.0)]
    assert found["keepalived_vrrp_advert_interval_err"] == [(labels, 4.0)]
    assert found["keepalived_vrrp_ip_ttl_err"] == [(labels, 2.0)]
    metric_names = "advert_rcvd advert_sent become_master release_master packet_len_err advert_interval_err ip_ttl_err"
    metric_names += (
        " invalid_type_rcvd addr_list_err invalid_authtype authtype_mismatch auth_failure pri_zero_rcvd pri_zero_sent"
    )
    assert keepalived(found) == {"keepalived_up", *(f"keepalived_vrrp_{name}" for name in metric_names.split())}
    assert all(
        set(sample[0]) == set(labels) for name in metric_names.split() for sample in found[f"keepalived_vrrp_{name}"]
    )


def test_metrics_have_the_names_of_mehdys_exporter_if_chosen() -> None:
    """Counters end in ``_total``; there is a state for each VIP with its interface."""
    found = samples(Exporter.MEHDY, read(entry("shop/web"), entry("a/none", vips=[], evips=[])))
    instance = {"iname": "shop/web", "intf": "eth0", "vrid": "7"}
    assert ({**instance}, 7.0) in found["keepalived_advertisements_sent_total"]
    metric_names = (
        "advertisements_received advertisements_sent become_master release_master packet_length_errors ip_ttl_errors"
    )
    metric_names += " advertisements_interval_errors invalid_type_received address_list_errors authentication_invalid"
    metric_names += " authentication_mismatch authentication_failure priority_zero_received priority_zero_sent"
    metric_names += " gratuitous_arp_delay"
    states = {"keepalived_up", "keepalived_vrrp_state", "keepalived_vrrp_excluded_state"}
    assert keepalived(found) == {*states, *(f"keepalived_{name}_total" for name in metric_names.split())}
    assert ({**instance, "ip_address": "192.0.2.130"}, 2.0) in found["keepalived_vrrp_state"]
    assert ({"iname": "a/none", "intf": "eth0", "vrid": "7", "ip_address": ""}, 2.0) in found["keepalived_vrrp_state"]
    assert found["keepalived_vrrp_excluded_state"] == [
        ({**instance, "intf": "eth1", "ip_address": "192.0.2.9/24"}, 2.0)
    ]


def test_the_agents_own_metrics_are_complete() -> None:
    """Every family and state from the first scrape on; keepalived is down if it does not answer."""
    found = samples(Exporter.GEN2BRAIN, None)
    assert found["keepalived_up"] == [({}, 0.0)]
    assert len(found["kavip_agent_instances"]) == 8
    assert found["kavip_agent_reloads_total"] == [({}, 3.0)]
    assert found["kavip_agent_config_current"] == [({}, 1.0)]
    assert found["kavip_agent_config_info"] == [({"running": "abc", "wanted": "abc"}, 1.0)]
