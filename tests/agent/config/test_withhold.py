"""Leaving VIPs out of a configuration."""

from dataclasses import replace
from typing import Any

import pytest

from kavip.agent.config import validate
from kavip.agent.config.facts import InterfaceAddress, NodeFacts
from kavip.agent.config.localize import localize
from kavip.agent.config.model import ConflictDetection, InstanceFault, LocalizedConfig, ParsedConfig
from kavip.agent.config.withhold import Unprobed, Withheld, unprobed, withhold
from kavip.api.address import parse_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.spans import read_spans
from kavip.vrrp.virtualips import VirtualIP, host
from tests.agent import mounts
from tests.agent.config.test_localize import facts

A, B, C, D = (host(parse_address(f"192.0.2.{number}"), "eth0") for number in (130, 131, 132, 133))
SIX = host(parse_address("2001:db8:2::130"), "eth0")
VIPS = {"shop/web": "192.0.2.130,192.0.2.131,2001:db8:2::130", "shop/cart": "192.0.2.132"}
FAULT = InstanceFault(ProblemCode.ADDRESS_CONFLICT, "another machine has it")


def localized(vips: dict[str, str], **spec: Any) -> LocalizedConfig:
    """The configuration of n1."""
    found = localize(mounts.mounted(mounts.rendered(vips, **spec)), facts())
    assert isinstance(found, LocalizedConfig)
    return found


@pytest.mark.parametrize(
    ("withheld", "left", "excluded"),
    [
        ({}, {"shop/web": {A, B}, "shop/web/v6": {SIX}, "shop/cart": {C}}, []),
        ({D: FAULT}, {"shop/web": {A, B}, "shop/web/v6": {SIX}, "shop/cart": {C}}, []),
        ({B: FAULT}, {"shop/web": {A}, "shop/web/v6": {SIX}, "shop/cart": {C}}, []),
        ({A: FAULT}, {"shop/web/v6": {SIX}, "shop/cart": {C}}, ["shop/web"]),
        ({A: None, C: FAULT}, {"shop/web/v6": {SIX}}, ["shop/cart"]),
        ({A: None, B: FAULT, C: None, SIX: None}, {}, ["shop/web"]),
    ],
    ids=["nothing", "another", "an excluded one", "an anchor", "one that was not asked for", "everything"],
)
def test_what_is_left(withheld: Withheld, left: dict[str, set[VirtualIP]], excluded: list[str]) -> None:
    """Its text is valid, says the same, and has no empty block."""
    found = withhold(localized(VIPS), withheld)
    assert {each.name: set(each.virtual_ips) for each in found.configuration.instances} == left
    assert [each.name for each in found.excluded] == excluded
    assert validate.read(found.text) == found.configuration
    assert not any(f" {vip.address}/" in found.text for vip in withheld)
    assert "virtual_ipaddress_excluded {\n    }" not in found.text
    assert found.config_hash == localized(VIPS).config_hash


def test_a_shared_instance_without_vips_stays() -> None:
    """It advertises an address of its own, so that its other VIPs join it without an election."""
    found = withhold(localized({"shop/web": "192.0.2.130"}, instances=mounts.shared(1)), {A: FAULT})
    (instance,) = found.configuration.instances
    assert instance.name == "group/0" and A not in instance.virtual_ips and len(instance.virtual_ips) == 1
    assert found.excluded == ()


def of_text(node: NodeFacts = facts(), running: tuple[str, ...] = (), **fields: Any) -> Unprobed:  # noqa: B008 - frozen
    """What a node must ask for that runs the instances *running*."""
    detection = ConflictDetection(**{"probe": read_spans(["192.0.2.130-192.0.2.131", "2001:db8:2::130"]), **fields})
    mounted = replace(mounts.mounted(mounts.rendered(VIPS)), detection=detection)
    known = ParsedConfig(tuple(each for each in localized(VIPS).configuration.instances if each.name in running))
    return unprobed(mounted, node, known)


def test_new_vips_are_asked_for() -> None:
    """Those that the controller names, and that this node does not run; without a switched-off pool."""
    assert of_text().vips == {A, B, SIX}
    assert of_text(running=("shop/web",)).vips == {SIX}
    assert of_text(off=read_spans(["192.0.2.130"])).vips == {B, SIX}
    assert of_text(probe=read_spans([])).vips == frozenset()


def test_unicast_peers_are_the_other_nodes() -> None:
    """The node's own address is none; also where nothing is to be asked for: claims on held VIPs are verified."""
    own = InterfaceAddress(host(parse_address("192.0.2.11"), "eth0"))
    found = of_text(replace(facts(), held=(own,)), probe=read_spans([]))
    assert {str(each) for each in found.peers} == {"192.0.2.12", "2001:db8:2::11", "2001:db8:2::12"}


def test_nothing_is_asked_for_without_detection_or_while_a_pod_joins() -> None:
    """An earlier controller does not switch it on; a pod whose password nobody uses runs nothing."""
    mounted = mounts.mounted(mounts.rendered(VIPS))
    held = NodeProblem(ProblemCode.PASSWORD_NOT_ACCEPTED, "")
    for each in (mounted, replace(mounted, detection=ConflictDetection(read_spans(["192.0.2.130"])), held=held)):
        assert unprobed(each, facts(), ParsedConfig()) == Unprobed()
