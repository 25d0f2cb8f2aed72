"""The order in which old pods are replaced: what is waited for, who takes VIPs, and what becomes of the last ones."""

from unittest.mock import AsyncMock

import pytest

from kavip import names
from kavip.api.group import Check
from kavip.controller.writer import Writer
from kavip.errors import NotFound, Unavailable
from kavip.reconcile.migration import exporter
from kavip.reconcile.observed.nodes import InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind, PodRemoval
from kavip.reconcile.predicate import PendingWrites
from tests.predecessor.live import conf, instance, new_pod, old_pod
from tests.reconcile.group.grouping import PROGRAMMED, WEB, condition, serving
from tests.reconcile.migration.migrating import (
    NODES,
    VIP,
    catch_up,
    done,
    down,
    roll,
    see,
    start,
    tainted,
    world,
)
from tests.reconcile.scenes import GROUP, NOW, World


def overdue() -> tuple[World, str]:
    """The old pod of n1 is deleted, and the watch shows it still; its key."""
    found = world("n3")
    found.group()
    found.group()
    (key,) = found.removed
    found.objects.pods[GROUP][key] = old_pod("n1")
    return found, key


def test_the_same_pod_is_not_deleted_twice_over() -> None:
    """Until the watch shows what became of it nothing is decided on the old picture."""
    found, _ = overdue()
    plan = found.group()
    assert not [write for write in plan.writes if isinstance(write, PodRemoval)]


def test_no_other_pod_goes_before_the_watch_shows_that_one_is_gone() -> None:
    """Its exporter is silent sooner: it looks like a holder then, and another pod like the one to begin with."""
    found, key = overdue()
    see(found, "n1", exporter.SILENT)
    found.group()
    assert done(found) == ["n1"]
    del found.objects.pods[GROUP][key]
    found.group()
    start(found, "n1")
    assert done(found) == ["n1", "n2"]


async def test_a_deletion_without_an_answer_is_sent_again() -> None:
    """It may have been done or not: the same pod goes, and no other before the watch shows it."""
    found, key = overdue()
    found.records.replaced.clear()
    client = AsyncMock()
    client.delete.side_effect = [Unavailable(0, "Unreachable", "connection lost"), NotFound(404, "NotFound", "gone")]
    writer = Writer(client, found.records, PendingWrites(), now=lambda: NOW)
    with pytest.raises(Unavailable):
        await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    see(found, "n1", exporter.SILENT)
    await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    await writer.send(found.plan(Key(KeyKind.GROUP, GROUP)))
    assert [call.args[1] for call in client.delete.await_args_list] == [key, key]


def test_nodes_that_do_not_hear_each_other_stop_it() -> None:
    """A new pod that is master beside an old one speaks otherwise: no further pod is risked."""
    found = world("n3")
    found.group()
    found.group()
    start(found, "n1", state="MASTER")
    found.group()
    assert done(found) == ["n1"]
    assert (
        "n1 and n3 are both master of shop/web, because they do not hear each other" in condition(found, PROGRAMMED)[2]
    )


def test_the_family_that_old_pods_did_not_serve_has_no_rival() -> None:
    """They drop the second family of a Service: who is master of it beside them is so with their VRID alone."""
    found = world("n3")
    found.group()
    found.group()
    found.objects.pods[GROUP]["lb/edge-new-n1"] = new_pod("n1")
    found.group()
    wanted = found.snapshot.groups[GROUP].status.config_hash
    both = (InstanceState(WEB, 7, 4, "BACKUP", 2), InstanceState(f"{WEB}/v6", 7, 6, "MASTER", 1))
    see(found, "n1", NodeState(config_hash=wanted, instances=both))
    found.group()
    assert done(found) == ["n1", "n2"], condition(found, PROGRAMMED)[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "leader", "order"),
    [("n1 n2", "", 3), ("n1", "n2", 3), ("n2", "n1", 3), ("n1", "", 2), ("n2", "", 2), ("", "", 2)],
)
def test_with_policy_local_a_node_with_an_endpoint_takes_it_before_the_holder_goes(
    without: str, leader: str, order: int
) -> None:
    """Whoever of those that lead has one is waited for; where none has, nobody is."""
    found = world("n3")
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", external_traffic_policy="Local"))
    assert roll(found, leader, without=without) == ["n1", "n2", "n3"][:order]


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
def test_a_check_that_keeps_nodes_from_leading_holds_nothing_up(
    on_failure: str, state: str, lowered: str, order: int
) -> None:
    """In FAULT none can become master, and no higher than the old ones neither; one that can is waited for."""
    found = world("n3", checks=[Check(name="api", url="https://localhost:6443/readyz", on_failure=on_failure)])
    assert roll(found, lagging=state, without=lowered) == ["n1", "n2", "n3"][:order]


def test_a_node_that_has_joined_since_does_not_lead() -> None:
    """In unicast the old pods do not know it: it is held out, and would take nothing over."""
    peers = ["192.0.2.12", "192.0.2.13"]
    text = conf(instance(WEB, 7, VIP, "192.0.2.141", peers=peers))
    found = world("n3", text=text, unicast_enabled=True)
    assert roll(found, "n2") == ["n1", "n2", "n3"]
    assert '"leads":["n2"]' in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["n1", "n2", "n3"])
def test_an_old_pod_where_the_group_has_none_any_more_goes_last(holder: str) -> None:
    """A taint came after it: all others are taken over first, it gives its VIPs to a new pod, and nobody follows it."""
    found = tainted(world(holder, tolerations=[]), "n1")
    assert roll(found, "n2", "n3")[-1] == "n1"
    assert sorted(done(found)) == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.slow
@pytest.mark.parametrize(("without", "told"), [("", "to hold shop/web"), ("n2 n3", "n1, which is outside the group")])
def test_such_a_pod_keeps_what_no_new_one_can_take(without: str, told: str) -> None:
    """The group names it, why it is still there, and what would end it."""
    found = tainted(world("n1", tolerations=[]), "n1")
    assert roll(found, without=without) == ["n2", "n3"]
    assert told in condition(found, PROGRAMMED)[2]
    assert ("spec.tolerations" in condition(found, PROGRAMMED)[2]) is bool(without)
    assert ("kubectl delete pod edge-old-n1 -n lb" in condition(found, PROGRAMMED)[2]) is bool(without)


@pytest.mark.parametrize("silent", [True, False])
def test_a_group_that_has_no_nodes_any_more_keeps_its_old_pods(silent: bool) -> None:
    """Nobody could follow any of them."""
    found = tainted(world("n3", tolerations=[]), *NODES)
    for node in NODES if silent else ():
        see(found, node, exporter.SILENT)
    assert not roll(found)
    assert "and no new pod can take that over" in condition(found, PROGRAMMED)[2]


def test_such_a_pod_that_is_silent_goes_when_all_is_led_elsewhere() -> None:
    """It may hold anything, so each VIP must have its new master."""
    found = tainted(world("n3", tolerations=[]), "n1")
    see(found, "n1", exporter.SILENT)
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", external_traffic_policy="Local"))
    assert roll(found, without="n2 n3") == ["n2", "n3"]
    catch_up(found, "n2", "n3", state="MASTER")
    assert done(found) == ["n2", "n3", "n1"]


def test_such_a_pod_on_a_node_that_is_down_is_waited_for() -> None:
    """It cannot end before its node is back, and speaks as it did."""
    found = tainted(world("n3", tolerations=[]), "n1")
    down(found, "n1")
    assert roll(found, "n2", "n3") == ["n2", "n3"]
    assert "waiting for n1, which is not ready" in condition(found, PROGRAMMED)[2]
