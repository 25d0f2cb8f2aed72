"""Taking a group over: nothing without consent, then one pod at a time, and who holds VIPs last."""

from unittest.mock import AsyncMock

import msgspec
import pytest

from kavip import names
from kavip.api.group import Check, PasswordAuth, SecretRef
from kavip.controller import exported
from kavip.controller.apply import Writer
from kavip.controller.observed import NodeState, Sight
from kavip.controller.outcome import Apply, Key, Kind, PodRemoval
from kavip.errors import NotFound, Unavailable
from kavip.vrrp import inherited
from tests.controller.grouping import ACCEPTED, PROGRAMMED, WEB, applied, condition, serving, told
from tests.controller.migrating import (
    NODES,
    OLD,
    VIP,
    agreed,
    catch_up,
    done,
    down,
    labelled,
    roll,
    see,
    start,
    tainted,
    world,
)
from tests.controller.scenes import GROUP, NOW, World
from tests.predecessor.live import conf, configmap, instance, metrics, new_pod, old_pod


def test_without_consent_nothing_is_written() -> None:
    """Not one object, not one pod; the condition names the command, and an address goes on being given."""
    found = world("n3", consent="")
    plan = found.group()
    assert (applied(plan), told(plan), found.removed) == ([], {}, [])
    status, reason, message = condition(found, ACCEPTED)
    assert (status, reason) == ("False", "OldOperatorRunning")
    assert "kubectl annotate keepalivedgroup edge -n lb kavip.io/take-over=true" in message
    assert not found.group().writes, "and it is said once"


@pytest.mark.parametrize("value", ["yes", "True", "1", "false"])
def test_only_true_is_consent(value: str) -> None:
    """Another value is none."""
    found = world("n3", consent=value)
    assert not applied(found.group())


def test_the_old_key_stays_byte_for_byte() -> None:
    """kavip's text stands beside it, without the password; the DaemonSet replaces no pod by itself."""
    text = conf(instance(WEB, 7, VIP, "192.0.2.141", password="hushhush"))
    found = world("n3", text=text, password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    bodies = {write.kind: write for write in found.plan(Key(Kind.GROUP, GROUP)).writes if isinstance(write, Apply)}
    found.group()
    data = found.objects.configmaps[GROUP].data or {}
    assert data[names.CONFIG_KEY] == text
    assert set(bodies["ConfigMap"].body["data"]) == {names.AGENT_KEY, names.TAKE_OVER_KEY}
    assert "hushhush" not in data[names.TAKE_OVER_KEY] + data[names.AGENT_KEY]
    assert bodies["DaemonSet"].body["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert bodies["DaemonSet"].adopts


def test_no_pod_goes_before_the_objects_are_written() -> None:
    """Where consent is older than kavip: the old DaemonSet would only make another old pod."""
    found = world("n3")
    group = found.snapshot.groups[GROUP]
    unseen = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, metrics_port=None))
    found.snapshot.put(unseen)  # its port has to be persisted first
    while not found.removed:
        assert found.group().writes
    data = found.objects.configmaps[GROUP].data or {}
    assert (done(found), names.TAKE_OVER_KEY in data) == (["n1"], True)


