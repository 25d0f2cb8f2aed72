"""Localising: the node's lines, its interface, the password, and faults that exclude an instance."""

from dataclasses import replace
from typing import Any

import pytest

from kavip.agent.config import validate
from kavip.agent.config.facts import (
    KUBE_PROXY_INTERFACE,
    InterfaceAddress,
    KernelRoute,
    NodeFacts,
    interface_of,
    leftovers,
)
from kavip.agent.config.localize import addresses_of, empty, localize, read_localized, same_for_keepalived
from kavip.agent.config.model import LocalizedConfig, ParsedConfig, RefusedConfig
from kavip.agent.config.sources import new_source_problem
from kavip.api.address import BITS, parse_address
from kavip.api.group import Check
from kavip.vrrp.tracking import Track
from kavip.vrrp.virtualips import VirtualIP
from tests.agent import mounts

TEXT = mounts.rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131"})


def vip(text: str, interface: str = "eth0") -> VirtualIP:
    """A VirtualIP from ``address/prefix``; without a prefix it is alone in its subnet."""
    bare, _, length = text.partition("/")
    address = parse_address(bare)
    return VirtualIP(address, int(length or BITS[address.family]), interface)


def held(text: str, interface: str = "eth0", *, added: bool = False) -> InterfaceAddress:
    """An address on an interface."""
    return InterfaceAddress(vip(text, interface), added)


def facts(**changes: Any) -> NodeFacts:
    """Node n1 of the testbed's segment."""
    usual = NodeFacts(
        node="n1",
        address=parse_address("192.0.2.11"),
        interfaces=frozenset({"lo", "eth0"}),
        held=(held("127.0.0.1/8", "lo"), held("192.0.2.11/24"), held("2001:db8:2::11/64")),
    )
    return replace(usual, **changes)


def localized(text: str, node: NodeFacts, **more: object) -> LocalizedConfig:
    """The localised configuration; fails if it is refused."""
    found = localize(mounts.mounted(text, **more), node)
    assert isinstance(found, LocalizedConfig), found
    return found


def refusal(text: str, node: NodeFacts, **more: object) -> str:
    """The message of the refusal; fails if there is none."""
    found = localize(mounts.mounted(text, **more), node)
    assert isinstance(found, RefusedConfig), found
    return found.message


def note(found: LocalizedConfig) -> str:
    """The message of the only note, or ""."""
    assert len(found.notes) <= 1
    return "".join(each.message for each in found.notes)


def reasons(found: LocalizedConfig) -> dict[str, str]:
    """The messages of the excluded instances, by name."""
    return {each.name: each.fault.message for each in found.excluded}


def test_a_node_gets_its_own_lines() -> None:
    """Priority and source address are the node's; its own address is not among its peers."""
    found = localized(TEXT, facts())
    assert "unicast_src_ip 192.0.2.11" in found.text
    assert "unicast_src_ip 192.0.2.12" not in found.text
    assert "    192.0.2.12 min_ttl 255" in found.text
    assert "    192.0.2.11 min_ttl 255" not in found.text
    assert "@" not in found.text


def test_a_node_that_the_text_does_not_list_has_no_peers() -> None:
    """A foreign source address alone does not stop keepalived 2.3 from becoming master; a lack of peers does."""
    found = localized(TEXT, facts(node="n9"))
    assert "unicast_fault_no_peer" in found.text and "unicast_peer {\n    }" in found.text
    assert "min_ttl" not in found.text and "unicast_ttl" not in found.text


def test_a_node_name_is_compared_whole() -> None:
    """Node n1 gets no lines of node n10 or n1.example."""
    text = TEXT.replace("@n2 ", "@n10 ").replace("@^n2 ", "@^n1.example ")
    found = localized(text, facts())
    assert "unicast_src_ip 192.0.2.12" not in found.text
    assert "    192.0.2.12 min_ttl 255" in found.text


