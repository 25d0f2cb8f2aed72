"""The agent accepts what the controller renders, and finds the VIPs in it."""

from pathlib import Path

import pytest

from kavip.agent.config.facts import InterfaceAddress, NodeFacts
from kavip.agent.config.localize import localize, written_addresses
from kavip.agent.config.model import LocalizedConfig
from kavip.api.address import parse_address
from kavip.vrrp.config import render
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import Member
from kavip.vrrp.virtualips import VirtualIP
from tests.agent.mounts import FAST, PASSWORD, mounted, peer, rendered
from tests.support.build import group

GOLDEN = sorted((Path(__file__).parents[2] / "vrrp" / "golden").glob("*.conf"))
FACTS = NodeFacts(
    "n1",
    parse_address("192.0.2.11"),
    frozenset({"eth0", "eth1", "eth2", "bond0", "bond0.7", "lo"}),
    tuple(InterfaceAddress(VirtualIP(parse_address(text), 24, "eth0")) for text in ("192.0.2.11", "2001:db8:2::11")),
)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_golden_configurations_are_accepted(golden: Path) -> None:
    """Each golden file of the renderer becomes a configuration of this node."""
    text = golden.read_text()
    found = localize(mounted(text, authentication=True, password=PASSWORD), FACTS)
    assert isinstance(found, LocalizedConfig), found
    assert len(found.configuration.instances) == text.count("\nvrrp_instance ")


def test_a_spread_ipv6_instance_is_accepted() -> None:
    """Its name holds the address with its colons."""
    owner = group("lb/edge", **FAST)
    addresses = tuple(map(parse_address, ("192.0.2.130", "2001:db8:2::130")))
    member = Member(key="shop/web", addresses=addresses, spread=True)
    ids = {"shop/web/192.0.2.130": 7, "shop/web/2001:db8:2::130": 8}
    text = render(model_of(owner, [member], [peer(1), peer(2)], ids)).text
    found = localize(mounted(text), FACTS)
    assert isinstance(found, LocalizedConfig), found
    assert "shop/web/2001:db8:2::130" in {each.name for each in found.configuration.instances}


def test_the_addresses_of_a_text_are_its_vips() -> None:
    """As the kernel reports them, of both families; no address of a peer, whose change concerns the node."""
    text = rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/api": "192.0.2.131"})
    assert "192.0.2.12" in text
    assert written_addresses(text) == {"192.0.2.130", "2001:db8:2::130", "192.0.2.131"}
