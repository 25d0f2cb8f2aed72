"""Preferred nodes hold the VIPs while they are up; each move that a change of labels causes is clean."""

import pytest

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import GroupPlacement, PreferredNodes
from tests.support import build
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

PLACEMENT = GroupPlacement(preferred=[PreferredNodes(weight=100, node_selector={"zone": "a"})])
VIPS = [f"192.0.2.{130 + number}" for number in range(4)]
SERVICES = [f"shop/s{number}" for number in range(4)]


def labelled(live: LiveGroup, **zones: str) -> list[Node]:
    """The nodes, each with its zone."""
    return [build.node(name, live.lan.node(name).ipv4, labels={"zone": zone}) for name, zone in zones.items()]


def test_vips_live_on_preferred_nodes(make_live_group: MakeLiveGroup) -> None:
    """They leave when the preferred node dies, and come back once; another label moves them cleanly."""
    live = make_live_group(3)
    last = service(SERVICES[3], VIPS[3], annotations={names.PREFERRED_NODES_ANNOTATION: "zone=b"})
    first = [service(key, vip) for key, vip in zip(SERVICES[:3], VIPS[:3], strict=True)]
    live.apply(*labelled(live, n1="a", n2="b", n3="b"), group(placement=PLACEMENT), *first, last)
    masters = live.wait_for_masters()
    assert {masters[key] for key in SERVICES[:3]} == {"n1"}
    assert masters[SERVICES[3]] in ("n2", "n3")
    with record(live, VIPS) as relabelled:
        live.apply(*labelled(live, n1="b", n2="a"))
        for key in SERVICES[:3]:
            live.wait_for_master(key, "n2")
    assert relabelled.double_masters == (), relabelled.timeline()
    for vip in VIPS[:3]:
        assert relabelled.moved_cleanly(vip, moves=1), relabelled.timeline()
    live.pods["n2"].stop()
    for key in SERVICES[:3]:
        assert live.master(key) in ("n1", "n3")
    live.pods["n2"].start()
    for key in SERVICES[:3]:
        live.wait_for_master(key, "n2")
