"""Services that may name interfaces do not affect their neighbours in real daemons."""

import json

import pytest

from hack.testbed import process
from hack.testbed.fixtures import MakeSegment
from kavip.api.service import Service
from kavip.vrrp import config
from tests.support import build
from tests.vrrp import livedaemons
from tests.vrrp.samples import STEADY, annotated, model, nodes

pytestmark = pytest.mark.netns

ABSENT = {
    "a/tracks": {"track_interface": "{ eth7 }"},
    "a/routes": {"virtual_routes": "{ 198.18.0.0/15 dev eth7 }"},
}


def test_an_absent_interface_affects_only_the_service_that_names_it(segment: MakeSegment) -> None:
    """Where no node has an interface, only the Service that names it has no master; it gets one when a node has it."""
    lan = segment(nodes=2)
    group = build.group(**STEADY, allow_verbatim=["track_interface", "virtual_routes"])
    steady: list[Service] = [annotated("a/own", "192.0.2.130", "2001:db8:2::130")]
    more = [
        annotated(key, f"192.0.2.{140 + number}", verbatim=json.dumps(wanted))
        for number, (key, wanted) in enumerate(ABSENT.items())
    ]
    alone, together = model(group, steady, nodes(2)), model(group, [*steady, *more], nodes(2))
    assert not together.problems
    daemons = livedaemons.start(lan, config.render(alone).text)
    wanted = livedaemons.leaders(alone.instances)
    livedaemons.settle(daemons, wanted)
    before = [seen["a/own"].changes for seen in livedaemons.settled(daemons).values()]

    for daemon in daemons:
        daemon.reload(config.render(together).text)

    def states() -> set[str]:
        return {seen[key].state for seen in (daemon.look() for daemon in daemons) for key in ABSENT}

    process.wait_for("both are in FAULT", lambda: states() == {"FAULT"}, timeout=livedaemons.PATIENCE)

    host = lan.node("n1")
    host.exec("ip", "link", "add", "eth7", "type", "veth", "peer", "name", "eth7-end")
    for name in ("eth7", "eth7-end"):
        host.exec("ip", "link", "set", name, "up")
    now = {**wanted, "a/tracks": "n1", "a/routes": "n1"}
    expected = {name: [node] for name, node in now.items()}
    process.wait_for(
        "who lacked it has a master", lambda: livedaemons.masters(daemons) == expected, timeout=livedaemons.PATIENCE
    )
    process.wait_for(
        "the route is there",
        lambda: "198.18.0.0/15 dev eth7" in host.exec("ip", "route").stdout,
        timeout=livedaemons.PATIENCE,
    )
    assert [daemon.look()["a/own"].changes for daemon in daemons] == before