def test_a_localised_text_is_read_with_its_hash() -> None:
    """A restarted agent reads which configuration is installed."""
    found = localized(TEXT, facts())
    assert found.config_hash == mounts.hash_of(TEXT)
    assert read_localized(found.text) == found
    assert read_localized("global_defs {\n}\n") is None
    assert read_localized(empty("n1").text) == empty("n1")


def test_a_text_that_does_not_match_its_hash_is_refused() -> None:
    """The parts of an incomplete update never run."""
    assert "do not belong together" in refusal(TEXT, facts(), config_hash="0" * 16)


def test_an_empty_configuration_is_valid_for_every_node_name() -> None:
    """It holds no instance."""
    for node in ("n1", "a.b-c", "..", ""):
        assert validate.read(empty(node).text) == ParsedConfig()


# --- interfaces ---------------------------------------------------------------------------------------------------


def test_a_missing_interface_is_refused() -> None:
    """The message names the interface and the fields to change."""
    reason = refusal(TEXT, facts(interfaces=frozenset({"lo", "ens3"})))
    assert "interface eth0 does not exist on node n1" in reason
    assert "interfaceFromIP" in reason


def test_interface_from_ip_replaces_the_interface_everywhere() -> None:
    """Instances and addresses get the node's interface; a block track_interface does not change."""
    node = facts(interfaces=frozenset({"lo", "ens3"}), held=(held("192.0.2.11/24", "ens3"),))
    text = TEXT.replace("    state BACKUP", "    state BACKUP\n    track_interface {\n        ens9\n    }")
    found = localized(text, node, interface_from_ip="192.0.2.1")
    assert found.configuration.interfaces == {"ens3"}
    assert "    track_interface {\n        ens9\n" in found.text


@pytest.mark.parametrize(
    ("wanted", "interface"),
    [
        ("192.0.2.1", "eth0"),
        ("192.0.2.11", "eth0"),  # the node that owns the address; not lo, where the kernel would route it
        ("198.51.100.9", "eth1"),  # the narrower of two subnets
        ("203.0.113.5", "dummy0"),  # has the address, without a subnet
        ("2001:db8:2::77", "eth0"),
        ("2001:db8:9::1", ""),
        ("10.0.0.1", ""),
        ("127.0.0.1", ""),
        ("192.0.2.200", "eth0"),
        ("198.18.0.1", ""),  # only kube-proxy has it
        ("nonsense", ""),
    ],
)
def test_an_interface_is_found_by_address(wanted: str, interface: str) -> None:
    """The interface that has the address, or the one with the narrowest subnet that holds it."""
    addresses = (
        *facts().held,
        held("192.0.2.11/32", "lo"),
        held("198.51.100.1/16", "eth0"),
        held("198.51.100.1/24", "eth1"),
        held("203.0.113.5/32", "dummy0"),
        held("198.18.0.1/32", KUBE_PROXY_INTERFACE),
        held("192.0.2.130/25", "eth7"),
    )
    assert interface_of(wanted, facts(held=addresses, ours=frozenset({vip("192.0.2.130/25", "eth7")}))) == interface


def way(interface: str, *, source: str = "192.0.2.11", direct: bool = False) -> KernelRoute:
    """The kernel's route to 10.1.2.3."""
    return KernelRoute(parse_address("10.1.2.3"), interface, parse_address(source), direct)


@pytest.mark.parametrize(
    ("route", "found"),
    [
        (way("eth1", direct=True), "eth1"),  # a single address, and a route to its gateway
        (way("eth0"), "eth0"),  # behind a gateway, in the subnet of a VIP
        (way("eth1"), ""),  # in the subnet of no VIP
        (way("eth1", source="192.0.2.130", direct=True), ""),  # the subnet of a VIP that keepalived added
        (way("lo", direct=True), ""),
        (way(KUBE_PROXY_INTERFACE, direct=True), ""),
        (way("", direct=True), ""),
        (replace(way("eth1", direct=True), to=parse_address("10.1.2.4")), ""),
    ],
)
def test_an_interface_is_found_by_the_route(route: KernelRoute, found: str) -> None:
    """If no subnet holds the address; a route through a gateway counts only with the subnet of a VIP."""
    node = facts(route=route, ours=frozenset({vip("192.0.2.130/25", "eth1")}))
    assert interface_of("10.1.2.3", node, map(parse_address, ("198.51.100.7", "192.0.2.131"))) == found
    assert interface_of("192.0.2.1", node) == "eth0"