def test_who_holds_nothing_goes_first_and_the_holder_last() -> None:
    """One at a time; the holder only when new nodes have taken what it held."""
    found = world("n2")
    found.group()
    found.group()
    assert done(found) == ["n1"]
    found.group()
    assert done(found) == ["n1"], "the next only when the new pod runs"
    start(found, "n1")
    assert done(found) == ["n1", "n3"]
    start(found, "n3")
    assert done(found) == ["n1", "n3"]
    assert '"leads":["n1","n3"]' in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]
    catch_up(found, "n1", "n3")
    assert "to hold shop/web" in condition(found, PROGRAMMED)[2]
    catch_up(found, "n1", "n3", state="MASTER")
    assert done(found) == ["n1", "n3", "n2"]
    start(found, "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert set(data) == {names.AGENT_KEY, names.CONFIG_KEY}
    assert "written by kavip" in data[names.CONFIG_KEY]


def test_where_all_hold_vips_the_one_with_the_fewest_goes_first() -> None:
    """Its VIPs fall to the others once; then it takes all."""
    found = world("n1", "n2", "n3")
    see(found, "n2", exported.state_of(metrics(("other", 9, "BACKUP"), (WEB, 7, "MASTER"))))
    see(found, "n1", exported.state_of(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    see(found, "n3", exported.state_of(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    assert roll(found, "n2") == ["n2", "n1", "n3"]


def test_where_no_exporter_answers_the_highest_address_is_last() -> None:
    """So keepalived decides between equals; one that was not asked yet is waited for."""
    found = world()
    for node in NODES:
        see(found, node, exported.SILENT)
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]
    fresh = world()
    fresh.observed = fresh.observed.with_nodes(GROUP, ["n1"])
    fresh.group()
    fresh.group()
    assert not done(fresh)
    assert "asking n2, n3" in condition(fresh, PROGRAMMED)[2]


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
def test_a_restart_in_the_middle_changes_nothing(calls: int) -> None:
    """All that is remembered stands in the cluster: a new controller goes on where the old one stood."""
    found = world("n3")
    for _ in range(calls):
        found.group()
    found.objects.replaced.clear()
    found.objects.applied.clear()
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]


def test_called_off_it_stays_where_it_is() -> None:
    """No further pod is replaced, the text is kept up, and it says how to go on and how to go back."""
    found = world("n3")
    found.group()
    found.group()
    start(found, "n1")
    count = len(done(found))
    found.snapshot.put(agreed(found.snapshot.groups[GROUP], ""))
    start(found, "n2")
    assert len(done(found)) == count
    status, reason, message = condition(found, PROGRAMMED)
    assert (status, reason) == ("False", "Pending")
    assert message.startswith("taking over from keepalived-operator, ")
    assert "paused: annotate the group" in message
    found.snapshot.put(serving("shop/new", "192.0.2.150"))
    catch_up(found, "n1", "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert "shop/new" in data[names.TAKE_OVER_KEY]
    assert data[names.CONFIG_KEY] == OLD


def test_a_node_that_is_down_is_waited_for_and_holds_up_nobody() -> None:
    """All others are taken over; the old key stays for the pod that is still there."""
    found = world("n3")
    down(found, "n1")
    assert roll(found, "n2") == ["n2", "n3"]
    assert "waiting for n1" in condition(found, PROGRAMMED)[2]
    assert (found.objects.configmaps[GROUP].data or {})[names.CONFIG_KEY] == OLD


def test_a_new_pod_that_does_not_start_stops_it() -> None:
    """The agent's complaint is what the group says."""
    found = world("n3")
    found.group()
    found.group()
    found.objects.pods[GROUP]["lb/edge-new-n1"] = new_pod("n1", ready=False)
    see(found, "n1", NodeState(refused="password: the Secret that passwordAuth names is not mounted"))
    found.group()
    found.group()
    assert done(found) == ["n1"]
    assert "waiting for the pod on n1: password: the Secret" in condition(found, PROGRAMMED)[2]


def test_an_old_pod_that_somebody_deletes_is_simply_new() -> None:
    """Its new pod is waited for, then it goes on."""
    found = world("n3")
    del found.objects.pods[GROUP]["lb/edge-old-n2"]
    found.group()
    found.group()
    assert not done(found)
    assert "waiting for a new pod on n2" in condition(found, PROGRAMMED)[2]
    start(found, "n2")
    assert done(found)[:1] == ["n1"]


def test_who_leads_goes_on_leading_until_the_annotation_is_taken_off() -> None:
    """Then the VIPs go where they belong; until then the text of all nodes stays as it is."""
    found = world("n3")
    roll(found, "n1", "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert '"leads":["n1","n2"]' in data[names.AGENT_KEY]
    assert not found.group().writes
    found.snapshot.put(agreed(found.snapshot.groups[GROUP], ""))
    found.group()
    assert "leads" not in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]


def test_the_lists_of_the_old_daemons_are_given_up_at_one_instant() -> None:
    """Their VRID stays: what the nodes agree upon is which addresses they advertise, and that is told."""
    found = world("n3")
    roll(found, "n1", "n2")
    found.group()
    reason, message = condition(found, names.Condition.PROGRAMMED)[1:]
    assert reason == "Pending"
    assert "a change that all nodes make at one instant (advertised addresses) waits for" in message


def test_what_was_changed_meanwhile_and_would_lose_vips_stops_it() -> None:
    """The condition names the instances and what to change back."""
    found = world("n3")
    spread = {names.SPREAD_ANNOTATION: "true"}
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", annotations=spread))
    for _ in range(4):
        found.group()
    assert not done(found)
    assert "the VIPs of shop/web would be lost on the way" in condition(found, PROGRAMMED)[2]


def test_a_password_that_was_removed_stops_it() -> None:
    """The old pods authenticate: new ones must too."""
    found = world("n3", text=conf(instance(WEB, 7, VIP, "192.0.2.141", password="secret")))
    for _ in range(4):
        found.group()
    assert not done(found)
    assert "the old pods use a password: set spec.passwordAuth" in condition(found, PROGRAMMED)[2]


def test_old_pods_without_their_configmap_are_left_alone() -> None:
    """Nobody knows what they run."""
    found = world("n3")
    del found.objects.configmaps[GROUP]
    assert not applied(found.group())
    assert condition(found, ACCEPTED)[1] == "OldOperatorRunning"


@pytest.mark.parametrize("consent", ["true", ""])
@pytest.mark.parametrize("status", [None, {WEB: 1, "shop/api": 7}])
def test_vrids_are_those_of_the_old_text_whatever_status_says(status: dict[str, int] | None, consent: str) -> None:
    """A group that was made anew has no status, and keepalived-operator wrote its text first; its daemons run."""
    found = world("n3", consent=consent)
    group = found.snapshot.groups[GROUP]
    found.snapshot.put(msgspec.structs.replace(group, status=msgspec.structs.replace(group.status, router_ids=status)))
    found.snapshot.put(serving("shop/api", "192.0.2.150"))
    found.settle(Key(Kind.GROUP, GROUP))
    assert found.snapshot.groups[GROUP].status.router_ids == {"shop/api": 1, WEB: 7}


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
    see(found, "n1", exported.SILENT)
    found.group()
    assert done(found) == ["n1"]
    del found.objects.pods[GROUP][key]
    found.group()
    start(found, "n1")
    assert done(found) == ["n1", "n2"]


async def test_a_deletion_without_an_answer_is_sent_again() -> None:
    """It may have been done or not: the same pod goes, and no other before the watch shows it."""
    found, key = overdue()
    found.objects.replaced.clear()
    client = AsyncMock()
    client.delete.side_effect = [Unavailable(0, "Unreachable", "connection lost"), NotFound(404, "NotFound", "gone")]
    writer = Writer(client, found.objects, now=lambda: NOW)
    with pytest.raises(Unavailable):
        await writer.send(found.plan(Key(Kind.GROUP, GROUP)))
    see(found, "n1", exported.SILENT)
    await writer.send(found.plan(Key(Kind.GROUP, GROUP)))
    await writer.send(found.plan(Key(Kind.GROUP, GROUP)))
    assert [call.args[1] for call in client.delete.await_args_list] == [key, key]


def test_metrics_of_the_old_exporter() -> None:
    """Who is master stands in a label; a node whose keepalived it does not see has told nothing."""
    state = exported.state_of(metrics((WEB, 7, "MASTER"), ("shop/api", 8, "BACKUP")))
    assert [(each.name, each.router_id, each.state) for each in state.instances] == [
        ("shop/api", 8, "BACKUP"),
        (WEB, 7, "MASTER"),
    ]
    assert exported.state_of("keepalived_up 0\n") == exported.SILENT
    known = exported.state_of(metrics((WEB, 7, "MASTER")), inherited.read(OLD))
    assert {str(vip) for vip in known.masters} == {VIP, "192.0.2.141"} == {str(vip) for vip in known.instance_of}


def test_nodes_that_do_not_hear_each_other_stop_it() -> None:
    """A new pod that is master beside an old one speaks otherwise: no further pod is risked."""
    found = world("n3")
    found.group()
    found.group()
    start(found, "n1", state="MASTER")
    found.group()
    assert done(found) == ["n1"]
    assert "n1 and n3 are both master of shop/web: they do not hear each other" in condition(found, PROGRAMMED)[2]


def test_the_family_that_old_pods_did_not_serve_has_no_rival() -> None:
    """They drop the second family of a Service: who is master of it beside them is so with their VRID alone."""
    found = world("n3")
    found.group()
    found.group()
    found.objects.pods[GROUP]["lb/edge-new-n1"] = new_pod("n1")
    found.group()
    wanted = found.snapshot.groups[GROUP].status.config_hash
    both = (Sight(WEB, 7, 4, "BACKUP", 2), Sight(f"{WEB}/v6", 7, 6, "MASTER", 1))
    see(found, "n1", NodeState(config_hash=wanted, instances=both))
    found.group()
    assert done(found) == ["n1", "n2"], condition(found, PROGRAMMED)[2]


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


def test_the_old_operator_may_come_back_in_the_middle() -> None:
    """It makes its objects anew, pods and all; when it is stopped again kavip begins from the beginning."""
    found = world("n3")
    found.group()
    found.group()
    start(found, "n1")
    again = world("n3")
    found.objects.configmaps[GROUP] = configmap(OLD)
    found.objects.pods[GROUP] = dict(again.objects.pods[GROUP])
    found.observed = again.observed
    found.objects.daemonsets.clear()
    found.objects.replaced.clear()
    found.removed.clear()
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.parametrize("holder", ["n1", "n2", "n3"])
def test_an_old_pod_where_the_group_has_none_any_more_goes_last(holder: str) -> None:
    """A taint came after it: all others are taken over first, it gives its VIPs to a new pod, and nobody follows it."""
    found = tainted(world(holder, tolerations=[]), "n1")
    assert roll(found, "n2", "n3")[-1] == "n1"
    assert sorted(done(found)) == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.parametrize(("without", "told"), [("", "to hold shop/web"), ("n2 n3", "n1, where the group has none")])
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
        see(found, node, exported.SILENT)
    assert not roll(found)
    assert "and no new pod is able to take that" in condition(found, PROGRAMMED)[2]


def test_such_a_pod_that_is_silent_goes_when_all_is_led_elsewhere() -> None:
    """It may hold anything, so each VIP must have its new master."""
    found = tainted(world("n3", tolerations=[]), "n1")
    see(found, "n1", exported.SILENT)
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


def test_pods_that_kubernetes_would_end_at_once_keep_it_from_beginning() -> None:
    """A DaemonSet ends what its selector does not choose, holders or not; the group says what to change back."""
    found = world("n3", node_selector={"for": "vips"})
    for name in ("n1", "n2"):
        labelled(found, name)
    plan = found.group()
    assert (applied(plan), told(plan), found.removed) == ([], {}, [])
    status, reason, message = condition(found, ACCEPTED)
    assert (status, reason) == ("False", "OldOperatorRunning")
    assert "would end those on n3 at once, with the VIPs that they hold: spec.nodeSelector" in message
    assert not found.group().writes, "and it is said once"
    labelled(found, "n3")
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]


def test_what_is_changed_in_the_middle_does_not_stop_it() -> None:
    """The DaemonSet is kavip's by then: new pods are told what they are to run, and the old one ends."""
    found = world("n3", node_selector={"for": "vips"})
    for name in NODES:
        labelled(found, name)
    roll(found, lagging="BACKUP")
    assert done(found) == ["n1", "n2"]
    labelled(found, "n3", "")
    found.snapshot.put(serving("shop/new", "192.0.2.150"))
    catch_up(found, "n1", "n2")
    assert "shop/new" in (found.objects.configmaps[GROUP].data or {})[names.TAKE_OVER_KEY]
