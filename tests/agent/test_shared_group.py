"""A Shared group with 5,000 Services, from the controller's plan to the addresses on two real nodes."""

import msgspec
import pytest

from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.packed import is_packed, pack, unpacked
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build
from tests.vrrp.samples import NEW, shared

pytestmark = pytest.mark.netns

COUNT, SLOTS = 5_000, 16
VIPS = [f"198.51.{100 + number // 250}.{number % 250 + 1}" for number in range(COUNT)]
FEWEST = 3
"""Instances on either of two nodes: of sixteen."""


def planned() -> SimulatedCluster:
    """The group after its plans were applied."""
    services = (
        build.service(f"shop/service-{number:04}", group=GROUP, type="ClusterIP", external_ips=[vip])
        for number, vip in enumerate(VIPS)
    )
    simulation = SimulatedCluster(cluster(build.group(**NEW, instances=shared(SLOTS)), *services))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return simulation


def test_five_thousand_vips_live_in_sixteen_instances(pod: MakePod) -> None:
    """The stored objects are far below their limits; each VIP is on one node, also after a daemon was killed."""
    simulation = planned()
    status = simulation.snapshot.groups[GROUP].status
    assert len(status.router_ids or {}) == SLOTS
    assert len(msgspec.json.encode(status)) < 1 << 16
    stored = simulation.text()
    assert is_packed(stored)
    assert len(stored) < 1_000_000 / 20
    text = unpacked(stored)
    assert text.count("vrrp_instance ") == SLOTS
    pods = [pod(node) for node in ("n1", "n2")]
    for each in pods:
        each.config.write(text, notation=pack)
        each.start()
        each.runs(mounts.hash_of(text))
    wanted = set(VIPS)
    pods[0].wait_until("both have their share", lambda: min(len(each.masters()) for each in pods) >= FEWEST)
    pods[0].wait_until("each VIP is on one node", lambda: once(pods, wanted))
    for each in pods:
        assert sum(len(one["virtualIPs"]) for one in each.state()["instances"]) == COUNT + SLOTS
    pods[0].kill_keepalived()
    pods[1].wait_until("the other node has them all", lambda: wanted <= pods[1].addresses())
    pods[0].wait_until("the agent has removed the stale ones", lambda: wanted.isdisjoint(pods[0].addresses()))


def once(pods: list[Pod], wanted: set[str]) -> bool:
    """Whether each of *wanted* is on exactly one of two nodes."""
    first, second = (each.addresses() & wanted for each in pods)
    return first.isdisjoint(second) and first | second == wanted
