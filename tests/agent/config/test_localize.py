"""From the group's text to a node's: lines, interface, password, and what would harm the node."""

from dataclasses import replace
from typing import Any

import pytest

from kavip.agent.config import validate
from kavip.agent.config.facts import KUBE_PROXY_INTERFACE, Facts, Held, Route, interface_of, leftovers
from kavip.agent.config.localize import empty, localize, named, recalled, strays
from kavip.agent.config.model import Configuration, Localized, Refused
from kavip.api.address import BITS, parse_address
from kavip.api.group import Check
from kavip.vrrp.tracking import Track
from kavip.vrrp.virtualips import VirtualIP
from tests.agent import scene

TEXT = scene.rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131"})


def vip(text: str, interface: str = "eth0") -> VirtualIP:
    """A VirtualIP from ``address/prefix``; without a prefix, alone in its subnet."""
    bare, _, length = text.partition("/")
    address = parse_address(bare)
    return VirtualIP(address, int(length or BITS[address.family]), interface)


def held(text: str, interface: str = "eth0", *, added: bool = False) -> Held:
    """An address on an interface."""
    return Held(vip(text, interface), added)


def facts(**changes: Any) -> Facts:
    """Node n1 of the testbed's segment."""
    usual = Facts(
        node="n1",
        address=parse_address("192.0.2.11"),
        interfaces=frozenset({"lo", "eth0"}),
        held=(held("127.0.0.1/8", "lo"), held("192.0.2.11/24"), held("2001:db8:2::11/64")),
    )
    return replace(usual, **changes)


def localized(text: str, node: Facts, **more: object) -> Localized:
    """The localised configuration; fails where it is refused."""
    found = localize(scene.mounted(text, **more), node)
    assert isinstance(found, Localized), found
    return found


def refusal(text: str, node: Facts, **more: object) -> str:
    """The reason of the refusal; fails where there is none."""
    found = localize(scene.mounted(text, **more), node)
    assert isinstance(found, Refused), found
    return found.reason


def reasons(found: Localized) -> dict[str, str]:
    """Why instances are left out, by name."""
    return {each.name: each.fault.reason for each in found.left_out}


def test_a_node_gets_its_own_lines() -> None:
    """Priority and source address are the node's, and its own address is not among its peers."""
    found = localized(TEXT, facts())
    assert "unicast_src_ip 192.0.2.11" in found.text
    assert "unicast_src_ip 192.0.2.12" not in found.text
    assert "    192.0.2.12 min_ttl 255" in found.text
    assert "    192.0.2.11 min_ttl 255" not in found.text
    assert "@" not in found.text


def test_a_node_name_is_compared_whole() -> None:
    """Node n1 gets no line of node n10 or n1.example."""
    text = TEXT.replace("@n2 ", "@n10 ").replace("@^n2 ", "@^n1.example ")
    found = localized(text, facts())
    assert "unicast_src_ip 192.0.2.12" not in found.text
    assert "    192.0.2.12 min_ttl 255" in found.text


def test_localising_keeps_the_hash_and_is_recalled() -> None:
    """An agent that starts again knows which configuration the file is."""
    found = localized(TEXT, facts())
    assert found.config_hash == scene.hash_of(TEXT)
    assert recalled(found.text) == found
    assert recalled("global_defs {\n}\n") is None
    assert recalled(empty("n1").text) == empty("n1")


def test_a_text_that_does_not_match_its_hash_is_refused() -> None:
    """Half of an update is never run."""
    assert "do not belong together" in refusal(TEXT, facts(), config_hash="0" * 16)


def test_an_empty_configuration_is_valid_whatever_the_node_is_called() -> None:
    """It holds no instance."""
    for node in ("n1", "a.b-c", "..", ""):
        assert validate.read(empty(node).text) == Configuration()


# --- interfaces ---------------------------------------------------------------------------------------------------


def test_a_missing_interface_is_refused() -> None:
    """The message names the interface and the fields to change."""
    reason = refusal(TEXT, facts(interfaces=frozenset({"lo", "ens3"})))
    assert "interface eth0 does not exist on node n1" in reason
    assert "interfaceFromIP" in reason