def test_the_note_explains_a_route_through_a_gateway() -> None:
    """The note recommends an address of the VIPs' network."""
    found = localized(TEXT, facts(route=way("eth1")), interface_from_ip="10.1.2.3")
    assert note(found).endswith(
        "(interfaceFromIP), and eth1, which reaches it through a gateway, is in the subnet of no VIP: "
        "set interfaceFromIP to an address in the network of the VIPs"
    )
    assert localized(TEXT, facts(route=way("eth0")), interface_from_ip="10.1.2.3").configuration.interfaces == {"eth0"}


def test_a_node_without_a_fitting_interface_runs_no_instance() -> None:
    """Its configuration has the wanted hash and no instances, and a note says why."""
    found = localized(TEXT, facts(), interface_from_ip="10.1.2.3")
    assert found.configuration.instances == ()
    assert found.config_hash == mounts.hash_of(TEXT)
    assert note(found) == "no interface of node n1 is in the subnet of 10.1.2.3 (interfaceFromIP)"


# --- password -----------------------------------------------------------------------------------------------------

SECRET_TEXT = mounts.rendered({"shop/web": "192.0.2.130"}, **mounts.WITH_PASSWORD, advert_interval_milliseconds=1000)


def test_an_instance_without_its_source_address_is_excluded() -> None:
    """Without the addresses of both families the node runs no instance."""
    found = localized(TEXT, facts(held=(held("192.0.2.11/24"),)))
    assert reasons(found) == {
        "shop/web/v6": "2001:db8:2::11, from which node n1 sends VRRP, is on none of its interfaces"
    }
    nothing = localized(TEXT, facts(held=()))
    assert (nothing.configuration.instances, nothing.excluded) == ((), ())
    assert note(nothing) == "192.0.2.11, from which node n1 sends VRRP, is on none of its interfaces"
    spoilt = TEXT.replace("@n1 unicast_src_ip 192.0.2.11", "@n1 unicast_src_ip nonsense")
    assert "nonsense" not in str(localized(spoilt, facts()).excluded)


def test_an_instance_with_a_tentative_source_address_is_excluded() -> None:
    """keepalived cannot bind the address, and would stay in FAULT."""
    doubted = replace(held("2001:db8:2::11/64"), why_unused="is not in use yet")
    found = localized(TEXT, facts(held=(held("192.0.2.11/24"), doubted)))
    assert reasons(found) == {
        "shop/web/v6": "2001:db8:2::11, from which node n1 sends VRRP, is not in use yet",
    }


def test_a_source_address_on_another_interface_is_noted() -> None:
    """Not if the address is on both interfaces, or with multicast."""
    nodes = {"interfaces": frozenset({"lo", "eth0", "eth9"})}
    text = TEXT.replace("    interface eth0\n", "    interface eth9\n")
    found = localized(text, facts(**nodes))
    assert note(found).startswith("VRRP leaves by eth9, but its source address 192.0.2.11 is on eth0, so ")
    assert "set spec.vrrpInterface to eth0" in note(found)
    assert "; " not in note(found), "the controller splits notes at semicolons"
    assert len(found.configuration.instances) == 3
    both = (*facts().held, held("192.0.2.11/24", "eth9"), held("2001:db8:2::11/64", "eth9"))
    assert note(localized(text, facts(**nodes, held=both))) == note(localized(TEXT, facts())) == ""


