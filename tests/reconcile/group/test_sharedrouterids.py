"""VRIDs of a Shared group: the status names instances, and a Service stays in the instance of its name."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.group import Instances
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.vrrp.running import running_instances
from kavip.vrrp.sharding import shard_of
from tests.reconcile.group.settledgroup import WEB, serving, settled
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build
from tests.support.examples import examples

COUNT = 4
SHARED: dict[str, Any] = {"unicast_enabled": True, "instances": Instances(mode="Shared", count=COUNT)}
LOCAL = "shop/local"


def many(number: int) -> Any:
    """One of many Services."""
    return serving(f"shop/s{number}", f"198.18.{number // 250}.{number % 250 + 1}")


def router_ids(simulation: SimulatedCluster) -> dict[str, int]:
    """The VRIDs of the status."""
    return simulation.snapshot.groups[GROUP].status.router_ids or {}


def homes(simulation: SimulatedCluster) -> Mapping[str, tuple[str, int]]:
    """The instance of each VIP and its VRID, by the published text."""
    runs = running_instances(simulation.text()).values()
    return {str(vip.address): (run.name, run.identity.router_id) for run in runs for vip in run.virtual_ips}


def restarted(simulation: SimulatedCluster) -> SimulatedCluster:
    """A controller that knows only what the API server has."""
    group = simulation.snapshot.groups[GROUP]
    fresh = SimulatedCluster(cluster(*simulation.snapshot.services.values(), group))
    fresh.objects = simulation.objects
    return fresh


def with_ids(simulation: SimulatedCluster, ids: dict[str, int], **spec: Any) -> None:
    """Let the status of the group have *ids*, and its spec these fields."""
    group = simulation.snapshot.groups[GROUP]
    status = msgspec.structs.replace(group.status, router_ids=ids)
    simulation.snapshot.put(
        msgspec.structs.replace(group, status=status, spec=msgspec.structs.replace(group.spec, **spec))
    )


def as_before(simulation: SimulatedCluster) -> dict[str, int]:
    """The VRIDs of *simulation* as kavip 0.1 writes them: with each Service of a Shared instance."""
    ids = router_ids(simulation)
    keys = (key for key in simulation.snapshot.services if key not in ids)
    return {**ids, **{key: ids[shard_of(key, COUNT)] for key in keys}}


def upgraded() -> SimulatedCluster:
    """A group with a Service of its own instance and some others, whose status kavip 0.1 wrote."""
    held = {"group/0": 7, "group/1": 90, "group/2": 3, "group/3": 200, LOCAL: 55}
    local = serving(LOCAL, "192.0.2.140", external_traffic_policy="Local")
    simulation = settled(build.group(router_ids=held, **SHARED), local, *map(many, range(20)))
    assert router_ids(simulation) == held
    with_ids(simulation, as_before(simulation))
    return simulation


def test_the_status_of_an_earlier_version_is_rewritten_once() -> None:
    """The Services leave it in one write, with which nothing else changes; a new leader may be the one to write it."""
    simulation = upgraded()
    text, before = simulation.text(), router_ids(simulation)
    assert len(before) == COUNT + 21
    assert simulation.plan_group().writes  # this leader dies before it writes
    simulation = restarted(simulation)
    (write,) = [each for each in simulation.group().writes if isinstance(each, StatusPatch)]
    assert set(write.body["status"]["routerIDs"]) == {many(number).key for number in range(20)}
    assert router_ids(simulation) == {"group/0": 7, "group/1": 90, "group/2": 3, "group/3": 200, LOCAL: 55}
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert simulation.text() == text
    assert not simulation.plan_group().writes


def test_what_an_earlier_version_writes_after_a_rollback_changes_no_vrid() -> None:
    """It adds the Services again, and a later upgrade removes them again."""
    simulation = upgraded()
    for _ in range(2):
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        text, ids = simulation.text(), router_ids(simulation)
        with_ids(simulation, as_before(simulation))
        simulation = restarted(simulation)
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        assert (simulation.text(), router_ids(simulation)) == (text, ids)


def test_a_service_never_gets_the_vrid_of_its_shared_instance() -> None:
    """In mode PerService the number that kavip 0.1 wrote beside its name is not its own."""
    simulation = upgraded()
    shared = {number for key, number in router_ids(simulation).items() if key.startswith("group/")}
    with_ids(simulation, router_ids(simulation), instances=Instances())
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    ids = router_ids(simulation)
    assert len(ids) == len(set(ids.values())) == 21
    assert (ids[LOCAL], shared & set(ids.values())) == (55, set())


def test_names_of_a_per_service_group_stay_as_they_are() -> None:
    """Those of keepalived-operator, too."""
    held = {WEB: 77, "shop/spread/192.0.2.150": 3}
    spread = serving("shop/spread", "192.0.2.150", annotations={names.SPREAD_ANNOTATION: "true"})
    simulation = settled(build.group(router_ids=dict(held)), serving(WEB, "192.0.2.130"), spread)
    assert router_ids(simulation) == held


@examples(30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("toggle", "restart", "lose the text")), st.integers(0, 9)), max_size=12))
def test_a_service_stays_in_its_instance(history: list[tuple[str, int]]) -> None:
    """Whatever comes and goes, the controller and the ConfigMap included: names and VRIDs stay."""
    simulation = settled(build.group(**SHARED), *map(many, range(0, 10, 2)))
    ids, seen = router_ids(simulation), dict(homes(simulation))
    for event, number in history:
        service = many(number)
        match event:
            case "restart":
                simulation = restarted(simulation)
            case "lose the text":
                del simulation.objects.configmaps[GROUP]
            case _ if service.key in simulation.snapshot.services:
                simulation.snapshot.drop(names.SERVICE, service.key)
            case _:
                simulation.snapshot.put(service)
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        assert router_ids(simulation) == ids
        found = homes(simulation)
        assert all(seen.setdefault(vip, home) == home for vip, home in found.items())
        assert len(found) == len(simulation.snapshot.services)


@pytest.mark.slow
def test_a_group_with_20_000_services_is_under_64_kib() -> None:
    """With long names too; Services with instances of their own have the rest of the VRIDs."""
    own = [f"{'n' * 63}/{'l' * 60}{number}" for number in range(100)]
    services = [
        *(serving(key, f"198.19.0.{at + 1}", external_traffic_policy="Local") for at, key in enumerate(own)),
        *(
            serving(f"{'n' * 63}/s{number:062}", f"198.18.{number // 250}.{number % 250 + 1}")
            for number in range(20_000)
        ),
    ]
    simulation = settled(build.group(unicast_enabled=True, instances=Instances(mode="Shared")), *services)
    group = simulation.snapshot.groups[GROUP]
    assert len(group.status.router_ids or {}) == 16 + len(own)
    assert sum(each.virtual_ips for each in group.status.instances or ()) == len(services)
    assert len(msgspec.json.encode(group)) < 1 << 16
