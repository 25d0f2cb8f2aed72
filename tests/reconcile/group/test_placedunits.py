"""Which instances of a group keep their place, and when one moves for balance."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api import conditions
from kavip.reconcile.observed.agentstates import AgentStates, Contact, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp import instances
from kavip.vrrp.moves import Placement
from kavip.vrrp.running import first_nodes, running_nodes
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build

NODES = ("n1", "n2", "n3")


def simulated(*numbers: int, **spec: Any) -> SimulatedCluster:
    """A group on three nodes with these Services, each with one VIP."""
    services = [build.service(f"shop/s{n}", holds=[f"192.0.2.{130 + n}"], group=GROUP) for n in numbers]
    simulation = SimulatedCluster(cluster(*services, build.pool(), build.group(**spec), nodes=len(NODES)))
    simulation.objects.pods[GROUP] = {each.metadata.key: each for each in (pod(f"edge-{n}", n) for n in NODES)}
    settle(simulation)
    return simulation


def settle(simulation: SimulatedCluster) -> Mapping[str, str]:
    """Plan until nothing is written; return the first nodes."""
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    return first_nodes(simulation.text())


def report(simulation: SimulatedCluster, masters: Mapping[str, str], *, stale: str = "") -> None:
    """Let all agents answer, with these masters; the one of *stale* runs an older text."""
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    agents = AgentStates()
    for node in NODES:
        roles = tuple(
            InstanceState(name, 1, 4, "MASTER" if master == node else "BACKUP", 1) for name, master in masters.items()
        )
        state = NodeState(config_hash="old" if node == stale else config_hash, instances=roles)
        agents = agents.with_state(GROUP, node, state=state).with_contact(GROUP, node, contact=Contact())
    simulation.agents = agents


def unbalanced(**spec: Any) -> SimulatedCluster:
    """A group that asks for balance after all Services but those of n1 were deleted: four are left."""
    simulation = simulated(*range(12), **spec)
    for name, node in first_nodes(simulation.text()).items():
        if node != "n1":
            simulation.snapshot.drop(names.SERVICE, name)
    assert Counter(settle(simulation).values()) == {"n1": 4}
    found = simulation.snapshot.groups[GROUP]
    metadata = msgspec.structs.replace(found.metadata, annotations={names.REBALANCE_ANNOTATION: "true"})
    simulation.snapshot.put(msgspec.structs.replace(found, metadata=metadata))
    return simulation


def message(simulation: SimulatedCluster) -> str:
    """What Ready says."""
    found = conditions.find(simulation.snapshot.groups[GROUP].status.conditions, "Ready")
    assert found is not None and found.status == "True"
    return found.message.removeprefix("every pod is ready").removeprefix("; ")


def test_services_are_balanced_as_they_come() -> None:
    """A new Service goes to the node with fewest instances, and no other Service moves."""
    simulation = simulated()
    before: Mapping[str, str] = {}
    for number in range(9):
        simulation.snapshot.put(build.service(f"shop/s{number}", holds=[f"192.0.2.{130 + number}"], group=GROUP))
        after = settle(simulation)
        assert before.items() <= after.items()
        before = after
    assert Counter(before.values()) == {"n1": 3, "n2": 3, "n3": 3}
    found = simulated(*range(9))
    assert Counter(first_nodes(found.text()).values()) == {"n1": 3, "n2": 3, "n3": 3}


def test_a_lost_config_map_moves_nothing() -> None:
    """What the agents report stays; without an answer, what the status says."""
    simulation = simulated(*range(9))
    before = settle(simulation)
    elsewhere = {**before, "shop/s0": next(node for node in NODES if node != before["shop/s0"])}
    report(simulation, elsewhere)
    assert settle(simulation) == before
    del simulation.objects.configmaps[GROUP]
    assert settle(simulation) == elsewhere
    simulation.agents = AgentStates()
    del simulation.objects.configmaps[GROUP]
    assert settle(simulation) == elsewhere


def test_a_silent_node_is_no_home_because_of_its_last_answer() -> None:
    """What it held when it died is where it failed over to."""
    simulation = simulated(*range(9))
    before = settle(simulation)
    report(simulation, before)
    was = simulation.agents.states_of(GROUP)["n1"]
    after = first_nodes(simulation.text(), dead=frozenset({"n1"}))
    report(simulation, after)
    simulation.agents = simulation.agents.with_state(GROUP, "n1", state=was)
    simulation.agents = simulation.agents.with_contact(GROUP, "n1", contact=Contact(is_silent=True))
    del simulation.objects.configmaps[GROUP]
    assert settle(simulation) == after


def test_on_request_one_instance_moves_after_the_other() -> None:
    """The next one when every node runs the text, and when the last one has arrived."""
    simulation = unbalanced()
    report(simulation, settle(simulation))
    one = settle(simulation)
    assert Counter(one.values()) == {"n1": 3, "n2": 1}
    wait = "rebalancing: one node ranks first for 3 of 4 instances; moves left: 1, next shop/"
    assert message(simulation).startswith(wait) and message(simulation).endswith(
        " to n3, when every instance is on its first node"
    )
    report(simulation, one, stale="n3")
    assert settle(simulation) == one
    report(simulation, dict.fromkeys(one, "n1"))
    assert settle(simulation) == one
    report(simulation, one)
    two = settle(simulation)
    assert Counter(two.values()) == {"n1": 2, "n2": 1, "n3": 1}
    assert message(simulation) == "balanced: no node ranks first for more than 2 of 4 instances"
    report(simulation, two)
    assert settle(simulation) == two
    assert set(running_nodes(simulation.text()).homes) <= set(two)


def test_nothing_moves_for_balance_without_a_request() -> None:
    """Whatever the agents report, and also if the annotation says something else."""
    simulation = unbalanced()
    found = simulation.snapshot.groups[GROUP]
    for value in ("false", "yes", ""):
        metadata = msgspec.structs.replace(found.metadata, annotations={names.REBALANCE_ANNOTATION: value})
        simulation.snapshot.put(msgspec.structs.replace(simulation.snapshot.groups[GROUP], metadata=metadata))
        report(simulation, settle(simulation))
        assert Counter(settle(simulation).values()) == {"n1": 4}
        assert message(simulation) == ""


def test_with_no_preempt_nothing_moves() -> None:
    """keepalived moves no VIP from a live master then, and Ready says so."""
    simulation = unbalanced(no_preempt=True)
    report(simulation, settle(simulation))
    assert Counter(settle(simulation).values()) == {"n1": 4}
    assert message(simulation) == "with noPreempt kavip.io/rebalance moves nothing"


def test_what_has_nopreempt_does_not_move() -> None:
    """And the others do not wait for it: any node may hold it."""
    simulation = unbalanced(allow_verbatim=["nopreempt"])
    lasting = simulation.snapshot.services[min(simulation.snapshot.services)]
    note = {**(lasting.metadata.annotations or {}), names.VERBATIM_ANNOTATION: '{"nopreempt": ""}'}
    metadata = msgspec.structs.replace(lasting.metadata, annotations=note)
    simulation.snapshot.put(msgspec.structs.replace(lasting, metadata=metadata))
    for _ in range(4):
        report(simulation, {**settle(simulation), lasting.key: "n2"})
    after = settle(simulation)
    assert "\n    nopreempt\n" in simulation.text()
    assert after[lasting.key] == "n1" and Counter(after.values()) == {"n1": 2, "n2": 1, "n3": 1}
    assert message(simulation).startswith("balanced: ")


def test_vips_of_an_older_text_are_spread_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each move waits for the last one, and Ready says how many are left; a change of another Service moves nothing."""
    vips = [f"192.0.2.{130 + number}" for number in range(6)]
    api = build.service("shop/api", holds=vips, group=GROUP, annotations={names.SPREAD_ANNOTATION: "true"})
    simulation = simulated(9)
    simulation.snapshot.put(api)
    with monkeypatch.context() as old:
        old.setattr(instances, "place", lambda *_: Placement({}, {}, ()))
        before = settle(simulation)
    assert max(Counter(before.values()).values()) > 2 and not running_nodes(simulation.text()).spread
    assert settle(simulation) == before
    shares = Counter(node for name, node in before.items() if name.startswith("shop/api/"))
    left = sum(max(0, share - 2) for share in shares.values())
    assert left > 1
    for number in range(left, 0, -1):
        assert message(simulation).startswith(f"spreading the VIPs of Services with spreadvips: moves left: {number},")
        report(simulation, before, stale="n2")
        assert settle(simulation) == before
        report(simulation, before)
        after = settle(simulation)
        assert len(before.items() - after.items()) == 1
        before = after
    report(simulation, before)
    assert settle(simulation) == before and message(simulation) == ""
    assert Counter(node for name, node in before.items() if name.startswith("shop/api/")) == dict.fromkeys(NODES, 2)


@pytest.mark.parametrize("preferred", [["n1"], ["n1", "n2"]])
def test_preferences_win(preferred: list[str]) -> None:
    """Instances move only among preferred nodes; Ready says where that leaves the group."""
    simulation = unbalanced()
    group = simulation.snapshot.groups[GROUP]
    placement = msgspec.convert(
        {"preferred": [{"weight": 1, "nodeSelector": {"tier": "lb"}}]}, type(group.spec.placement)
    )
    simulation.snapshot.put(
        msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, placement=placement))
    )
    for name in preferred:
        simulation.snapshot.put(build.node(name, f"192.0.2.1{name[1:]}", labels={"tier": "lb"}))
    for _ in range(4):
        report(simulation, settle(simulation))
    assert Counter(settle(simulation).values()) == ({"n1": 4} if preferred == ["n1"] else {"n1": 2, "n2": 2})
    highest = "as balanced as preferences and spread allow: one node ranks first for 4 of 4 instances"
    balanced = "balanced: no node ranks first for more than 2 of 4 instances"
    assert message(simulation) == (highest if preferred == ["n1"] else balanced)
