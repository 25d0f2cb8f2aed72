"""Acceptance check (f): the configuration of keepalived-operator's groups passes a real keepalived before it runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip import names
from tests.keepalived_operator.test_acceptance import BAD, external, settled
from tests.reconcile.simulatedcluster import GROUP
from tests.support import build
from tests.vrrp import livedaemons

pytestmark = pytest.mark.netns

SPREAD = {names.SPREAD_ANNOTATION: "true"}
TRACKED = {names.VERBATIM_ANNOTATION: '{"track_src_ip": ""}'}
CASES = {
    "plain": [external("t/svc1", "192.0.2.130")],
    "spread": [external("t/web", "192.0.2.130", "192.0.2.131", annotations=SPREAD)],
    "both families": [external("t/web", "2001:db8:2::130", "192.0.2.130")],
    "called interface": [external("t/interface-api", "192.0.2.130")],
    "local": [external("t/web", "192.0.2.130", external_traffic_policy="Local")],
    "lines of its own": [external("t/web", "192.0.2.130", annotations=TRACKED)],
    "255": [external(f"t/s{at:03}", f"198.18.{at // 200}.{at % 200 + 1}") for at in range(255)],
    "bad neighbours": [
        external("t/good", "192.0.2.130"),
        *(
            external(f"t/bad-{at}", f"192.0.2.{140 + at}", annotations={names.GROUP_ANNOTATION: GROUP, **each})
            for at, each in enumerate(BAD.values())
        ),
    ],
}
MODES = {
    "multicast": {"unicast_enabled": None},
    "unicast": {"unicast_enabled": True},
    "version 3": {"unicast_enabled": True, "vrrp_version": 3, "advert_interval_milliseconds": 200},
}


@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """One node."""
    with runs.in_memory() as state, Segment(state, nodes=1) as started:
        yield started


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_f_every_configuration_passes_keepalived(lan: Segment, mode: dict[str, Any]) -> None:
    """The exit status is 0, and stderr is empty. An override of a wrong line would not pass."""
    (node,), text = lan.nodes, ""
    for name, services in CASES.items():
        text = settled(build.group(**mode), *services, nodes=1).text()
        assert livedaemons.check(node, text, node="n1") == "", name
    assert livedaemons.check(node, text.replace("virtual_router_id 1\n", "virtual_router_id 0\n"), node="n1") != ""
