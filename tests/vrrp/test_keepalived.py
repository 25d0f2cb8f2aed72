"""The behaviour of the rendered text in real daemons on virtual segments."""

from collections import Counter

import pytest

from hack.testbed import process
from hack.testbed.fixtures import MakeSegment
from hack.testbed.segment import Host
from kavip.api.group import PasswordAuth, SecretRef
from kavip.api.service import Service
from kavip.vrrp import config, keywords
from kavip.vrrp.compact import Unreadable, expand
from tests.support import build
from tests.vrrp import livedaemons
from tests.vrrp.samples import NEW, SAMPLES, STEADY, annotated, conf, model, nodes, shared

pytestmark = pytest.mark.netns

MARKER = "    # kavip: authentication\n"
PASSWORD = "    authentication {\n        auth_type PASS\n        auth_pass secret12\n    }\n"
BOUNDS = {
    "down_timer_adverts": ("3", "20"),
    "garp_lower_prio_delay": ("0", "600"),
    "garp_lower_prio_repeat": ("0", "20"),
    "garp_master_delay": ("0", "600"),
    "garp_master_refresh": ("0", "86400"),
    "garp_master_refresh_repeat": ("1", "10"),
    "garp_master_repeat": ("1", "20"),
    "preempt_delay": ("0", "0.001", "1000"),
    "track_interface": ("{ eth0 }", "{ eth1 }", "{ eth1 weight -253 }", "{ eth1 weight 0 }"),
    "dynamic_interfaces": ("", "allow_if_changes"),
    "max_auto_priority": ("-1", "99"),
    "min_auto_priority_delay": ("1", "10000000"),
    "router_id": ("edge.1_a-b",),
    "vrrp_down_timer_adverts": ("3", "20"),
    "vrrp_garp_interval": ("0.000001", "1"),
    "vrrp_garp_lower_prio_delay": ("0", "600"),
    "vrrp_garp_lower_prio_repeat": ("0", "20"),
    "vrrp_garp_master_delay": ("0", "600"),
    "vrrp_garp_master_refresh": ("0", "86400"),
    "vrrp_garp_master_refresh_repeat": ("1", "10"),
    "vrrp_garp_master_repeat": ("1", "20"),
    "vrrp_gna_interval": ("0.000001", "1"),
    "vrrp_mcast_group4": ("224.0.0.99",),
    "vrrp_mcast_group6": ("ff02::99",),
    "vrrp_netlink_cmd_rcv_bufs": ("1", "16777216"),
    "vrrp_netlink_monitor_rcv_bufs": ("1", "16777216"),
    "vrrp_priority": ("-20", "0"),
    "vrrp_rlimit_rttime": ("10000", "1000000"),
    "vrrp_rt_priority": ("1", "50"),
    "vrrp_rx_bufs_multiplier": ("1", "100"),
    "vrrp_rx_bufs_policy": ("MTU", "ADVERT"),
    "vrrp_startup_delay": ("0.001", "300"),
    "vrrp_version": ("2", "3"),
}  # fmt: skip
"""The edge values of each keyword's grammar; all other keywords are flags."""


def many(count: int) -> list[Service]:
    """Services with one address each."""
    return [
        annotated(f"shop/s{number:04}", f"198.51.{100 + number // 250}.{number % 250 + 1}") for number in range(count)
    ]


def second_interface(host: Host) -> None:
    """Add an eth1 without a peer to *host*."""
    host.exec("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1-end")
    for name in ("eth1", "eth1-end"):
        host.exec("ip", "link", "set", name, "up")


