"""Which VIPs the members of a group may run, and what it costs to know."""

from typing import Any

import pytest

from kavip import names
from kavip.controller.outcome import Options
from kavip.controller.roster import roster_of
from kavip.snapshot import Snapshot
from tests import build
from tests.controller.grouping import serving
from tests.controller.scenes import GROUP, cluster

VIP = "192.0.2.130"


def running(snapshot: Snapshot) -> list[str]:
    """The members of the group that have the VIP to run."""
    roster = roster_of(snapshot, snapshot.groups[GROUP], reserved={}, running="", options=Options())
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
