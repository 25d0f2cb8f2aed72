"""Taking a group over: nothing without consent, then one pod at a time, and who holds VIPs last."""

import msgspec
import pytest

from kavip import names
from kavip.api.group import PasswordAuth, SecretRef
from kavip.reconcile.migration import exporter
from kavip.reconcile.observed.nodes import NodeState
from kavip.reconcile.plan import Apply, Key, KeyKind
from kavip.vrrp import operatorconfig
from tests.predecessor.live import conf, configmap, instance, metrics, new_pod
from tests.reconcile.group.grouping import ACCEPTED, PROGRAMMED, WEB, applied, condition, serving, told
from tests.reconcile.migration.migrating import (
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
    world,
)
from tests.reconcile.scenes import GROUP


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
    bodies = {write.kind: write for write in found.plan(Key(KeyKind.GROUP, GROUP)).writes if isinstance(write, Apply)}
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


@pytest.mark.slow
def test_where_all_hold_vips_the_one_with_the_fewest_goes_first() -> None:
    """Its VIPs fall to the others once; then it takes all."""
    found = world("n1", "n2", "n3")
    see(found, "n2", exporter.state_of(metrics(("other", 9, "BACKUP"), (WEB, 7, "MASTER"))))
    see(found, "n1", exporter.state_of(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    see(found, "n3", exporter.state_of(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    assert roll(found, "n2") == ["n2", "n1", "n3"]


@pytest.mark.slow
def test_where_no_exporter_answers_the_highest_address_is_last() -> None:
    """So keepalived decides between equals; one that was not asked yet is waited for."""
    found = world()
    for node in NODES:
        see(found, node, exporter.SILENT)
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]
    fresh = world()
    fresh.agents = fresh.agents.with_nodes(GROUP, ["n1"])
    fresh.group()
    fresh.group()
    assert not done(fresh)
    assert "asking n2, n3" in condition(fresh, PROGRAMMED)[2]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
def test_a_restart_in_the_middle_changes_nothing(calls: int) -> None:
    """All that is remembered stands in the cluster: a new controller goes on where the old one stood."""
    found = world("n3")
    for _ in range(calls):
        found.group()
    found.records.replaced.clear()
    found.records.applied.clear()
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
    assert message.startswith("taking over from keepalived-operator: ")
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
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert found.snapshot.groups[GROUP].status.router_ids == {"shop/api": 1, WEB: 7}


def test_metrics_of_the_old_exporter() -> None:
    """Who is master stands in a label; a node whose keepalived it does not see has told nothing."""
    state = exporter.state_of(metrics((WEB, 7, "MASTER"), ("shop/api", 8, "BACKUP")))
    assert [(each.name, each.router_id, each.state) for each in state.instances] == [
        ("shop/api", 8, "BACKUP"),
        (WEB, 7, "MASTER"),
    ]
    assert exporter.state_of("keepalived_up 0\n") == exporter.SILENT
    known = exporter.state_of(metrics((WEB, 7, "MASTER")), operatorconfig.read_instances(OLD))
    assert {str(vip) for vip in known.masters} == {VIP, "192.0.2.141"} == {str(vip) for vip in known.instance_of}


@pytest.mark.slow
def test_the_old_operator_may_come_back_in_the_middle() -> None:
    """It makes its objects anew, pods and all; when it is stopped again kavip begins from the beginning."""
    found = world("n3")
    found.group()
    found.group()
    start(found, "n1")
    again = world("n3")
    found.objects.configmaps[GROUP] = configmap(OLD)
    found.objects.pods[GROUP] = dict(again.objects.pods[GROUP])
    found.agents = again.agents
    found.objects.daemonsets.clear()
    found.records.replaced.clear()
    found.removed.clear()
    assert roll(found, "n1", "n2") == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.slow
def test_pods_that_kubernetes_would_end_at_once_keep_it_from_beginning() -> None:
    """A DaemonSet ends what its selector does not choose, holders or not; the group says what to change back."""
    found = world("n3", node_selector={"for": "vips"})
    for name in ("n1", "n2"):
        labelled(found, name)
    plan = found.group()
    assert (applied(plan), told(plan), found.removed) == ([], {}, [])
    status, reason, message = condition(found, ACCEPTED)
    assert (status, reason) == ("False", "OldOperatorRunning")
    assert (
        "would end the pods on n3 at once, with the VIPs that they hold: until it is done, let spec.nodeSelector"
        in message
    )
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
