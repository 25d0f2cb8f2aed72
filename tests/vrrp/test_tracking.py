"""Track files in the model, and the resulting priorities."""

from itertools import pairwise

import pytest

from kavip.api.group import Check, Instances
from kavip.vrrp import tracking
from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, UNLISTED
from kavip.vrrp.tracking import FAULT, Track, effective, local_track
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

EVERY = range(BOTTOM, TOP + 1)
SUMS = range(3 * 253 + 1)
PROBE = Check(name="router", url="kubelet")
LOWER = Check(name="api", url="kube-apiserver", on_failure="LowerPriority")


def test_no_check_no_track() -> None:
    """A group without checks and a Service with the policy Cluster have no track file in their text."""
    assert model(build.group(**NEW), [annotated("a/web", "192.0.2.130")], nodes(2)).tracks == ()


def test_every_instance_tracks_every_check() -> None:
    """Also Shared ones and those of a group; Fault is weight 0, LowerPriority minus the weight or the default."""
    light = Check(name="light", url="kubelet", on_failure="LowerPriority", weight=7)
    for instances in (Instances(), shared(2)):
        group = build.group(**NEW, checks=[PROBE, LOWER, light], instances=instances)
        found = model(group, [annotated("a/web", "192.0.2.130", "2001:db8:2::130")], nodes(2))
        wanted = (Track("check-api", -STEP_DOWN), Track("check-light", -7), Track("check-router", FAULT))
        assert [each.tracks for each in found.instances] == [wanted] * len(found.instances)
        assert found.tracks == ("check-api", "check-light", "check-router")


@pytest.mark.parametrize("name", ["", "../web", "a/b", "Web", "web\n", "a.b", "w" * 64])
def test_a_check_with_an_invalid_name_is_skipped(name: str) -> None:
    """The CRD refuses such a name; one that exists all the same takes no VIP from its group."""
    group = build.group(**NEW, checks=[PROBE, Check(name=name, url="kubelet")])
    assert model(group, [annotated("a/web", "192.0.2.130")], nodes(2)).tracks == ("check-router",)


def test_local_has_one_track_file_for_all_reductions() -> None:
    """Both families track the same file, beside those of weight 0; each VIP of a spread Service has its own."""
    group = build.group(**NEW, checks=[PROBE, LOWER])
    one = annotated("a/one", "192.0.2.130", "2001:db8:2::130", external_traffic_policy="Local")
    two = annotated("a/two", "192.0.2.131", "192.0.2.132", spread=True, external_traffic_policy="Local")
    found = {each.name: each.tracks for each in model(group, [one, two], nodes(2)).instances}
    follows = {name: (Track("check-router", FAULT), Track(local_track(name), -1)) for name in found}
    follows["a/one/v6"] = follows["a/one"]
    assert found == follows
    assert len(set(found.values())) == 3


def test_track_file_names_never_collide() -> None:
    """Services with different names have different track files, and no check has the track file of a Service."""
    for name in ("a/web", "x" * 63 + "/" + "y" * 63, "a/../../etc/passwd"):
        assert tracking.TRACK_NAME.fullmatch(local_track(name))
    assert tracking.TRACK_NAME.fullmatch(tracking.check_track("c" * 63))
    assert not tracking.is_local(tracking.check_track("local-1"))


@pytest.mark.parametrize("lowered", [0, 1, 7, STEP_DOWN, 253, 759])
def test_nodes_with_endpoints_rank_first(lowered: int) -> None:
    """Every node with a ready endpoint, however many checks fail there, ranks above every node without one."""
    worst = min(effective(each, lowered=sum_, ready=True) for each in EVERY for sum_ in SUMS)
    best = max(effective(each, lowered=lowered, ready=False) for each in EVERY)
    assert best < worst


def test_a_healthy_node_keeps_its_priority() -> None:
    """A node with a ready endpoint and without a failed check has the priority of the text, and 0 in its file."""
    assert [effective(each, lowered=0, ready=True) for each in EVERY] == list(EVERY)


@pytest.mark.parametrize("ready", [True, False])
def test_checks_rank_within_both_sets(ready: bool) -> None:
    """A healthy node ranks above all whose default check fails, with and without endpoints; all stay above 0."""
    well, failing = ([effective(each, lowered=sum_, ready=ready) for each in EVERY] for sum_ in (0, STEP_DOWN))
    assert min(well) > max(failing)
    assert min(failing) >= 1


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("lowered", [0, 40, STEP_DOWN])
def test_equal_nodes_keep_their_order(lowered: int, ready: bool) -> None:
    """Nodes in the same state keep their order; only a few neighbours share a number."""
    found = [effective(each, lowered=lowered, ready=ready) for each in EVERY]
    assert all(below <= above for below, above in pairwise(found))
    assert max(found.count(number) for number in found) <= 5 if not ready else len(set(found)) == len(found)


def test_an_unlisted_node_stays_last() -> None:
    """It has the lowest possible priority, and no number in a file changes that."""
    assert {effective(UNLISTED, lowered=sum_, ready=ready) for sum_ in SUMS for ready in (True, False)} == {UNLISTED}