def test_an_interface_without_ipv4_address_is_noted_for_multicast() -> None:
    """keepalived stays in FAULT without a log line; IPv6 has link-local addresses."""
    nodes = {"interfaces": frozenset({"lo", "eth0", "eth9"})}
    here = mounts.rendered({"shop/web": "192.0.2.130"}, unicast_enabled=False)
    there = here.replace(" interface eth0", " interface eth9")
    found = localized(there, facts(**nodes))
    assert note(found).startswith("eth9 has no IPv4 address to send VRRP from")
    assert len(found.configuration.instances) == 1, "it may have one at any moment"
    both = (*facts().held, held("198.51.100.11/24", "eth9"))
    assert note(localized(there, facts(**nodes, held=both))) == note(localized(here, facts(**nodes))) == ""
    six = mounts.rendered({"shop/web": "2001:db8:2::130"}, unicast_enabled=False).replace(
        " interface eth0", " interface eth9"
    )
    assert note(localized(six, facts(**nodes))) == ""


def test_a_switch_to_a_source_on_another_interface_is_refused() -> None:
    """Unless the running configuration has the same problem."""
    nodes = facts(interfaces=frozenset({"lo", "eth0", "eth9"}))
    here, there = localized(TEXT, nodes), localized(TEXT.replace(" interface eth0\n", " interface eth9\n"), nodes)
    problem = new_source_problem(there, here, nodes)
    assert problem and problem.message.startswith("VRRP leaves by eth9, but its source address 192.0.2.11")
    for following, good in ((here, here), (here, there), (there, there)):
        assert new_source_problem(following, good, nodes) is None


def test_an_instance_that_lost_its_source_address_is_not_kept() -> None:
    """A peer has its VIPs by now."""
    good = localized(TEXT, facts())
    found = localize(mounts.mounted(TEXT), facts(held=(held("192.0.2.11/24"),)), good)
    assert isinstance(found, LocalizedConfig)
    assert [(each.name, each.kept) for each in found.excluded] == [("shop/web/v6", False)]


def test_the_password_is_inserted() -> None:
    """It replaces the marker, and no representation of a value shows it."""
    found = localized(SECRET_TEXT, facts(), password=mounts.PASSWORD)
    assert f"    authentication {{\n        auth_type PASS\n        auth_pass {mounts.PASSWORD}\n    }}\n" in found.text
    assert "# kavip: authentication" not in found.text
    assert mounts.PASSWORD not in repr(found)
    assert mounts.PASSWORD not in repr(mounts.mounted(SECRET_TEXT, password=mounts.PASSWORD))


@pytest.mark.parametrize(
    "password", ["", "pa ss", "pa#ss", "ninechars", "pa\nss", "tail\n", "é", 'a"b', "a}b", "@n1 x"]
)
def test_an_invalid_password_is_refused(password: str) -> None:
    """The message says what is allowed, and does not quote the password."""
    reason = refusal(SECRET_TEXT, facts(), password=password)
    assert reason.startswith("password: want 1 to 8 characters")
    assert not password or password not in reason


def test_a_missing_password_is_refused() -> None:
    """The instance never runs without the authentication that its peers expect."""
    assert refusal(SECRET_TEXT, facts(), password=None).startswith("password: the Secret")


def test_a_text_without_the_marker_needs_no_password() -> None:
    """VRRP version 3 has no authentication."""
    assert mounts.PASSWORD not in localized(TEXT, facts(), password=mounts.PASSWORD).text


# --- the node's own addresses, and what daemons left ------------------------------------------------------------------


@pytest.mark.parametrize("own", ["192.0.2.130/24", "192.0.2.130/32"])
@pytest.mark.parametrize("interface", ["eth1", "lo", "eth0"])
def test_an_address_of_the_node_is_never_a_vip(own: str, interface: str) -> None:
    """keepalived would delete it, on any interface and with any prefix length."""
    node = facts(held=(*facts().held, held(own, interface)), interfaces=frozenset({"lo", "eth0", "eth1"}))
    found = localized(TEXT, node)
    assert "192.0.2.130 is node n1's own address" in reasons(found)["shop/web"]
    assert [each.name for each in found.configuration.instances] == ["shop/cart", "shop/web/v6"]


def test_the_internal_ip_of_the_node_is_never_a_vip() -> None:
    """Even before it is on an interface."""
    node = facts(address=parse_address("192.0.2.130"))
    assert "its InternalIP" in reasons(localized(TEXT, node))["shop/web"]


