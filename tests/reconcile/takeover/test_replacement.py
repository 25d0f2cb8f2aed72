"""The order in which old pods are deleted, what the deletion waits for, and the last pods."""

from unittest.mock import AsyncMock

import pytest

from kavip import names
from kavip.api.group import Check
from kavip.controller.writer import Writer
from kavip.errors import NotFound, Unavailable
from kavip.reconcile.observed import exporter
from kavip.reconcile.observed.agentstates import InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind, PodRemoval
from kavip.reconcile.predicate import PendingWrites
from tests.keepalived_operator.oldobjects import conf, instance, new_pod, old_pod
from tests.reconcile.group.settledgroup import PROGRAMMED, WEB, condition, serving
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster
from tests.reconcile.takeover.oldinstallation import (
    NODES,
    VIP,
    catch_up,
    make_not_ready,
    old_installation,
    replaced_nodes,
    report_state,
    start_new_pod,
    take_over,
    with_taint,
)


def overdue() -> tuple[SimulatedCluster, str]:
    """A cluster in which the pod of n1 is deleted while the watch still shows it, and the key of that pod."""
    found = old_installation("n3")
    found.group()
    found.group()
    (key,) = found.removed
    found.objects.pods[GROUP][key] = old_pod("n1")
    return found, key


def test_the_same_pod_is_not_deleted_twice() -> None:
    """Nothing is deleted until the watch shows the end of that pod."""
    found, _ = overdue()
    plan = found.group()
    assert not [write for write in plan.writes if isinstance(write, PodRemoval)]


def test_no_other_pod_is_deleted_before_the_watch_shows_the_end_of_the_last() -> None:
    """Its exporter is silent before the watch shows its end: it looks like a master, and another pod comes next."""
    found, key = overdue()
    report_state(found, "n1", exporter.SILENT)
    found.group()
    assert replaced_nodes(found) == ["n1"]
    del found.objects.pods[GROUP][key]
    found.group()
    start_new_pod(found, "n1")
    assert replaced_nodes(found) == ["n1", "n2"]


async def test_a_deletion_without_an_answer_is_sent_again() -> None:
    """The deletion may have been done or not: the same pod is deleted again, and no other one."""
    found, key = overdue()
    found.records.replaced.clear()
    client = AsyncMock()
    client.delete.side_effect = [Unavailable(0, "Unreachable", "connection lost"), NotFound(404, "NotFound", "gone")]
    writer = Writer(client, found.records, PendingWrites(), now=lambda: NOW)
    with pytest.raises(Unavailable):
        await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    report_state(found, "n1", exporter.SILENT)
    await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    assert [call.args[1] for call in client.delete.await_args_list] == [key, key]


def test_two_masters_pause_the_replacement() -> None:
    """A new pod that is master beside an old one cannot hear it, so no further pod is deleted."""
    found = old_installation("n3")
    found.group()
    found.group()
    start_new_pod(found, "n1", state="MASTER")
    found.group()
    assert replaced_nodes(found) == ["n1"]
    assert (
        "n1 and n3 are both master of shop/web, because they do not hear each other" in condition(found, PROGRAMMED)[2]
    )