def test_interface_from_ip_replaces_the_interface_everywhere() -> None:
    """Instances and their addresses move to the node's own interface; a block called track_interface stays whole."""
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
        ("203.0.113.5", "dummy0"),  # held, in no subnet
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
    """It is the one whose subnet holds the address, the narrowest first, or the one that has the address itself."""
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


def way(interface: str, *, source: str = "192.0.2.11", direct: bool = False) -> Route:
    """The kernel's route to 10.1.2.3."""
    return Route(parse_address("10.1.2.3"), interface, parse_address(source), direct)


@pytest.mark.parametrize(
    ("route", "found"),
    [
        (way("eth1", direct=True), "eth1"),  # a card with an address alone, and a route to its gateway
        (way("eth0"), "eth0"),  # behind a gateway, in the subnet of a VIP
        (way("eth1"), ""),  # in the subnet of none
        (way("eth1", source="192.0.2.130", direct=True), ""),  # the subnet of a VIP that keepalived put there
        (way("lo", direct=True), ""),
        (way(KUBE_PROXY_INTERFACE, direct=True), ""),
        (way("", direct=True), ""),
        (replace(way("eth1", direct=True), to=parse_address("10.1.2.4")), ""),
    ],
)
def test_an_interface_is_found_by_the_route(route: Route, found: str) -> None:
    """Where no subnet holds the address; VIPs never go where a gateway happens to be."""
    node = facts(route=route, ours=frozenset({vip("192.0.2.130/25", "eth1")}))
    assert interface_of("10.1.2.3", node, map(parse_address, ("198.51.100.7", "192.0.2.131"))) == found
    assert interface_of("192.0.2.1", node) == "eth0"


def test_what_is_behind_a_gateway_is_told() -> None:
    """The note says what would be right."""
    found = localized(TEXT, facts(route=way("eth1")), interface_from_ip="10.1.2.3")
    assert found.note.endswith(
        "(interfaceFromIP), and eth1, from which a gateway reaches it, is in the subnet of no VIP: "
        "name an address of the network that the VIPs are in"
    )
    assert localized(TEXT, facts(route=way("eth0")), interface_from_ip="10.1.2.3").configuration.interfaces == {"eth0"}


def test_a_node_without_a_fitting_interface_has_no_part() -> None:
    """It runs a configuration without instances, whose hash is the wanted one, and says why."""
    found = localized(TEXT, facts(), interface_from_ip="10.1.2.3")
    assert found.configuration.instances == ()
    assert found.config_hash == scene.hash_of(TEXT)
    assert found.note == "no interface of node n1 is in the subnet of 10.1.2.3 (interfaceFromIP)"


# --- password -----------------------------------------------------------------------------------------------------

SECRET_TEXT = scene.rendered({"shop/web": "192.0.2.130"}, **scene.WITH_PASSWORD, advert_interval_milliseconds=1000)


def test_an_instance_that_could_not_be_heard_does_not_run() -> None:
    """Its address is gone from the node: of one family those instances are left out, of all the node has no part."""
    found = localized(TEXT, facts(held=(held("192.0.2.11/24"),)))
    assert reasons(found) == {
        "shop/web/v6": "2001:db8:2::11, from which node n1 is to speak, is on none of its interfaces"
    }
    nothing = localized(TEXT, facts(held=()))
    assert (nothing.configuration.instances, nothing.left_out) == ((), ())
    assert nothing.note == "192.0.2.11, from which node n1 is to speak, is on none of its interfaces"
    spoilt = TEXT.replace("@n1 unicast_src_ip 192.0.2.11", "@n1 unicast_src_ip nonsense")
    assert "nonsense" not in str(localized(spoilt, facts()).left_out)


def test_an_instance_does_not_begin_with_an_address_in_doubt() -> None:
    """keepalived cannot bind it, and would be in FAULT for as long as it runs."""
    doubted = replace(held("2001:db8:2::11/64"), doubt="is not in use yet")
    found = localized(TEXT, facts(held=(held("192.0.2.11/24"), doubted)))
    assert reasons(found) == {
        "shop/web/v6": "2001:db8:2::11, from which node n1 is to speak, is not in use yet",
    }


