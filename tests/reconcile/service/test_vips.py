"""Why a configuration of one Service would not contain it: plain Services are recognized without building units."""

from typing import Any

import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.group import Instances
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.service.vips import ServingGroup, problem_of
from kavip.vrrp.members import member_of
from kavip.vrrp.units import UnitBuilder
from tests.reconcile.service.planning import VIP, WEB, web
from tests.reconcile.simulatedcluster import GROUP, cluster
from tests.support import build

SERVICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "spread": {"annotations": {names.SPREAD_ANNOTATION: "true"}},
    "local": {"external_traffic_policy": "Local"},
    "lines": {"annotations": {names.VERBATIM_ANNOTATION: '{"track_interface": "eth0"}'}},
    "refused lines": {"annotations": {names.VERBATIM_ANNOTATION: '{"notify": "/bin/sh"}'}},
}
INSTANCES = {"Shared": Instances(mode="Shared", count=1), "PerService": Instances()}
ROUTER_IDS = {
    "none": {},
    "of Services": {WEB: 1, f"{WEB}/{VIP}": 2},
    "shared": {"group/0": 1},
    "shared, and of an interface": {"group/0": 1, "group/0.vlan100": 2},
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("mode", INSTANCES)
@pytest.mark.parametrize("ids", ROUTER_IDS)
@pytest.mark.parametrize("interface", ["", "vlan100"])
def test_the_problem_is_that_of_the_built_units(service: str, mode: str, ids: str, interface: str) -> None:
    """Whatever its group has VRIDs for; the VIPs are those that the Service gets, not those that it has."""
    group = build.group(router_ids=ROUTER_IDS[ids], allow_verbatim=["track_interface"], instances=INSTANCES[mode])
    subject = web(holds=["192.0.2.129"], **SERVICES[service])
    snapshot = cluster(subject, group, build.pool(interface=interface))
    vips = (parse_address(VIP),)
    member = member_of(subject, group, snapshot.interface_of, vips=vips)
    assert member.addresses == vips
    builder = UnitBuilder(group, (), ROUTER_IDS[ids])
    builder.add_member(member)
    found = problem_of(subject, vips, ServingGroup.of(snapshot, GROUP, Observed()))
    assert found == (member.problem or builder.problems.get(WEB))
    if (service, mode, interface) == ("plain", "Shared", ""):
        assert (found is None) == ids.startswith("shared")
