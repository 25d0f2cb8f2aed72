"""Which VIPs the members of a group may run, and what it costs to find out."""

from typing import Any

import pytest

from kavip import names
from kavip.api.meta import LabelSelector
from kavip.reconcile.group.members import members_of
from kavip.snapshot import Snapshot
from kavip.vrrp.sharding import shard_of
from tests.reconcile.group.settledgroup import serving
from tests.reconcile.simulatedcluster import GROUP, cluster
from tests.support import build
from tests.vrrp.samples import shared

VIP = "192.0.2.130"


def members_with_vip(snapshot: Snapshot) -> list[str]:
    """The members of the group that may run their VIP."""
    return [member.key for member in members_of(snapshot, snapshot.groups[GROUP]) if member.addresses]


def sharers(count: int) -> Snapshot:
    """A group in which *count* Services share one VIP, each with a port of its own."""
    shared = {names.SHARING_KEY_ANNOTATION: "web"}
    found = (build.service(f"shop/s{n}", group=GROUP, holds=[VIP], port=n, annotations=shared) for n in range(count))
    return cluster(build.group(), *found)


def test_a_vip_runs_with_services_older_than_its_holder_in_another_group() -> None:
    """A younger Service would run the VIP on two nodes at once."""
    old, young = (serving(f"shop/{n}", VIP, created=f"2026-01-0{n}T00:00:00Z") for n in (1, 3))
    other = serving("shop/2", VIP, group="lb/other", created="2026-01-02T00:00:00Z")
    assert members_with_vip(cluster(build.group(), old, young)) == ["shop/1", "shop/3"]
    assert members_with_vip(cluster(build.group(), build.group("lb/other"), old, other, young)) == ["shop/1"]


def test_the_cost_of_a_shared_vip_grows_with_its_sharers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many sharers cost twice as many lookups, not four times."""
    lookups = 0
    group_of = Snapshot.group_of

    def counted(*each: Any) -> str | None:
        nonlocal lookups
        lookups += 1
        return group_of(*each)

    monkeypatch.setattr(Snapshot, "group_of", counted)
    spent = []
    for count in (20, 40):
        snapshot, lookups = sharers(count), 0
        assert len(members_with_vip(snapshot)) == count
        spent.append(lookups)
    assert spent[1] <= 2 * spent[0]


def test_a_share_without_a_change_is_the_same_object() -> None:
    """This holds where the group allows some namespaces only, and where Services of another share have one VIP."""
    group = build.group(instances=shared(8), allowed_namespaces=LabelSelector(match_labels={"env": "prod"}))
    sharing = [serving(f"shop/s{n}", VIP) for n in (1, 2)]
    others = [serving(f"{('shop', 'lab')[n % 2]}/t{n}", f"192.0.2.{140 + n}") for n in range(16)]
    snapshot = cluster(group, build.namespace("shop", env="prod"), build.namespace("lab"), *sharing, *others)

    def shares() -> dict[str, object]:
        members = members_of(snapshot, group)
        assert {each.key.partition("/")[0] for each in members} == {"shop"}
        return dict(members.members)

    before = shares()
    snapshot.put(serving("shop/t0", "192.0.2.160"))
    after = shares()
    changed = {share for share in before if after[share] is not before[share]}
    assert changed <= {shard_of(key, 8) for key in ("shop/s1", "shop/s2", "shop/t0")} < before.keys() == after.keys()
    snapshot.put(build.namespace("lab", env="prod"))
    assert len(members_of(snapshot, group)) == len(snapshot.members(GROUP))
