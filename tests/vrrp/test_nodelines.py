"""Other nodes in a text give the text that is rendered for these nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import GroupVirtualIP, PasswordAuth, SecretRef
from kavip.vrrp.members import Peer
from kavip.vrrp.nodelines import with_nodes
from kavip.vrrp.running import running_nodes
from tests.support import build
from tests.vrrp.samples import NEW, annotated, conf, nodes, shared

SERVICES = [annotated("a/web", "192.0.2.130", "2001:db8::1"), annotated("b/v6", "192.0.2.9")]
OWN = {"virtual_ips": [GroupVirtualIP("192.0.2.200"), GroupVirtualIP("2001:db8::2")]}
SPECS: dict[str, dict[str, Any]] = {
    "unicast": {**NEW, **OWN},
    "multicast": {**NEW, **OWN, "unicast_enabled": False},
    "password": {**OWN, "unicast_enabled": True, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))},
    "Shared": {**NEW, **OWN, "instances": shared(3), "no_preempt": True},
}
PEERS = st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True).map(
    lambda numbers: [peer for peer in nodes(12) if int(peer.name[1:]) in numbers]
)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@given(before=PEERS, after=PEERS, preferred=st.sets(st.sampled_from([f"n{number}" for number in range(1, 13)])))
def test_it_is_the_text_for_these_nodes(
    spec: dict[str, Any], before: list[Peer], after: list[Peer], preferred: set[str]
) -> None:
    """Whatever nodes the text had, the outcome is the text that is rendered for the new ones."""
    group = build.group("lb/edge", **spec)
    after = [Peer(each.name, each.ipv4, each.ipv6, preference=int(each.name in preferred)) for each in after]
    assert with_nodes(conf(group, SERVICES, before), "lb/edge", after) == conf(group, SERVICES, after)


def test_a_node_without_an_address_of_the_family_sends_nothing() -> None:
    """If no node has an IPv6 address, the IPv6 instance has no source, and does not fall back to multicast."""
    group = build.group("lb/edge", **SPECS["unicast"])
    text = with_nodes(conf(group, [], nodes(2)), "lb/edge", nodes(2, ipv6=False))
    assert text.count("fe80::6b61:0 min_ttl 255") == 1
    assert {address.family for _, address in running_nodes(text).sources} == {4}


@given(peers=PEERS)
def test_the_first_node_changes_no_other(peers: list[Peer]) -> None:
    """The node that is to rank first does so, and every other node keeps its priority."""
    text = conf(build.group("lb/edge", **SPECS["unicast"]), [], nodes(1))
    chosen = peers[0].name
    plain, led = (with_nodes(text, "lb/edge", peers, first=first).split("\n") for first in ("", chosen))
    assert all(f"@{chosen} priority " in line for line in set(led) - set(plain))
    ranks = [int(line.split()[-1]) for line in led if " priority " in line and "@" in line]
    own = [int(line.split()[-1]) for line in led if f"@{chosen} priority " in line]
    assert len(set(own)) == 1
    assert own[0] == max(ranks) <= 251
    assert len(peers) == 1 or ranks.count(own[0]) == len(own)