def test_a_master_of_a_family_that_old_pods_do_not_serve_is_no_second_one() -> None:
    """Old pods do not serve the second family of a Service, so a new master of it is not a second one."""
    found = old_installation("n3")
    found.group()
    found.group()
    found.objects.pods[GROUP]["lb/edge-new-n1"] = new_pod("n1")
    found.group()
    wanted = found.snapshot.groups[GROUP].status.config_hash
    both = (InstanceState(WEB, 7, 4, "BACKUP", 2), InstanceState(f"{WEB}/v6", 7, 6, "MASTER", 1))
    report_state(found, "n1", NodeState(config_hash=wanted, instances=both))
    found.group()
    assert replaced_nodes(found) == ["n1", "n2"], condition(found, PROGRAMMED)[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "leader", "order"),
    [("n1 n2", "", 3), ("n1", "n2", 3), ("n2", "n1", 3), ("n1", "", 2), ("n2", "", 2), ("", "", 2)],
)
def test_with_policy_local_a_node_with_an_endpoint_takes_over_before_the_master_goes(
    without: str, leader: str, order: int
) -> None:
    """A leader with an endpoint is waited for; without any, no node is."""
    found = old_installation("n3")
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", external_traffic_policy="Local"))
    assert take_over(found, leader, without=without) == ["n1", "n2", "n3"][:order]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_failure", "state", "lowered", "order"),
    [
        ("Fault", "BACKUP", "", 2),
        ("Fault", "FAULT", "", 3),
        ("LowerPriority", "BACKUP", "", 2),
        ("LowerPriority", "BACKUP", "n1", 2),
        ("LowerPriority", "BACKUP", "n1 n2", 3),
    ],
)
def test_a_failing_health_check_does_not_block_the_replacement(
    on_failure: str, state: str, lowered: str, order: int
) -> None:
    """A node in FAULT, or with a priority not above the old pods, cannot become master; one that can is waited for."""
    found = old_installation(
        "n3", checks=[Check(name="api", url="https://localhost:6443/readyz", on_failure=on_failure)]
    )
    assert take_over(found, lagging=state, without=lowered) == ["n1", "n2", "n3"][:order]


def test_a_node_that_joined_later_does_not_lead() -> None:
    """In unicast the old pods do not send to it, so it would take nothing over."""
    peers = ["192.0.2.12", "192.0.2.13"]
    text = conf(instance(WEB, 7, VIP, "192.0.2.141", peers=peers))
    found = old_installation("n3", text=text, unicast_enabled=True)
    assert take_over(found, "n2") == ["n1", "n2", "n3"]
    assert '"leads":["n2"]' in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["n1", "n2", "n3"])
def test_an_old_pod_outside_the_group_goes_last(holder: str) -> None:
    """All others are replaced first, a new pod takes its VIPs, and no new pod follows on its node."""
    found = with_taint(old_installation(holder, tolerations=[]), "n1")
    assert take_over(found, "n2", "n3")[-1] == "n1"
    assert sorted(replaced_nodes(found)) == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "reported"), [("", "to hold shop/web"), ("n2 n3", "n1, which is outside the group")]
)
def test_an_old_pod_outside_the_group_stays_while_no_new_pod_can_take_over(without: str, reported: str) -> None:
    """Programmed names the pod, why it stays, and the command that deletes it."""
    found = with_taint(old_installation("n1", tolerations=[]), "n1")
    assert take_over(found, without=without) == ["n2", "n3"]
    assert reported in condition(found, PROGRAMMED)[2]
    assert ("spec.tolerations" in condition(found, PROGRAMMED)[2]) is bool(without)
    assert ("kubectl delete pod edge-old-n1 -n lb" in condition(found, PROGRAMMED)[2]) is bool(without)


@pytest.mark.parametrize("silent", [True, False])
def test_a_group_without_nodes_keeps_its_old_pods(silent: bool) -> None:
    """No new pod could follow."""
    found = with_taint(old_installation("n3", tolerations=[]), *NODES)
    for node in NODES if silent else ():
        report_state(found, node, exporter.SILENT)
    assert not take_over(found)
    assert "and no new pod can take that over" in condition(found, PROGRAMMED)[2]


def test_a_silent_old_pod_outside_the_group_goes_when_every_vip_has_a_new_master() -> None:
    """The pod may hold any VIP, so each VIP must have a new master first."""
    found = with_taint(old_installation("n3", tolerations=[]), "n1")
    report_state(found, "n1", exporter.SILENT)
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", external_traffic_policy="Local"))
    assert take_over(found, without="n2 n3") == ["n2", "n3"]
    catch_up(found, "n2", "n3", state="MASTER")
    assert replaced_nodes(found) == ["n2", "n3", "n1"]


def test_an_old_pod_outside_the_group_on_a_node_that_is_down_is_waited_for() -> None:
    """The pod cannot end before its node is back, and may send adverts until then."""
    found = with_taint(old_installation("n3", tolerations=[]), "n1")
    make_not_ready(found, "n1")
    assert take_over(found, "n2", "n3") == ["n2", "n3"]
    assert "waiting for n1, which is not ready" in condition(found, PROGRAMMED)[2]