def test_an_instance_that_may_not_be_heard_is_told() -> None:
    """Its address is on another interface than VRRP goes out by; one that is on both, or multicast, is well."""
    nodes = {"interfaces": frozenset({"lo", "eth0", "eth9"})}
    text = TEXT.replace("    interface eth0\n", "    interface eth9\n")
    found = localized(text, facts(**nodes))
    assert found.note.startswith("VRRP goes out by eth9, but 192.0.2.11, from which it is sent, is on eth0: ")
    assert "let spec.vrrpInterface name eth0" in found.note
    assert "; " not in found.note, "the group tells its parts apart by that"
    assert len(found.configuration.instances) == 3
    both = (*facts().held, held("192.0.2.11/24", "eth9"), held("2001:db8:2::11/64", "eth9"))
    assert localized(text, facts(**nodes, held=both)).note == localized(TEXT, facts()).note == ""


def test_multicast_needs_an_address_to_come_from() -> None:
    """Without one keepalived is in FAULT, which nobody else explains; IPv6 has its link-local one."""
    nodes = {"interfaces": frozenset({"lo", "eth0", "eth9"})}
    here = scene.rendered({"shop/web": "192.0.2.130"}, unicast_enabled=False)
    there = here.replace(" interface eth0", " interface eth9")
    found = localized(there, facts(**nodes))
    assert found.note.startswith("eth9 has no IPv4 address, from which VRRP could be sent for VIPs of IPv4")
    assert len(found.configuration.instances) == 1, "it may have one at any moment"
    both = (*facts().held, held("198.51.100.11/24", "eth9"))
    assert localized(there, facts(**nodes, held=both)).note == localized(here, facts(**nodes)).note == ""
    six = scene.rendered({"shop/web": "2001:db8:2::130"}, unicast_enabled=False).replace(
        " interface eth0", " interface eth9"
    )
    assert localized(six, facts(**nodes)).note == ""


def test_nodes_do_not_switch_to_what_may_not_be_heard() -> None:
    """Who is heard now does not go where nobody may; who is there already may switch, back as well."""
    nodes = facts(interfaces=frozenset({"lo", "eth0", "eth9"}))
    here, there = localized(TEXT, nodes), localized(TEXT.replace(" interface eth0\n", " interface eth9\n"), nodes)
    assert strays(there, here, nodes).startswith("VRRP goes out by eth9, but 192.0.2.11")
    assert (strays(here, here, nodes), strays(here, there, nodes), strays(there, there, nodes)) == ("", "", "")


def test_an_instance_that_can_no_more_be_heard_is_not_kept() -> None:
    """That it ran before is no reason: a peer has its VIPs by now."""
    good = localized(TEXT, facts())
    found = localize(scene.mounted(TEXT), facts(held=(held("192.0.2.11/24"),)), good)
    assert isinstance(found, Localized)
    assert [(each.name, each.kept) for each in found.left_out] == [("shop/web/v6", False)]


def test_the_password_is_inserted() -> None:
    """It stands where the marker was, and in no representation of the values that hold it."""
    found = localized(SECRET_TEXT, facts(), password=scene.PASSWORD)
    assert f"    authentication {{\n        auth_type PASS\n        auth_pass {scene.PASSWORD}\n    }}\n" in found.text
    assert "# kavip: authentication" not in found.text
    assert scene.PASSWORD not in repr(found)
    assert scene.PASSWORD not in repr(scene.mounted(SECRET_TEXT, password=scene.PASSWORD))


@pytest.mark.parametrize(
    "password", ["", "pa ss", "pa#ss", "ninechars", "pa\nss", "tail\n", "é", 'a"b', "a}b", "@n1 x"]
)
def test_a_password_that_keepalived_would_mangle_is_refused(password: str) -> None:
    """The message says what is allowed, and does not hold it."""
    reason = refusal(SECRET_TEXT, facts(), password=password)
    assert reason.startswith("password: want 1 to 8 characters")
    assert not password or password not in reason


def test_a_missing_password_is_refused() -> None:
    """The instance never runs without the authentication that its neighbours expect."""
    assert refusal(SECRET_TEXT, facts(), password=None).startswith("password: the Secret")


def test_a_text_without_the_marker_needs_no_password() -> None:
    """Version 3 has no authentication."""
    assert scene.PASSWORD not in localized(TEXT, facts(), password=scene.PASSWORD).text


# --- the node's own addresses, and what daemons left ------------------------------------------------------------------


