"""Groups whose pods do not run on every node that their selector matches."""

from typing import Any

import pytest

from kavip import names
from kavip.reconcile import enqueue
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import Key, KeyKind
from kavip.reconcile.service.vips import ServingGroup
from tests.reconcile.group.settledgroup import PROGRAMMED, READY, WEB, condition, serving, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, cluster, pod, running
from tests.support import build

TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
NOT_EXCLUDED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": EXCLUDED, "operator": "DoesNotExist"}]}]
        }
    }
}
WORKERS_ONLY = pytest.mark.parametrize("spec", [{"tolerations": []}, {"affinity": NOT_EXCLUDED}])


def with_control_plane(**spec: Any) -> SimulatedCluster:
    """A group with a Service and pods on n1 and n2, and a control-plane node without a pod."""
    control_plane = build.node("cp", "192.0.2.10", labels={EXCLUDED: ""}, taints=[TAINT])
    simulation = SimulatedCluster(
        cluster(build.group(unicast_enabled=True, **spec), serving(WEB, "192.0.2.200"), control_plane)
    )
    with_pods(simulation, pod("edge-1", "n1"), pod("edge-2", "n2"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    runs = running(config_hash, "192.0.2.200")
    simulation.agents = agent_states(n1=running(config_hash, "192.0.2.200", master=True), n2=runs)
    simulation.settle(Key(KeyKind.GROUP, GROUP), Key(KeyKind.SERVICE, WEB))
    return simulation


@WORKERS_ONLY
def test_a_node_that_gets_no_pod_is_not_waited_for(spec: Any) -> None:
    """Group and Service are programmed when the nodes with a pod run the configuration; only these count."""
    simulation = with_control_plane(**spec)
    assert condition(simulation, READY)[:2] == ("True", "Ready")
    assert condition(simulation, PROGRAMMED)[:2] == ("True", "Programmed")
    assert simulation.condition(WEB, names.ConditionType.SERVICE_PROGRAMMED) == ("True", "Programmed")
    nodes = simulation.snapshot.groups[GROUP].status.nodes
    assert nodes is not None
    assert (nodes.desired, nodes.ready, nodes.current) == (2, 2, 2)


@WORKERS_ONLY
def test_a_node_that_gets_no_pod_is_no_peer(spec: Any) -> None:
    """The text has neither a priority nor a peer for it."""
    simulation = with_control_plane(**spec)
    assert "cp" not in simulation.text()
    assert "192.0.2.10 " not in simulation.text()
    plan = simulation.plan_group()
    assert plan.target is not None
    assert sorted(plan.target.hosts) == ["n1", "n2"]


def test_no_nodes_names_the_fields_that_exclude_them() -> None:
    """The conditions of group and Service name the fields that exclude all nodes."""
    tainted = build.node("n1", "192.0.2.11", taints=[TAINT])
    simulation = SimulatedCluster(cluster(build.group(tolerations=[]), serving(WEB, "192.0.2.200"), tainted, nodes=0))
    simulation.settle(Key(KeyKind.GROUP, GROUP), Key(KeyKind.SERVICE, WEB))
    assert condition(simulation, READY) == (
        "False",
        "NoNodes",
        "no node matches spec.nodeSelector or spec.tolerations: label a node, or change the field",
    )
    assert simulation.condition(WEB, names.ConditionType.SERVICE_PROGRAMMED) == ("False", "NoNodes")


def test_a_node_whose_taint_evicts_no_pod_does_not_stop_others_from_joining() -> None:
    """The pod on a tainted node may stay forever. It stays a peer, and new nodes join."""
    simulation = with_control_plane(tolerations=[])
    simulation.snapshot.put(build.node("n1", "192.0.2.11", taints=["dedicated=db:NoSchedule"]))
    simulation.snapshot.put(build.node("n3", "192.0.2.13"))
    with_pods(simulation, pod("edge-1", "n1"), pod("edge-2", "n2"), pod("edge-3", "n3"))
    for _ in range(3):
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        runs = running(simulation.snapshot.groups[GROUP].status.config_hash, "192.0.2.200")
        simulation.agents = agent_states(n1=runs, n2=runs, n3=runs)
    assert "@n1 unicast_src_ip 192.0.2.11" in simulation.text()
    assert "@n3 unicast_src_ip 192.0.2.13" in simulation.text()
    target = simulation.plan_group().target
    assert target is not None
    assert sorted(target.hosts) == ["n1", "n2", "n3"]


def test_a_node_that_keeps_its_pod_switches_with_the_others() -> None:
    """Its keepalived would be a second master, so it must be prepared; it does not count as a node that has left."""
    simulation = with_control_plane(tolerations=[])
    simulation.snapshot.put(build.node("n1", "192.0.2.11", taints=["dedicated=db:NoSchedule"]))
    simulation.snapshot.put(build.group(unicast_enabled=False, tolerations=[], router_ids={WEB: 1}))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "no longer" not in condition(simulation, PROGRAMMED)[2]
    assert "n1: it has not prepared the change yet" in condition(simulation, PROGRAMMED)[2]


def test_a_taint_enqueues_the_groups() -> None:
    """A taint may change which nodes get a pod."""
    before, after = build.node("n1", "192.0.2.11"), build.node("n1", "192.0.2.11", taints=[TAINT])
    snapshot = cluster(build.group(), after, nodes=0)
    assert list(enqueue.of(snapshot, before, after)) == [Key(KeyKind.GROUP, GROUP)]
    assert list(enqueue.of(snapshot, after, after)) == []


@pytest.mark.parametrize("taints", [[], ["node.kubernetes.io/unreachable:NoSchedule"]])
def test_a_node_that_is_down_is_not_expected_to_answer(taints: list[str]) -> None:
    """Its pod object stays, tainted or not. NoMaster is reported without its answer."""
    simulation = with_control_plane(tolerations=[])
    simulation.snapshot.put(build.not_ready(build.node("n1", "192.0.2.11", taints=taints), "Unknown"))
    observed = Observed(simulation.agents, simulation.objects)
    serving = ServingGroup.of(simulation.snapshot, GROUP, observed)
    assert serving.mastership(observed).expected == ("n2",)
