"""Which VIPs the members of a group may run, and what it costs to know."""

from typing import Any

import pytest

from kavip import names
from kavip.api.meta import LabelSelector
from kavip.reconcile.group.desired import roster_of
from kavip.reconcile.plan import ReconcileOptions
from kavip.snapshot import Snapshot
from kavip.vrrp.sharding import shard_of
from tests.reconcile.group.grouping import serving
from tests.reconcile.scenes import GROUP, cluster
from tests.support import build
from tests.vrrp.samples import shared

VIP = "192.0.2.130"


def running(snapshot: Snapshot) -> list[str]:
    """The members of the group that have the VIP to run."""
    roster = roster_of(snapshot, snapshot.groups[GROUP], reserved={}, running="", options=ReconcileOptions())
    return [member.key for member in roster.members if member.addresses]


def sharers(count: int) -> Snapshot:
    """A group in which *count* Services share one VIP, each with a port of its own."""
    shared = {names.SHARING_KEY_ANNOTATION: "web"}
    found = (build.service(f"shop/s{n}", group=GROUP, holds=[VIP], port=n, annotations=shared) for n in range(count))
    return cluster(build.group(), *found)


def test_a_vip_runs_with_those_that_are_older_than_its_holder_in_another_group() -> None:
    """Nobody may share it with that one: whoever comes after it would run the VIP on two nodes at once."""
    old, young = (serving(f"shop/{n}", VIP, created=f"2026-01-0{n}T00:00:00Z") for n in (1, 3))
    other = serving("shop/2", VIP, group="lb/other", created="2026-01-02T00:00:00Z")
    assert running(cluster(build.group(), old, young)) == ["shop/1", "shop/3"]
    assert running(cluster(build.group(), build.group("lb/other"), old, other, young)) == ["shop/1"]


def test_the_cost_of_a_shared_vip_grows_with_its_sharers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many sharers are looked at twice as often, not four times."""
    looks = 0
    group_of = Snapshot.group_of

    def counted(*each: Any) -> str | None:
        nonlocal looks
        looks += 1
        return group_of(*each)

    monkeypatch.setattr(Snapshot, "group_of", counted)
    spent = []
    for count in (20, 40):
        snapshot, looks = sharers(count), 0
        assert len(running(snapshot)) == count
        spent.append(looks)
    assert spent[1] <= 2 * spent[0]


def test_a_share_in_which_nothing_has_changed_is_the_same_object() -> None:
    """Also where the group allows some namespaces only, and where Services of another share have one VIP together."""
    group = build.group(instances=shared(8), allowed_namespaces=LabelSelector(match_labels={"env": "prod"}))
    sharing = [serving(f"shop/s{n}", VIP) for n in (1, 2)]
    others = [serving(f"{('shop', 'lab')[n % 2]}/t{n}", f"192.0.2.{140 + n}") for n in range(16)]
    snapshot = cluster(group, build.namespace("shop", env="prod"), build.namespace("lab"), *sharing, *others)

    def shares() -> dict[str, object]:
        roster = roster_of(snapshot, group, reserved={}, running="", options=ReconcileOptions())
        assert {each.key.partition("/")[0] for each in roster.members} == {"shop"}
        return dict(roster.members.members)

    before = shares()
    snapshot.put(serving("shop/t0", "192.0.2.160"))
    after = shares()
    changed = {share for share in before if after[share] is not before[share]}
    assert changed <= {shard_of(key, 8) for key in ("shop/s1", "shop/s2", "shop/t0")} < before.keys() == after.keys()
    snapshot.put(build.namespace("lab", env="prod"))
    roster = roster_of(snapshot, group, reserved={}, running="", options=ReconcileOptions())
    assert len(roster.members) == len(snapshot.members(GROUP))