@pytest.mark.parametrize("own", ["192.0.2.130/24", "192.0.2.130/32"])
@pytest.mark.parametrize("interface", ["eth1", "lo", "eth0"])
def test_an_address_of_the_node_is_never_a_vip(own: str, interface: str) -> None:
    """Whatever the interface and prefix length: keepalived would delete it from the node."""
    node = facts(held=(*facts().held, held(own, interface)), interfaces=frozenset({"lo", "eth0", "eth1"}))
    found = localized(TEXT, node)
    assert "192.0.2.130 is node n1's own address" in reasons(found)["shop/web"]
    assert [each.name for each in found.configuration.instances] == ["shop/cart", "shop/web/v6"]


def test_the_internal_ip_of_the_node_is_never_a_vip() -> None:
    """Even before it is on an interface."""
    node = facts(address=parse_address("192.0.2.130"))
    assert "its InternalIP" in reasons(localized(TEXT, node))["shop/web"]


def test_vips_of_ours_are_not_the_nodes_own() -> None:
    """The running master has them; so may a daemon that was killed, with or without a record."""
    on_node = (*facts().held, held("192.0.2.130/32"))
    assert reasons(localized(TEXT, facts(held=on_node, ours=frozenset({vip("192.0.2.130/32")})))) == {}
    assert reasons(localized(TEXT, facts(held=(*facts().held, held("192.0.2.130/32", added=True))))) == {}
    assert reasons(localized(TEXT, facts(held=(*facts().held, held("192.0.2.130/32", KUBE_PROXY_INTERFACE))))) == {}


def test_what_is_named_is_known_though_it_is_refused() -> None:
    """A pod without a record finds by it what a daemon left, be the configuration bad or the instance."""
    every = {vip("192.0.2.130"), vip("2001:db8:2::130"), vip("192.0.2.131")}
    for text in (TEXT, TEXT.replace("router_id edge", "include x"), TEXT.replace("state BACKUP", "state ~")):
        assert named(scene.mounted(text), facts()) == every
    node = facts(held=(held("198.51.100.1/24", "ens3"),))
    moved = named(scene.mounted(TEXT, interface_from_ip="198.51.100.9"), node)
    assert moved == {each._replace(interface="ens3") for each in every}


def test_leftovers_are_what_was_recorded_and_does_not_run() -> None:
    """The prefix length and the interface must agree; the node's own address is never one."""
    node = facts(
        held=(*facts().held, held("192.0.2.130/32"), held("192.0.2.131/32"), held("192.0.2.132/24")),
        ours=frozenset(vip(text) for text in ("192.0.2.130", "192.0.2.131", "192.0.2.132", "192.0.2.11/24")),
    )
    assert leftovers(node, wanted=frozenset(), running=frozenset({vip("192.0.2.131")})) == (vip("192.0.2.130"),)


def test_without_a_record_a_leftover_must_look_added() -> None:
    """After the pod was replaced only what keepalived could have put there is taken away, and only if it is wanted."""
    wanted = frozenset({vip("192.0.2.130"), vip("192.0.2.131")})
    node = facts(held=(held("192.0.2.130", added=True), held("192.0.2.131"), held("192.0.2.132", added=True)))
    assert leftovers(node, wanted=wanted, running=frozenset()) == (vip("192.0.2.130"),)


def test_addresses_of_kube_proxy_are_never_leftovers() -> None:
    """Its IPVS mode keeps all Service addresses on one interface."""
    ours = vip("192.0.2.130", KUBE_PROXY_INTERFACE)
    node = facts(held=(held("192.0.2.130", KUBE_PROXY_INTERFACE, added=True),), ours=frozenset({ours}))
    assert leftovers(node, wanted=frozenset({ours}), running=frozenset()) == ()


def test_track_files_are_where_this_agent_writes_them() -> None:
    """The folder is the agent's, and the keyword the one of which keepalived does not complain at every reload."""
    text = scene.rendered({"shop/web": "192.0.2.130"}, checks=[Check(name="a", url="kubelet")])
    assert 'vrrp_track_file check-a {\n    file "/run/kavip/track/check-a"\n}\n' in text
    found = localize(scene.mounted(text), replace(facts(), track_dir="/elsewhere/x"))
    assert isinstance(found, Localized)
    assert '\ntrack_file check-a {\n    file "/elsewhere/x/check-a"\n}\n' in found.text
    assert found.configuration.instances[0].tracks == (Track("check-a", 0),)
