"""Addresses and VRIDs that nodes of another group still run: this group does not take them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kavip.api.address import parse_address
from kavip.api.group import KeepalivedGroup
from kavip.names import SERVICE, ConditionType
from kavip.reconcile.observed.neighbours import Elsewhere, withhold
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.members import Member
from kavip.vrrp.running import running_instances
from kavip.vrrp.sharding import shard_members
from tests.reconcile.simulatedcluster import SimulatedCluster, cluster, pod
from tests.support import build
from tests.vrrp.samples import shared

ONE, OTHER = "lb/one", "lb/other"
MOVED, KEPT, OWN = "192.0.2.130", "192.0.2.140", "192.0.2.150"
SPEC = {"segment": "default", "vrrp_version": 3, "advert_interval_milliseconds": 200}


def group(key: str, **spec: Any) -> KeepalivedGroup:
    """A new group."""
    return build.group(key, **{**SPEC, **spec})


def give(simulation: SimulatedCluster, key: str, group: str, *vips: str) -> None:
    """Replace the VIPs of a Service."""
    simulation.snapshot.put(build.service(key, group=group, type="ClusterIP", external_ips=list(vips)))


def settle(simulation: SimulatedCluster, *keys: str) -> None:
    """Plan groups until nothing is left to write."""
    simulation.settle(*(Key(KeyKind.GROUP, key) for key in keys))


def ids(simulation: SimulatedCluster, key: str) -> Mapping[str, int]:
    """The VRIDs in the status of a group."""
    return simulation.snapshot.groups[key].status.router_ids or {}


@pytest.fixture
def simulation() -> SimulatedCluster:
    """Two groups with one Service each. A node of the first group does not answer, so the group cannot switch."""
    made = SimulatedCluster(cluster(group(ONE), group(OTHER), nodes=2))
    give(made, "shop/web", ONE, MOVED, KEPT)
    give(made, "shop/mail", OTHER, OWN)
    for key in (ONE, OTHER):
        settle(made, key)
        pods = [pod(f"{key.partition('/')[2]}-{node}", node, group=key) for node in ("n1", "n2")]
        made.objects.pods[key] = {each.metadata.key: each for each in pods}
    settle(made, ONE, OTHER)
    return made


def test_an_address_that_this_group_runs_is_not_withheld(simulation: SimulatedCluster) -> None:
    """This holds for any instance, until the group no longer runs the address."""
    text = simulation.text(ONE)
    run, moved = running_instances(text)["shop/web"], parse_address(MOVED)
    member = Member(key="shop/new", addresses=(moved,))
    shares = shard_members(build.group(instances=shared(2)), [member])
    (share,) = shares.members
    for running, reported in (({}, [member.key]), ({share: run}, []), ({}, [member.key]), ({f"{share}/v6": run}, [])):
        kept, waiting = withhold(shares, running, Elsewhere({ONE: text}))
        assert (list(waiting), [each.addresses for each in kept]) == (reported, [() if reported else (moved,)])


def test_an_address_of_another_group_is_taken_when_that_group_gives_it_up(simulation: SimulatedCluster) -> None:
    """Before that, a node of each group would have it. The new Service names the other group, and is requeued."""
    give(simulation, "shop/web", ONE, KEPT)
    settle(simulation, ONE)
    assert f" {MOVED}/" in simulation.text(ONE)
    give(simulation, "shop/new", OTHER, MOVED, "192.0.2.151")
    settle(simulation, OTHER)
    assert f" {MOVED}/" not in simulation.text(OTHER)
    assert " 192.0.2.151/" in simulation.text(OTHER)
    assert (simulation.group(OTHER).requeue_after or 99) <= 1
    simulation.service("shop/new")
    found = next(
        each
        for each in simulation.snapshot.services["shop/new"].status.conditions or ()
        if each.type.endswith(ConditionType.PROGRAMMED)
    )
    assert (found.reason, f"KeepalivedGroup {ONE} hold {MOVED} still" in found.message) == ("Pending", True)
    simulation.snapshot.drop(SERVICE, "shop/web")
    settle(simulation, ONE, OTHER)
    assert f" {MOVED}/" not in simulation.text(ONE)
    assert f" {MOVED}/" in simulation.text(OTHER)


def test_an_address_that_both_groups_run_stays(simulation: SimulatedCluster) -> None:
    """No group removes a running address because another group runs it too."""
    give(simulation, "shop/new", OTHER, "192.0.2.151")
    settle(simulation, OTHER)
    found = simulation.objects.configmaps[ONE]
    assert found.data
    found.data["keepalived.conf"] = simulation.text(ONE).replace(MOVED, "192.0.2.151")
    settle(simulation, OTHER)
    assert " 192.0.2.151/" in simulation.text(OTHER)


def test_a_group_without_pods_holds_nothing(simulation: SimulatedCluster) -> None:
    """Its published text runs on no node."""
    give(simulation, "shop/web", ONE, KEPT)
    settle(simulation, ONE)
    del simulation.objects.pods[ONE]
    give(simulation, "shop/new", OTHER, MOVED)
    settle(simulation, OTHER)
    assert f" {MOVED}/" in simulation.text(OTHER)


def test_a_vrid_that_another_group_runs_is_not_assigned(simulation: SimulatedCluster) -> None:
    """This holds in a new controller too, which has no reservations."""
    before = ids(simulation, ONE)["shop/web"]
    edited = group(ONE, blacklist_router_ids=[before])
    simulation.snapshot.put(msgspec.structs.replace(simulation.snapshot.groups[ONE], spec=edited.spec))
    settle(simulation, ONE)
    assert ids(simulation, ONE)["shop/web"] != before
    assert f"virtual_router_id {before}\n" in simulation.text(ONE)
    simulation.records.settle()
    give(simulation, "shop/new", OTHER, "192.0.2.151")
    settle(simulation, OTHER)
    assert ids(simulation, OTHER)["shop/new"] not in {before, *ids(simulation, ONE).values()}
