"""Advertised of Services with policy Local: VIPs that have masters, and no ready endpoint there."""

from dataclasses import replace

import pytest

from kavip.vrrp.tracking import local_track
from tests.reconcile.service.planning import VIP, WEB, web
from tests.reconcile.service.test_advertised import condition, node, say, served, work
from tests.reconcile.simulatedcluster import SimulatedCluster
from tests.support import build

DROPPED = "; connections to it are dropped (externalTrafficPolicy: Local): "


def without_endpoints(policy: str = "Local") -> SimulatedCluster:
    """n1 holds the VIP, and for ten seconds both nodes have reported that they have no ready endpoint."""
    simulation = served(web(external_traffic_policy=policy, health_check_node_port=30100))
    track = frozenset({local_track(WEB)})
    say(simulation, n1=replace(node("MASTER"), unready=track), n2=replace(node(), unready=track))
    simulation.later(10)
    work(simulation)
    return simulation


def test_a_vip_without_a_ready_endpoint_is_reported() -> None:
    """With the policy Local, if every node reports it for ten seconds. Cluster needs no endpoints."""
    held = ("True", "Master", f"node n1 holds {VIP}")
    assert condition(without_endpoints("Cluster")) == held
    simulation = without_endpoints()
    assert condition(simulation) == (
        *("True", "NoEndpoints"),
        f"node n1 holds {VIP}{DROPPED}no node has a ready endpoint",
    )
    assert simulation.snapshot.followed == {WEB}, "its slices say whether other nodes have one"
    say(simulation, n1=replace(node("MASTER"), unready=frozenset({local_track(WEB)})), n2=node())
    assert condition(simulation) == held
    assert simulation.snapshot.followed == set()


@pytest.mark.parametrize(
    ("nodes", "they"),
    [
        (("n3",), "n3, which is not in KeepalivedGroup lb/edge: add it"),
        (("n4", "n3"), "n3, n4, which are not in KeepalivedGroup lb/edge: add one of them"),
    ],
)
def test_endpoints_on_nodes_outside_the_group_are_named(nodes: tuple[str, ...], they: str) -> None:
    """No node of the group can answer, so the Service is not advertised; endpoints on a node of the group end that."""
    simulation = without_endpoints()
    simulation.snapshot.put(build.endpoints(WEB, *nodes))
    work(simulation)
    remedy = "to the group, or run a pod on a node of the group"
    assert condition(simulation) == (
        *("False", "EndpointsOutsideGroup"),
        f"node n1 holds {VIP}{DROPPED}ready on {they} {remedy}",
    )
    simulation.snapshot.put(build.endpoints(WEB, "n1", *nodes))
    work(simulation)
    simulation.later(10)
    work(simulation)
    assert condition(simulation) == (
        *("True", "NoEndpoints"),
        f"node n1 holds {VIP}{DROPPED}no node has a ready endpoint",
    ), "the agents do not report it yet"


def test_endpoints_outside_the_group_are_reported_when_they_last() -> None:
    """A rolling update may leave the group without a ready pod for a moment."""
    simulation = served(web(external_traffic_policy="Local", health_check_node_port=30100))
    simulation.snapshot.put(build.endpoints(WEB, "n3"))
    say(simulation, n1=node("MASTER"), n2=node())
    track = frozenset({local_track(WEB)})
    say(simulation, n1=replace(node("MASTER"), unready=track), n2=replace(node(), unready=track))
    simulation.later(9)
    work(simulation)
    assert condition(simulation) == ("True", "Master", f"node n1 holds {VIP}")
    simulation.later(1)
    work(simulation)
    found = condition(simulation)
    assert found is not None and found[:2] == ("False", "EndpointsOutsideGroup")
