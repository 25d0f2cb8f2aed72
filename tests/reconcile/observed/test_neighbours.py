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
from tests.reconcile.world import World, cluster, pod
from tests.support import build
from tests.vrrp.samples import shared

ONE, OTHER = "lb/one", "lb/other"
MOVED, KEPT, OWN = "192.0.2.130", "192.0.2.140", "192.0.2.150"
SPEC = {"segment": "default", "vrrp_version": 3, "advert_interval_milliseconds": 200}


def group(key: str, **spec: Any) -> KeepalivedGroup:
    """A new group."""
    return build.group(key, **{**SPEC, **spec})


def give(world: World, key: str, group: str, *vips: str) -> None:
    """Replace the VIPs of a Service."""
    world.snapshot.put(build.service(key, group=group, type="ClusterIP", external_ips=list(vips)))


def settle(world: World, *keys: str) -> None:
    """Plan groups until nothing is left to write."""
    world.settle(*(Key(KeyKind.GROUP, key) for key in keys))


def ids(world: World, key: str) -> Mapping[str, int]:
    """The VRIDs in the status of a group."""
    return world.snapshot.groups[key].status.router_ids or {}


@pytest.fixture
def world() -> World:
    """Two groups with one Service each. A node of the first group does not answer, so the group cannot switch."""
    made = World(cluster(group(ONE), group(OTHER), nodes=2))
    give(made, "shop/web", ONE, MOVED, KEPT)
    give(made, "shop/mail", OTHER, OWN)
    for key in (ONE, OTHER):
        settle(made, key)
        pods = [pod(f"{key.partition('/')[2]}-{node}", node, group=key) for node in ("n1", "n2")]
        made.objects.pods[key] = {each.metadata.key: each for each in pods}
    settle(made, ONE, OTHER)
    return made


def test_an_address_that_this_group_runs_is_not_withheld(world: World) -> None:
    """This holds for any instance, until the group no longer runs the address."""
    text = world.text(ONE)
    run, moved = running_instances(text)["shop/web"], parse_address(MOVED)
    member = Member(key="shop/new", addresses=(moved,))
    shares = shard_members(build.group(instances=shared(2)), [member])
    (share,) = shares.members
    for running, told in (({}, [member.key]), ({share: run}, []), ({}, [member.key]), ({f"{share}/v6": run}, [])):
        kept, waiting = withhold(shares, running, Elsewhere({ONE: text}))
        assert (list(waiting), [each.addresses for each in kept]) == (told, [() if told else (moved,)])


def test_an_address_of_another_group_is_taken_when_that_group_gives_it_up(world: World) -> None:
    """Before that, a node of each group would have it. The new Service names the other group, and is requeued."""
    give(world, "shop/web", ONE, KEPT)
    settle(world, ONE)
    assert f" {MOVED}/" in world.text(ONE)
    give(world, "shop/new", OTHER, MOVED, "192.0.2.151")
    settle(world, OTHER)
    assert f" {MOVED}/" not in world.text(OTHER)
    assert " 192.0.2.151/" in world.text(OTHER)
    assert (world.group(OTHER).requeue_after or 99) <= 1
    world.service("shop/new")
    found = next(
        each
        for each in world.snapshot.services["shop/new"].status.conditions or ()
        if each.type.endswith(ConditionType.PROGRAMMED)
    )
    assert (found.reason, f"KeepalivedGroup {ONE} hold {MOVED} still" in found.message) == ("Pending", True)
    world.snapshot.drop(SERVICE, "shop/web")
    settle(world, ONE, OTHER)
    assert f" {MOVED}/" not in world.text(ONE)
    assert f" {MOVED}/" in world.text(OTHER)


def test_an_address_that_both_groups_run_stays(world: World) -> None:
    """No group removes a running address because another group runs it too."""
    give(world, "shop/new", OTHER, "192.0.2.151")
    settle(world, OTHER)
    found = world.objects.configmaps[ONE]
    assert found.data
    found.data["keepalived.conf"] = world.text(ONE).replace(MOVED, "192.0.2.151")
    settle(world, OTHER)
    assert " 192.0.2.151/" in world.text(OTHER)


def test_a_group_without_pods_holds_nothing(world: World) -> None:
    """Its published text runs on no node."""
    give(world, "shop/web", ONE, KEPT)
    settle(world, ONE)
    del world.objects.pods[ONE]
    give(world, "shop/new", OTHER, MOVED)
    settle(world, OTHER)
    assert f" {MOVED}/" in world.text(OTHER)


def test_a_vrid_that_another_group_runs_is_not_assigned(world: World) -> None:
    """This holds in a new controller too, which knows no reservations."""
    before = ids(world, ONE)["shop/web"]
    edited = group(ONE, blacklist_router_ids=[before])
    world.snapshot.put(msgspec.structs.replace(world.snapshot.groups[ONE], spec=edited.spec))
    settle(world, ONE)
    assert ids(world, ONE)["shop/web"] != before
    assert f"virtual_router_id {before}\n" in world.text(ONE)
    world.records.settle()
    give(world, "shop/new", OTHER, "192.0.2.151")
    settle(world, OTHER)
    assert ids(world, OTHER)["shop/new"] not in {before, *ids(world, ONE).values()}
