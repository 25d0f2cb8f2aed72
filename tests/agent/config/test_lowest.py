"""The running configuration with the lowest priority."""

import re
from typing import Any

import pytest

from kavip.agent.config import validate
from kavip.agent.config.localize import localize
from kavip.agent.config.lowest import INTERVALS, lowered
from kavip.agent.config.model import LocalizedConfig, ParsedConfig
from tests.agent import mounts
from tests.agent.config.test_localize import facts

VIPS = {"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131"}


def localized(**spec: Any) -> LocalizedConfig:
    """The configuration of n1."""
    found = localize(mounts.mounted(mounts.rendered(VIPS, **spec)), facts())
    assert isinstance(found, LocalizedConfig)
    return found


def without_priorities(text: str) -> str:
    """*text* with one number for all priorities."""
    return re.sub(r"priority \d+", "priority N", text)


def test_only_priorities_are_lowered() -> None:
    """Every instance has the lowest one, and the text says what the dump has to show."""
    config = localized()
    found = lowered(config)
    assert found.names == {each.name for each in config.configuration.instances} != set()
    assert without_priorities(found.localized.text) == without_priorities(config.text)
    assert {each.priority for each in found.localized.configuration.instances} == {1}
    assert validate.read(found.localized.text) == found.localized.configuration
    assert found.seconds == pytest.approx(INTERVALS * 0.2)
    assert lowered(found.localized).localized == found.localized


@pytest.mark.parametrize("spec", [{"no_preempt": True}, {"preempt_delay_seconds": 60}])
def test_instances_that_others_would_not_take_over_stay(spec: dict[str, Any]) -> None:
    """A backup with nopreempt leaves a live master alone, and with preempt_delay for longer than a pod may take."""
    config = localized(**spec)
    found = lowered(config)
    assert (found.names, found.localized, found.seconds) == (frozenset(), config, 0.0)


def test_an_instance_without_peers_stays() -> None:
    """Nothing would take it over; with multicast the peers are unknown, so it is lowered."""
    instance = """vrrp_instance a {
    interface eth0
    virtual_router_id 7
    priority 200
    unicast_peer {
    }
}
"""
    alone = LocalizedConfig(instance, "", ParsedConfig())
    assert lowered(alone).localized == alone
    multicast = LocalizedConfig(instance.replace("    unicast_peer {\n    }\n", ""), "", ParsedConfig())
    found = lowered(multicast)
    assert "    priority 1\n" in found.localized.text
    assert found.names == frozenset({"a"}) and found.seconds == INTERVALS
