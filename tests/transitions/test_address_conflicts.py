"""New VIPs on live nodes that get the text at different times, with and without a stranger on the LAN."""

from typing import Any

import msgspec
import pytest

from hack.testbed import process
from kavip import names
from kavip.api.agentconfig import DetectionConfig, decode_config
from kavip.reconcile.observed.foreignclaims import foreign_claims_of
from tests.agent.conflicts.capture import captured
from tests.agent.conflicts.stranger import having
from tests.agent.conflicts.test_before_announcement import assert_asked_before_announced
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

WEB, NEW, NEW6 = "192.0.2.130", "192.0.2.131", "2001:db8:2::131"
LATE = 8 * INTERVAL
"""Seconds by which a node lags behind: by then the others have a master."""


def detection(live: LiveGroup) -> DetectionConfig:
    """What the ConfigMap says."""
    config = decode_config((live.simulation.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])
    assert config is not None and config.conflict_detection is not None
    return config.conflict_detection


def until(live: LiveGroup, what: str, ready: Any) -> None:
    """Repeat the rounds of controller, kubelets and agents until *ready*."""

    def done() -> bool:
        live.step()
        return bool(ready())

    process.wait_for(what, done, timeout=PATIENCE, interval=0.1)


def runs_everywhere(live: LiveGroup, *vips: str) -> bool:
    """Whether every agent reports that keepalived runs *vips*."""
    states = live.simulation.agents.states_of(GROUP)
    return len(states) == len(live.pods) and all(
        set(vips) <= {str(each) for each in state.runs} for state in states.values()
    )


def claimed(live: LiveGroup) -> dict[str, str]:
    """The strangers by VIP, as the controller sees them."""
    states = live.simulation.agents.states_of(GROUP)
    nodes = {each for state in states.values() for each in state.hardware}
    return {str(address): each.claim.hardware for address, each in foreign_claims_of(states, nodes=nodes).items()}


@pytest.mark.parametrize("unicast", [True, False], ids=["unicast", "multicast"])
def test_nodes_that_get_new_vips_one_after_the_other(make_live_group: MakeLiveGroup, unicast: bool) -> None:
    """
    Each asks before it announces; a late one recognises the master, with multicast by the controller's list.

    Another Service loses no request, and nobody is told of a conflict.
    """
    live = make_live_group(3)
    live.apply(group(unicast_enabled=unicast), service("shop/web", WEB))
    live.load()
    live.wait_for_masters()
    late = live.preferred_nodes()["shop/web"]  # whichever node it is
    with record(live, [WEB]) as recorded, captured(live.lan) as capture:
        live.apply(service("shop/new", NEW, NEW6), delays={late: LATE})
        until(live, "all run the new VIPs", lambda: runs_everywhere(live, NEW, NEW6))
        live.wait_for_masters()
        until(live, "it is announced", lambda: capture.claims(NEW) and capture.claims(NEW6))
        for address in (NEW, NEW6):
            assert_asked_before_announced(capture, address, *live.pods)
        assert claimed(live) == {}
    assert (recorded.failures, recorded.double_masters) == ({}, ()), recorded.timeline()


def test_the_first_start_of_a_group_without_unicast_peers(make_live_group: MakeLiveGroup) -> None:
    """The nodes start at once and do not know each other; what they must know is written once they ask for it."""
    live = make_live_group(3)
    live.apply(group(unicast_enabled=False), service("shop/web", WEB, "2001:db8:2::130"))
    until(live, "all run the VIPs", lambda: runs_everywhere(live, WEB, "2001:db8:2::130"))
    live.wait_for_masters()
    assert claimed(live) == {}


def test_a_node_that_joins_later(make_live_group: MakeLiveGroup) -> None:
    """The list of new VIPs is old; the node asks, hears that a node has them, and takes its share."""
    live = make_live_group(2)
    live.apply(group(), service("shop/web", WEB), service("shop/new", NEW))
    live.wait_for_masters()
    assert detection(live).probe != ()
    live.join("n3")
    until(live, "it runs them", lambda: runs_everywhere(live, WEB, NEW))
    live.wait_for_masters()
    assert claimed(live) == {} and set(detection(live).hardware_addresses) >= {
        live.lan.node(name).address.mac for name in ("n1", "n2")
    }


def test_a_stranger_keeps_one_vip_from_being_announced(make_live_group: MakeLiveGroup) -> None:
    """On no node; the other VIPs are served, and its own when the LAN is silent."""
    live = make_live_group(2)
    live.apply(group(), service("shop/web", WEB))
    live.wait_for_masters()
    with record(live, [WEB]) as recorded, captured(live.lan) as capture:
        with having(live.lan.client, NEW):
            live.apply(service("shop/new", NEW, NEW6), delays={"n2": 1.0})
            until(live, "it is known", lambda: claimed(live) == {NEW: live.lan.client.address.mac})
            until(live, "the other family is served", lambda: runs_everywhere(live, WEB, NEW6))
            assert {each.host for each in capture.claims(NEW)} == {"client"}
            live.apply(service("shop/api", "192.0.2.132"))
            until(live, "another VIP is served", lambda: runs_everywhere(live, "192.0.2.132"))
        until(live, "it is announced", lambda: capture.claims(NEW, by="n1") or capture.claims(NEW, by="n2"))
        until(live, "all run it", lambda: runs_everywhere(live, NEW))
    assert claimed(live) == {}
    assert (recorded.failures, recorded.double_masters) == ({}, ()), recorded.timeline()
    assert msgspec.json.encode(detection(live))
