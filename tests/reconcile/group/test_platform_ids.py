"""The VRIDs of OpenShift's own keepalived: no new instance gets one, and a running instance keeps its own."""

from kavip import names
from kavip.api.cluster import Infrastructure
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.openshift import router_ids
from tests.reconcile.group.settledgroup import API, READY, WEB, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, pod
from tests.support import build

PROD = build.infrastructure("prod")
IDS = router_ids("prod")  # 2, 33, 13
API_ID = IDS.api
MESSAGE = (
    f"VRID {API_ID} is used by OpenShift's own keepalived: add it to spec.blacklistRouterIDs, so that its VIPs move to "
    "another VRID, or choose another spec.segment if the group is on another network"
)


def router_ids_of(simulation: SimulatedCluster) -> dict[str, int]:
    """The VRIDs of the group."""
    return simulation.snapshot.groups[GROUP].status.router_ids or {}


def found(simulation: SimulatedCluster, infrastructure: Infrastructure) -> SimulatedCluster:
    """*simulation* after the watch has shown *infrastructure*."""
    simulation.snapshot.put(infrastructure)
    assert list(enqueue.of(simulation.snapshot, None, infrastructure)) == [Key(KeyKind.GROUP, GROUP)]
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def test_new_instances_get_other_vrids() -> None:
    """The VRIDs of the cluster's own VIPs are left out."""
    services = [serving(f"shop/s{number:02}", f"192.0.2.{number}") for number in range(1, 36)]
    ids = set(router_ids_of(settled(build.group(), *services, PROD)).values())
    assert ids == set(range(1, 39)) - set(IDS)


def test_an_instance_that_has_one_keeps_it_and_the_condition_says_so() -> None:
    """kavip that learns the name later moves no VIP; with the number on the blacklist the VIP moves."""
    pods = pod("p1", "n1"), pod("p2", "n2")
    before = settled(build.group(), serving(WEB, "192.0.2.130"), serving(API, "192.0.2.131"))
    had = router_ids_of(before)
    assert API_ID in had.values()
    after = found(with_pods(before, *pods), PROD)
    assert router_ids_of(after) == had
    assert condition(after, READY) == ("True", names.Reason.VRID_COLLISION, MESSAGE)
    barred = build.group(blacklist_router_ids=[API_ID], router_ids=had)
    moved = with_pods(settled(barred, serving(WEB, "192.0.2.130"), serving(API, "192.0.2.131"), PROD), *pods)
    assert API_ID not in router_ids_of(moved).values()


def test_a_group_on_another_segment_may_use_them() -> None:
    """A segment with a name of the user's own is another network."""
    group = build.group(segment="dmz")
    simulation = settled(group, serving(WEB, "192.0.2.130"), serving(API, "192.0.2.131"), PROD)
    after = with_pods(simulation, pod("p1", "n1"), pod("p2", "n2"))
    after.settle(Key(KeyKind.GROUP, GROUP))
    assert sorted(router_ids_of(after).values()) == [1, 2]
    assert condition(after, READY)[1] == "Ready"