# --- keepalived's own test -----------------------------------------------------------------------------------------
def test_every_sample_passes(segment: MakeSegment) -> None:
    """Each golden text passes ``--config-test`` without output, on every node and on one that it does not list."""
    lan = segment(nodes=1)
    host = lan.node("n1")
    second_interface(host)
    texts = {name: sample().replace(MARKER, PASSWORD) for name, sample in SAMPLES.items()}
    texts["raw"] = SAMPLES["predecessor"]()
    texts["spread"] = conf(build.group(**NEW), [annotated("a/b", "192.0.2.130", "2001:db8::1", spread=True)], nodes(2))
    texts["empty"] = conf(build.group(**NEW), [], nodes(2))
    texts["full"] = conf(build.group(**NEW), many(255), nodes(3))
    texts["large"] = conf(build.group(**NEW, instances=shared()), many(5000), nodes(3))
    texts["long"] = conf(
        build.group(**NEW), [annotated(f"{'n' * 63}/{'s' * 63}", "192.0.2.130", "2001:db8::1")], nodes(2)
    )
    found = {
        (name, node): livedaemons.check(host, text, node=node)
        for name, text in texts.items()
        for node in ("n1", "n2", "n33")
    }
    assert {case: fault for case, fault in found.items() if fault} == {}


def test_large_groups_pass(segment: MakeSegment) -> None:
    """So do 255 Services on 200 nodes, and 20,000 VIPs in a Shared group: compact, both fit into a ConfigMap."""
    host = segment(nodes=1).node("n1")
    crowd = nodes(200, ipv6=False)
    shapes = {"PerService": (many(255), NEW), "Shared": (many(20_000), {**NEW, "instances": shared()})}
    for name, (services, spec) in shapes.items():
        wanted = model(build.group(**spec), services, crowd)
        found = config.render(wanted, config.Target(notations=config.Notations(compact=config.Use.IF_LARGE)))
        assert found.size < config.MOST_BYTES < len(found.text), name
        text = expand(found.content)
        assert not isinstance(text, Unreadable)
        for node in ("n1", "n200", "n333"):
            assert livedaemons.check(host, text, node=node) == "", (name, node)


def test_every_keyword_passes(segment: MakeSegment) -> None:
    """Each keyword that users may write passes without output at its edge values, in every kind of instance."""
    lan = segment(nodes=1)
    host = lan.node("n1")
    second_interface(host)
    kinds = [NEW, {}, {"unicast_enabled": True}, {"vrrp_version": 3}]
    faults: dict[tuple[str, ...], str] = {}
    for spec in kinds:
        for keyword in sorted(keywords.SERVICE):
            for value in BOUNDS.get(keyword, ("",)):
                wanted = f'{{"{keyword}": "{value}"}}'
                group = build.group(**spec, allow_verbatim=["track_interface"])
                found = model(group, [annotated("a/b", "192.0.2.130", "2001:db8::1", verbatim=wanted)], nodes(2))
                assert not found.problems
                faults[keyword, value, str(spec)] = livedaemons.check(host, config.render(found).text)
    for keyword in keywords.GLOBAL:
        for value in BOUNDS.get(keyword, ("",)):
            group = build.group(**NEW, verbatim_config={keyword: value})
            faults[keyword, value] = livedaemons.check(host, conf(group, [annotated("a/b", "192.0.2.130")], nodes(2)))
    assert {case: fault for case, fault in faults.items() if fault} == {}


# --- daemons -------------------------------------------------------------------------------------------------------
def test_one_master_per_vip(segment: MakeSegment) -> None:
    """On three nodes, each instance of either family is master on the node that leads it, with its VIPs."""
    lan = segment(nodes=3)
    services = [annotated(f"a/s{n}", f"192.0.2.{130 + n}", f"2001:db8:2::{130 + n}") for n in range(12)]
    found = model(build.group(**NEW), services, nodes(3))
    daemons = livedaemons.start(lan, config.render(found).text)
    wanted = livedaemons.leaders(found.instances)
    assert set(wanted.values()) == {"n1", "n2", "n3"}
    livedaemons.settle(daemons, wanted)
    for instance in found.instances:
        process.wait_for(
            f"{instance.name} is where it is led",
            lambda instance=instance: _holders(daemons, str(instance.anchor.address)) == [wanted[instance.name]],  # type: ignore[misc]  # a default
            timeout=livedaemons.PATIENCE,
        )


