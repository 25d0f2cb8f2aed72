"""The model of one group."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import parse_address
from kavip.api.group import GroupVirtualIP
from kavip.names import Reason
from kavip.vrrp import config, keys
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import Member, Peer, member_of
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, named, nodes, peer_of, shared, vips


def test_one_instance_per_family() -> None:
    """A dual-stack Service has two instances with one VRID and the same leader; IPv6 has version 3."""
    found = named(model(build.group(), [annotated("a/web", "192.0.2.130", "2001:db8::1")], nodes(3)))
    assert list(found) == ["a/web", "a/web/v6"]
    four, six = found.values()
    assert (four.router_id, four.version, six.router_id, six.version) == (1, 2, 1, 3)
    assert four.priorities == six.priorities


def test_ipv6_only() -> None:
    """An IPv6-only Service has only the /v6 instance."""
    found = named(model(build.group(), [annotated("a/web", "2001:db8::1")], nodes(2)))
    assert list(found) == ["a/web/v6"]


def test_without_address_no_instance() -> None:
    """A Service without a VIP holds a VRID and has no instance: version 3 without a VIP ends the daemon."""
    group, members = build.group(), [member_of(annotated("a/web"), build.group())]
    assert keys.wanted_keys(group, members) == ("a/web",)
    assert model_of(group, members, nodes(2), {"a/web": 1}).instances == ()


def test_first_vip_is_advertised() -> None:
    """One VIP is the anchor; all others are excluded from the advertisement."""
    (found,) = model(
        build.group(), [annotated("a/web", "192.0.2.132", "192.0.2.130", "192.0.2.131")], nodes(2)
    ).instances
    assert str(found.anchor) == "192.0.2.130/32"
    assert [str(vip) for vip in found.excluded] == ["192.0.2.131/32", "192.0.2.132/32"]


def test_anchor_stays() -> None:
    """The advertised address stays the anchor while it is a VIP, even when a lower address is added."""
    group = build.group()
    before = config.render(model(group, [annotated("a/web", "192.0.2.131", "2001:db8::2")], nodes(2)))
    grown = model(
        group, [annotated("a/web", "192.0.2.130", "192.0.2.131", "2001:db8::1", "2001:db8::2")], nodes(2), before=before
    )
    assert [str(instance.anchor.address) for instance in grown.instances] == ["192.0.2.131", "2001:db8::2"]
    moved = model(group, [annotated("a/web", "192.0.2.130")], nodes(2), before=before)
    assert [str(instance.anchor.address) for instance in moved.instances] == ["192.0.2.130"]


def test_its_vips_are_ordered_whichever_is_advertised() -> None:
    """The anchor may be any of them, where the nodes run it."""
    group = build.group(**NEW)
    before = config.render(model(group, [annotated("a/web", "192.0.2.150")], nodes(2)))
    (found,) = model(group, [annotated("a/web", "192.0.2.130", "192.0.2.150")], nodes(2), before=before).instances
    assert vips(found) == ["192.0.2.150", "192.0.2.130"]
    assert found.ordered == tuple(map(parse_address, ("192.0.2.130", "192.0.2.150")))


def test_spread() -> None:
    """With spreadvips each address has its own instance and VRID."""
    found = named(model(build.group(), [annotated("a/web", "192.0.2.1", "2001:db8::1", spread=True)], nodes(2)))
    assert {name: (vips(each), each.router_id) for name, each in found.items()} == {
        "a/web/192.0.2.1": (["192.0.2.1"], 1),
        "a/web/2001:db8::1": (["2001:db8::1"], 2),
    }


def test_absent_fields_keep_their_old_meaning() -> None:
    """A group of keepalived-operator runs multicast, version 2, one second."""
    (found,) = model(build.group(), [annotated("a/web", "192.0.2.1")], nodes(2)).instances
    assert (found.sources, found.version, found.interval, found.lines) == ((), 2, "1", ())


def test_unicast() -> None:
    """Unicast lists every node that has an address of the family."""
    peers = [*nodes(2), Peer("n3", parse_address("192.0.2.13"))]
    found = named(model(build.group(**NEW), [annotated("a/web", "192.0.2.130", "2001:db8::1")], peers))
    assert [name for name, _ in found["a/web"].sources] == ["n1", "n2", "n3"]
    assert [name for name, _ in found["a/web/v6"].sources] == ["n1", "n2"]
    assert [name for name, _ in found["a/web/v6"].priorities] == ["n1", "n2", "n3"]


def test_unicast_without_addresses_of_the_family() -> None:
    """Where no node has an IPv6 address, IPv6 VIPs are advertised by multicast, from link-local addresses."""
    found = named(model(build.group(**NEW), [annotated("a/web", "192.0.2.130", "2001:db8::1")], nodes(2, ipv6=False)))
    assert found["a/web"].sources
    assert found["a/web/v6"].sources == ()


def test_one_node_stays_unicast() -> None:
    """The only node of a group stays unicast: a change to multicast would be an outage of every VIP."""
    (found,) = model(build.group(**NEW), [annotated("a/web", "192.0.2.130")], nodes(1)).instances
    assert len(found.sources) == 1


def test_vrrp_interface() -> None:
    """VRRP may run on another interface than the VIPs."""
    (found,) = model(build.group(vrrp_interface="eth1"), [annotated("a/web", "192.0.2.1")], nodes(2)).instances
    assert (found.interface, found.anchor.interface) == ("eth1", "eth0")


def test_password_only_in_version_2() -> None:
    """The mark for the password is written where VRRP has a password."""
    from kavip.api.group import PasswordAuth, SecretRef

    group = build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    found = named(model(group, [annotated("a/web", "192.0.2.1", "2001:db8::1")], nodes(2)))
    assert [found[name].authenticated for name in ("a/web", "a/web/v6")] == [True, False]


def test_virtual_ips_of_the_group() -> None:
    """The VIPs of the group itself have an instance under a name that no Service can have, on their own interface."""
    listed = [GroupVirtualIP(address="192.0.2.5/24"), GroupVirtualIP(address="192.0.2.6", interface="eth1")]
    (found,) = model(build.group("lb/edge", virtual_ips=listed), [], nodes(2)).instances
    assert found.name == "lb/edge/virtualips"
    assert [f"{vip} {vip.interface}" for vip in (found.anchor, *found.excluded)] == [
        "192.0.2.5/24 eth0",
        "192.0.2.6/32 eth1",
    ]


@pytest.mark.parametrize("more", [{}, {"instances": shared(1)}], ids=["PerService", "Shared"])
def test_virtual_ips_with_one_pinned_vrid_are_in_one_instance(more: dict[str, Any]) -> None:
    """Each pinned VRID has an instance per family, in Shared mode too; the other VIPs are where they were."""
    listed = [
        GroupVirtualIP(address="192.0.2.5/24", router_id=10),
        GroupVirtualIP(address="192.0.2.6"),
        GroupVirtualIP(address="192.0.2.7", router_id=20),
        GroupVirtualIP(address="192.0.2.8", router_id=10),
        GroupVirtualIP(address="2001:db8::5", router_id=10),
    ]
    group = build.group("lb/edge", virtual_ips=listed, **more)
    found = {(each.name, each.router_id): vips(each) for each in model(group, [], nodes(2)).instances}
    others = "group/0" if more else "lb/edge/virtualips"
    assert found == {
        ("lb/edge/virtualips/10", 10): ["192.0.2.5", "192.0.2.8"],
        ("lb/edge/virtualips/10/v6", 10): ["2001:db8::5"],
        ("lb/edge/virtualips/20", 20): ["192.0.2.7"],
        (others, 1): ["169.254.255.1", "192.0.2.6"] if more else ["192.0.2.6"],
    }


def test_an_invalid_virtual_ip_of_the_group() -> None:
    """An invalid VIP of the group that bypassed admission is left out and reported; the others are served."""
    listed = [GroupVirtualIP(address="127.0.0.1"), GroupVirtualIP(address="192.0.2.6")]
    found = model(build.group("lb/edge", virtual_ips=listed), [], nodes(2))
    assert vips(found.instances[0]) == ["192.0.2.6"]
    assert "spec.virtualIPs[0].address" in found.problems["lb/edge/virtualips"].message


# --- one address, several Services ---------------------------------------------------------------------------------
def test_oldest_carries_a_shared_address() -> None:
    """An address that two Services have is in the instance of the older one only."""
    young = annotated("a/a", "192.0.2.1", "192.0.2.2", created="2026-03-01T00:00:00Z")
    old = annotated("a/b", "192.0.2.1", created="2026-01-01T00:00:00Z")
    found = model(build.group(), [young, old], nodes(2))
    assert {name: vips(each) for name, each in named(found).items()} == {"a/a": ["192.0.2.2"], "a/b": ["192.0.2.1"]}


def test_ties_go_by_key_and_no_empty_instance() -> None:
    """Of two Services of the same age the smaller key carries the address; the other has no instance."""
    found = model(build.group(), [annotated("a/b", "192.0.2.1"), annotated("a/a", "192.0.2.1")], nodes(2))
    assert list(named(found)) == ["a/a"]


def test_a_service_without_a_vrid_carries_no_address() -> None:
    """A Service without a VRID leaves a shared address to the next Service that has one."""
    members = [member_of(annotated(key, "192.0.2.1"), build.group()) for key in ("a/a", "a/b")]
    found = model_of(build.group(), members, nodes(2), {"a/b": 4})
    assert list(named(found)) == ["a/b"]
    assert found.problems["a/a"].reason is Reason.ROUTER_IDS_EXHAUSTED


# --- problems of one Service ---------------------------------------------------------------------------------------
def test_overflow_affects_the_last_service_only() -> None:
    """The 256th Service has a problem; the 255 instances do not change."""
    services = [annotated(f"a/s{number:03d}", f"198.51.{number // 250}.{number % 250}") for number in range(256)]
    found = model(build.group(), services, nodes(2))
    assert len(found.instances) == 255
    assert list(found.problems) == ["a/s255"]
    assert "Shared" in found.problems["a/s255"].message


def test_a_service_is_served_without_its_refused_lines() -> None:
    """A Service with refused lines is served without them, and has a problem."""
    found = model(build.group(), [annotated("a/web", "192.0.2.1", verbatim='{"notify": "/bin/sh"}')], nodes(2))
    assert vips(found.instances[0]) == ["192.0.2.1"]
    assert found.instances[0].lines == ()
    assert found.problems["a/web"].reason is Reason.INVALID_VERBATIM


def test_a_node_address_cannot_be_a_vip() -> None:
    """The address of a node is left out: keepalived would remove it from the node."""
    found = model(build.group(), [annotated("a/web", "192.0.2.12", "192.0.2.130")], nodes(2))
    assert vips(found.instances[0]) == ["192.0.2.130"]
    assert found.problems["a/web"].reason is Reason.ADDRESS_NOT_ALLOWED
    assert "node n2" in found.problems["a/web"].message


@pytest.mark.parametrize("key", ["a/b}c", "a/b c", "a/b\nc", 'a/"', "a", "a/b/c", "A/b"])
def test_bad_name(key: str) -> None:
    """A Service that no API server would accept, from a file, affects no other Service."""
    bad = Member(key=key, addresses=(parse_address("192.0.2.1"),))
    good = Member(key="a/good", addresses=(parse_address("192.0.2.2"),))
    assert keys.wanted_keys(build.group(), [bad, good]) == ("a/good",)
    found = model_of(build.group(), [bad, good], nodes(2), {key: 1, "a/good": 2})
    assert list(named(found)) == ["a/good"]
    assert found.problems[key].reason is Reason.INVALID_REQUEST
    assert found.problems[key].message.isprintable()


# --- inputs --------------------------------------------------------------------------------------------------------
def test_member_of() -> None:
    """The VIPs of a Service are the addresses of its status and its external IPs."""
    service = build.service("a/web", holds=["192.0.2.2"], external_ips=["192.0.2.1"], group="lb/edge")
    found = member_of(service, build.group())
    assert [str(address) for address in found.addresses] == ["192.0.2.1", "192.0.2.2"]
    assert (found.spread, found.local, found.lines, found.problem) == (False, False, (), None)


def test_members_without_a_routed_pool_share_one_empty_set() -> None:
    """Each empty set of its own would take 216 bytes for each Service."""
    first, second = (member_of(build.service(key, holds=["192.0.2.2"]), build.group()) for key in ("a/web", "a/api"))
    assert first.routed_by is second.routed_by


@pytest.mark.parametrize("text", ["false", "True", "yes", ""])
def test_spread_is_exactly_true(text: str) -> None:
    """Only "true" spreads, as in keepalived-operator."""
    service = build.service("a/web", annotations={names.SPREAD_ANNOTATION: text})
    assert not member_of(service, build.group()).spread


def test_peer_of() -> None:
    """The addresses of a node are its first InternalIP of each family."""
    found = peer_of(build.node("n1", "192.0.2.11", "2001:db8::1", "192.0.2.12"))
    assert (str(found.ipv4), str(found.ipv6)) == ("192.0.2.11", "2001:db8::1")
    assert peer_of(build.node("n2")).address(4) is None


ADDRESSES = st.builds(lambda number: f"192.0.2.{number}", st.integers(128, 140)) | st.builds(
    lambda number: f"2001:db8::{number}", st.integers(1, 9)
)
MEMBERS = st.dictionaries(
    st.sampled_from([f"a/s{number}" for number in range(12)]),
    st.tuples(st.lists(ADDRESSES, max_size=4), st.booleans(), st.booleans(), st.sampled_from(["2026-01", "2026-02"])),
)


@pytest.mark.slow
@given(wanted=MEMBERS, mode=st.sampled_from(["PerService", "Shared"]), random=st.randoms(use_true_random=False))
def test_each_address_once_and_in_any_order(
    wanted: dict[str, tuple[list[str], bool, bool, str]], mode: str, random: Random
) -> None:
    """
    Every address is in exactly one instance, no VRID occurs twice in a family, and shuffled input gives the same text.
    """
    group = build.group(**NEW, instances=shared(3) if mode == "Shared" else shared(3).__class__())
    services = [
        annotated(key, *held, spread=spread, created=created, external_traffic_policy="Local" if local else "Cluster")
        for key, (held, spread, local, created) in wanted.items()
    ]
    peers = nodes(3)
    found = model(group, services, peers)
    text = config.render(found).text
    carried = [vip.address for each in found.instances for vip in (each.anchor, *each.excluded)]
    assert len(set(carried)) == len(carried)
    assert {address for service in services for address in service.virtual_ips} <= set(carried)
    spaces = [(each.family, each.router_id) for each in found.instances]
    assert len(set(spaces)) == len(spaces)
    assert not found.problems
    random.shuffle(services)
    random.shuffle(peers)
    assert config.render(model(group, services, peers)).text == text