def test_added_vips_are_not_the_nodes_own_addresses() -> None:
    """keepalived, running or killed, may have added them, with or without a record."""
    on_node = (*facts().held, held("192.0.2.130/32"))
    assert reasons(localized(TEXT, facts(held=on_node, ours=frozenset({vip("192.0.2.130/32")})))) == {}
    assert reasons(localized(TEXT, facts(held=(*facts().held, held("192.0.2.130/32", added=True))))) == {}
    assert reasons(localized(TEXT, facts(held=(*facts().held, held("192.0.2.130/32", KUBE_PROXY_INTERFACE))))) == {}


def test_addresses_of_a_refused_configuration_are_known() -> None:
    """A pod without a record finds the addresses that keepalived left behind."""
    every = {vip("192.0.2.130"), vip("2001:db8:2::130"), vip("192.0.2.131")}
    for text in (TEXT, TEXT.replace("router_id edge", "include x"), TEXT.replace("state BACKUP", "state ~")):
        assert addresses_of(mounts.mounted(text), facts()) == every
    node = facts(held=(held("198.51.100.1/24", "ens3"),))
    moved = addresses_of(mounts.mounted(TEXT, interface_from_ip="198.51.100.9"), node)
    assert moved == {each._replace(interface="ens3") for each in every}


def test_leftovers_are_recorded_and_not_running() -> None:
    """Prefix length and interface must match; the node's own address never counts."""
    node = facts(
        held=(*facts().held, held("192.0.2.130/32"), held("192.0.2.131/32"), held("192.0.2.132/24")),
        ours=frozenset(vip(text) for text in ("192.0.2.130", "192.0.2.131", "192.0.2.132", "192.0.2.11/24")),
    )
    assert leftovers(node, wanted=frozenset(), running=frozenset({vip("192.0.2.131")})) == (vip("192.0.2.130"),)


def test_without_a_record_a_leftover_must_look_added() -> None:
    """After a pod was replaced, only wanted addresses that keepalived may have added are removed."""
    wanted = frozenset({vip("192.0.2.130"), vip("192.0.2.131")})
    node = facts(held=(held("192.0.2.130", added=True), held("192.0.2.131"), held("192.0.2.132", added=True)))
    assert leftovers(node, wanted=wanted, running=frozenset()) == (vip("192.0.2.130"),)


def test_addresses_of_kube_proxy_are_never_leftovers() -> None:
    """kube-proxy's IPVS mode adds all Service addresses to one interface."""
    ours = vip("192.0.2.130", KUBE_PROXY_INTERFACE)
    node = facts(held=(held("192.0.2.130", KUBE_PROXY_INTERFACE, added=True),), ours=frozenset({ours}))
    assert leftovers(node, wanted=frozenset({ours}), running=frozenset()) == ()


def test_track_files_are_where_this_agent_writes_them() -> None:
    """The folder is the agent's; the keyword is the one that keepalived does not log as deprecated."""
    text = mounts.rendered({"shop/web": "192.0.2.130"}, checks=[Check(name="a", url="kubelet")])
    assert 'vrrp_track_file check-a {\n    file "/run/kavip/track/check-a"\n}\n' in text
    found = localize(mounts.mounted(text), replace(facts(), track_dir="/elsewhere/x"))
    assert isinstance(found, LocalizedConfig)
    assert '\ntrack_file check-a {\n    file "/elsewhere/x/check-a"\n}\n' in found.text
    assert found.configuration.instances[0].tracks == (Track("check-a", 0),)


def test_comments_of_kavip_cause_no_reload() -> None:
    """What they say is for the controller, and for people; every other line counts."""
    one = "# kavip: localised for n1; configuration 0a\n# kavip: written by kavip\nglobal_defs {\n}\n"
    other = (
        "# kavip: localised for n1; configuration 0b\n# kavip: drained n2 1\n# kavip: drained n3 2\nglobal_defs {\n}\n"
    )
    assert same_for_keepalived(one, other)
    assert not same_for_keepalived(one, other.replace("global_defs {", "global_defs {\n    priority 1"))