def test_groups_of_keepalived_operator(segment: MakeSegment) -> None:
    """Multicast, version 2, with a password: each VIP has one master."""
    lan = segment(nodes=2)
    group = build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    found = model(group, [annotated("a/web", "192.0.2.130"), annotated("a/x", "192.0.2.131")], nodes(2))
    daemons = livedaemons.start(lan, config.render(found).text.replace(MARKER, PASSWORD))
    livedaemons.settle(daemons, livedaemons.leaders(found.instances))


@pytest.mark.parametrize("mode", ["PerService", "Shared"])
def test_adding_and_removing_moves_no_other_vip(segment: MakeSegment, mode: str) -> None:
    """Services and VIPs that are added and removed, node by node, cause no VRRP transition of other instances."""
    lan = segment(nodes=3)
    spec = {**STEADY, "instances": shared(4)} if mode == "Shared" else STEADY
    group, peers = build.group(**spec), nodes(3)
    old = [annotated("a/b", "192.0.2.131"), annotated("a/d", "192.0.2.133", "2001:db8:2::133")]
    first = model(group, old, peers)
    before = config.render(first)
    daemons = livedaemons.start(lan, before.text)
    livedaemons.settle(daemons, livedaemons.leaders(first.instances))
    steady = livedaemons.settled(daemons)

    held = {each.name.removesuffix("/v6"): each.router_id for each in first.instances}
    group = build.group(**spec, router_ids=held)
    grown = [annotated("a/a", "192.0.2.129"), annotated("a/b", "192.0.2.130", "192.0.2.131", "192.0.2.132"), old[1]]
    second = model(group, grown, peers, before=before)
    after = config.render(second)
    for daemon in daemons:
        daemon.reload(after.text)
    livedaemons.settle(daemons, livedaemons.leaders(second.instances))
    carried = {"192.0.2.129", "192.0.2.130", "192.0.2.131", "192.0.2.132", "192.0.2.133", "2001:db8:2::133"}
    process.wait_for("all VIPs are there", lambda: carried <= _addresses(daemons), timeout=livedaemons.PATIENCE)
    assert _changes(daemons, steady) == {}

    for daemon in reversed(daemons):
        daemon.reload(before.text)
    livedaemons.settle(daemons, livedaemons.leaders(first.instances))
    assert _changes(daemons, steady) == {}
    removed = {"192.0.2.129", "192.0.2.130", "192.0.2.132"}
    process.wait_for("these are gone", lambda: removed.isdisjoint(_addresses(daemons)), timeout=livedaemons.PATIENCE)


def test_a_node_joins_and_leaves(segment: MakeSegment) -> None:
    """The only node stays master while another joins, and while the other leaves again."""
    lan = segment(nodes=2)
    group, services = build.group(**STEADY), [annotated("a/web", "192.0.2.130", "2001:db8:2::130")]
    both = model(group, services, nodes(2))
    leader = livedaemons.leaders(both.instances)["a/web"]
    alone = model(group, services, [peer for peer in nodes(2) if peer.name == leader])
    first, second = (livedaemons.Daemon(host) for host in sorted(lan.nodes, key=lambda host: host.name != leader))
    first.start(config.render(alone).text)
    livedaemons.settle([first], livedaemons.leaders(alone.instances))
    steady = livedaemons.settled([first])
    first.reload(config.render(both).text)
    second.start(config.render(both).text)
    livedaemons.settle([first, second], livedaemons.leaders(both.instances))
    first.reload(config.render(alone).text)
    second.reload(config.render(alone).text)
    livedaemons.settle([first, second], livedaemons.leaders(alone.instances))
    process.wait_for("the other is in FAULT", lambda: _states([second]) == {"FAULT"}, timeout=livedaemons.PATIENCE)
    assert _changes([first], steady) == {}


def test_a_node_that_is_not_listed_never_becomes_master(segment: MakeSegment) -> None:
    """A node that its text does not list hears no node and stays backup; once listed, it joins as a backup."""
    lan = segment(nodes=3)
    services = [annotated("a/web", "192.0.2.130", "2001:db8:2::130")]
    two, three = (model(build.group(**NEW), services, nodes(count)) for count in (2, 3))
    daemons = livedaemons.start(lan, config.render(two).text)
    livedaemons.settle(daemons, livedaemons.leaders(two.instances))
    process.wait_for("n3 is in FAULT", lambda: _states(daemons[2:]) == {"FAULT"}, timeout=livedaemons.PATIENCE)
    for daemon in daemons:
        daemon.reload(config.render(three).text)
    livedaemons.settle(daemons, livedaemons.leaders(three.instances))
    process.wait_for("none is in FAULT", lambda: "FAULT" not in _states(daemons), timeout=livedaemons.PATIENCE)


def test_a_node_without_ipv6_is_in_fault_for_ipv6(segment: MakeSegment) -> None:
    """A node without an address of the family is in FAULT for that family, and leads the other."""
    lan = segment(nodes=2)
    peers = nodes(3)
    found = model(
        build.group(**NEW), [annotated(f"a/s{n}", f"2001:db8:2::{130 + n}") for n in range(4)], [peers[0], *peers[2:]]
    )
    daemons = livedaemons.start(lan, config.render(found).text)  # n3 is down, n2 is not listed
    livedaemons.settle(daemons, livedaemons.leaders(found.instances, lambda node: node == "n1"))


def test_255_instances(segment: MakeSegment) -> None:
    """
    A full group has 255 instances with one master each, spread over three nodes; the VIPs of a dead node fail over.
    """
    lan = segment(nodes=3)
    found = model(build.group(**NEW), many(255), nodes(3))
    daemons = livedaemons.start(lan, config.render(found).text)
    wanted = livedaemons.leaders(found.instances)
    livedaemons.settle(daemons, wanted)
    assert min(list(wanted.values()).count(node) for node in ("n1", "n2", "n3")) > 50
    lan.power_off(lan.node("n1"))
    livedaemons.settle(daemons[1:], livedaemons.leaders(found.instances, lambda node: node != "n1"))


def test_1000_vips_in_shared_instances(segment: MakeSegment) -> None:
    """A thousand VIPs in sixteen instances: each is on one node, and all are on the other node after a power cut."""
    lan = segment(nodes=2)
    services = many(1000)
    found = model(build.group(**NEW, instances=shared()), services, nodes(2))
    daemons = livedaemons.start(lan, config.render(found).text)
    livedaemons.settle(daemons, livedaemons.leaders(found.instances))
    vips = {str(address) for service in services for address in service.virtual_ips}
    process.wait_for("each VIP is on one node", lambda: _each_once(daemons, vips), timeout=livedaemons.PATIENCE)
    lan.power_off(lan.node("n1"))
    livedaemons.settle(daemons[1:], livedaemons.leaders(found.instances, lambda node: node == "n2"))
    process.wait_for("all are there", lambda: daemons[1].addresses() >= vips, timeout=livedaemons.PATIENCE)


def _states(daemons: list[livedaemons.Daemon]) -> set[str]:
    """The states of all instances."""
    return {seen.state for daemon in daemons for seen in daemon.look().values()}


def _addresses(daemons: list[livedaemons.Daemon]) -> set[str]:
    """The addresses of all nodes."""
    return set().union(*(daemon.addresses() for daemon in daemons))


def _holders(daemons: list[livedaemons.Daemon], vip: str) -> list[str]:
    """The nodes that have *vip*."""
    return [daemon.host.name for daemon in daemons if vip in daemon.addresses()]


def _each_once(daemons: list[livedaemons.Daemon], vips: set[str]) -> bool:
    """Whether each of *vips* is on exactly one node's interfaces."""
    return Counter(vip for daemon in daemons for vip in daemon.addresses() & vips) == Counter(vips)


def _changes(
    daemons: list[livedaemons.Daemon], steady: dict[livedaemons.Daemon, dict[str, livedaemons.Seen]]
) -> dict[tuple[str, str], str]:
    """The instances of *steady* that have changed their state, by node."""
    return {
        (daemon.host.name, name): f"{seen.changes} -> {now[name].changes}"
        for daemon in daemons
        for now in [daemon.look()]
        for name, seen in steady[daemon].items()
        if now[name].changes != seen.changes
    }
