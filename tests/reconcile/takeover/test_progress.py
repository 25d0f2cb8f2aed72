"""The take-over of a group: nothing without approval, then one pod at a time, masters last."""

import msgspec
import pytest

from kavip import names
from kavip.api.group import PasswordAuth, SecretRef
from kavip.reconcile.observed import exporter
from kavip.reconcile.observed.agentstates import NodeState
from kavip.reconcile.plan import Apply, Key, KeyKind
from tests.keepalived_operator.oldobjects import conf, configmap, instance, metrics, new_pod
from tests.reconcile.group.settledgroup import ACCEPTED, PROGRAMMED, WEB, annotations, applied_kinds, condition, serving
from tests.reconcile.simulatedcluster import GROUP
from tests.reconcile.takeover.oldinstallation import (
    NODES,
    OLD,
    VIP,
    catch_up,
    make_not_ready,
    old_installation,
    replaced_nodes,
    report_state,
    set_label,
    start_new_pod,
    take_over,
    with_approval,
)


def test_without_approval_nothing_is_written() -> None:
    """No object and no pod is written. The condition has the command for the approval."""
    found = old_installation("n3", approval="")
    plan = found.group()
    assert (applied_kinds(plan), annotations(plan), found.removed) == ([], {}, [])
    status, reason, message = condition(found, ACCEPTED)
    assert (status, reason) == ("False", "OldOperatorRunning")
    assert "kubectl annotate keepalivedgroup edge -n lb kavip.io/take-over=true" in message
    assert not found.group().writes, "the status is written once"


@pytest.mark.parametrize("value", ["yes", "True", "1", "false"])
def test_only_true_is_an_approval(value: str) -> None:
    """Any other value is no approval."""
    found = old_installation("n3", approval=value)
    assert not applied_kinds(found.group())


def test_the_old_key_stays_byte_for_byte() -> None:
    """kavip's text is under another key, without the password. The DaemonSet replaces no pod by itself."""
    text = conf(instance(WEB, 7, VIP, "192.0.2.141", password="hushhush"))
    found = old_installation("n3", text=text, password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    bodies = {write.kind: write for write in found.plan(Key(KeyKind.GROUP, GROUP)).writes if isinstance(write, Apply)}
    found.group()
    data = found.objects.configmaps[GROUP].data or {}
    assert data[names.CONFIG_KEY] == text
    assert set(bodies["ConfigMap"].body["data"]) == {names.AGENT_KEY, names.TAKE_OVER_KEY}
    assert "hushhush" not in data[names.TAKE_OVER_KEY] + data[names.AGENT_KEY]
    assert bodies["DaemonSet"].body["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert bodies["DaemonSet"].adopts


def test_no_pod_is_deleted_before_the_objects_are_written() -> None:
    """An approval from before the start of kavip: the old DaemonSet would only create another old pod."""
    found = old_installation("n3")
    group = found.snapshot.groups[GROUP]
    unseen = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, metrics_port=None))
    found.snapshot.put(unseen)  # its port must be persisted first
    while not found.removed:
        assert found.group().writes
    data = found.objects.configmaps[GROUP].data or {}
    assert (replaced_nodes(found), names.TAKE_OVER_KEY in data) == (["n1"], True)


def test_pods_without_vips_go_first_and_the_master_last() -> None:
    """Pods are replaced one at a time, the master's when new pods have taken its VIPs."""
    found = old_installation("n2")
    found.group()
    found.group()
    assert replaced_nodes(found) == ["n1"]
    found.group()
    assert replaced_nodes(found) == ["n1"], "the next only when the new pod runs"
    start_new_pod(found, "n1")
    assert replaced_nodes(found) == ["n1", "n3"]
    start_new_pod(found, "n3")
    assert replaced_nodes(found) == ["n1", "n3"]
    assert '"leads":["n1","n3"]' in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]
    catch_up(found, "n1", "n3")
    assert "to hold shop/web" in condition(found, PROGRAMMED)[2]
    catch_up(found, "n1", "n3", state="MASTER")
    assert replaced_nodes(found) == ["n1", "n3", "n2"]
    start_new_pod(found, "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert set(data) == {names.AGENT_KEY, names.CONFIG_KEY}
    assert "written by kavip" in data[names.CONFIG_KEY]


@pytest.mark.slow
def test_where_all_pods_hold_vips_the_one_with_the_fewest_goes_first() -> None:
    """The VIPs of that node move to old pods first; then its new pod takes all."""
    found = old_installation("n1", "n2", "n3")
    report_state(found, "n2", exporter.node_state(metrics(("other", 9, "BACKUP"), (WEB, 7, "MASTER"))))
    report_state(found, "n1", exporter.node_state(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    report_state(found, "n3", exporter.node_state(metrics(("other", 9, "MASTER"), (WEB, 7, "MASTER"))))
    assert take_over(found, "n2") == ["n2", "n1", "n3"]


@pytest.mark.slow
def test_where_no_exporter_answers_the_highest_address_goes_last() -> None:
    """keepalived decides so between equal priorities. A node without an answer is waited for."""
    found = old_installation()
    for node in NODES:
        report_state(found, node, exporter.SILENT)
    assert take_over(found, "n1", "n2") == ["n1", "n2", "n3"]
    fresh = old_installation()
    fresh.agents = fresh.agents.with_nodes(GROUP, ["n1"])
    fresh.group()
    fresh.group()
    assert not replaced_nodes(fresh)
    assert "asking n2, n3" in condition(fresh, PROGRAMMED)[2]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8])
def test_a_restart_in_the_middle_changes_nothing(calls: int) -> None:
    """The cluster holds all the state: a new controller continues where the last one stopped."""
    found = old_installation("n3")
    for _ in range(calls):
        found.group()
    found.records.replaced.clear()
    found.records.applied.clear()
    assert take_over(found, "n1", "n2") == ["n1", "n2", "n3"]


def test_without_the_annotation_it_pauses() -> None:
    """
    No further pod is replaced. The text follows changes, and the condition says how to continue and how to go back.
    """
    found = old_installation("n3")
    found.group()
    found.group()
    start_new_pod(found, "n1")
    count = len(replaced_nodes(found))
    found.snapshot.put(with_approval(found.snapshot.groups[GROUP], ""))
    start_new_pod(found, "n2")
    assert len(replaced_nodes(found)) == count
    status, reason, message = condition(found, PROGRAMMED)
    assert (status, reason) == ("False", "Pending")
    assert message.startswith("taking over from keepalived-operator: ")
    assert "paused: annotate the group" in message
    found.snapshot.put(serving("shop/new", "192.0.2.150"))
    catch_up(found, "n1", "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert "shop/new" in data[names.TAKE_OVER_KEY]
    assert data[names.CONFIG_KEY] == OLD


def test_a_node_that_is_down_delays_no_other() -> None:
    """All other pods are replaced. The old key stays for the pod that is left."""
    found = old_installation("n3")
    make_not_ready(found, "n1")
    assert take_over(found, "n2") == ["n2", "n3"]
    assert "waiting for n1" in condition(found, PROGRAMMED)[2]
    assert (found.objects.configmaps[GROUP].data or {})[names.CONFIG_KEY] == OLD


def test_a_new_pod_that_does_not_start_pauses_it() -> None:
    """The condition has the agent's problem."""
    found = old_installation("n3")
    found.group()
    found.group()
    found.objects.pods[GROUP]["lb/edge-new-n1"] = new_pod("n1", ready=False)
    report_state(found, "n1", NodeState(refused="password: the Secret that passwordAuth names is not mounted"))
    found.group()
    found.group()
    assert replaced_nodes(found) == ["n1"]
    assert "waiting for the pod on n1: password: the Secret" in condition(found, PROGRAMMED)[2]


def test_an_old_pod_that_a_user_deletes_counts_as_replaced() -> None:
    """The replacement waits for the new pod, then it continues."""
    found = old_installation("n3")
    del found.objects.pods[GROUP]["lb/edge-old-n2"]
    found.group()
    found.group()
    assert not replaced_nodes(found)
    assert "waiting for a new pod on n2" in condition(found, PROGRAMMED)[2]
    start_new_pod(found, "n2")
    assert replaced_nodes(found)[:1] == ["n1"]


def test_leaders_stay_masters_until_the_annotation_is_removed() -> None:
    """The text stays as it is until then; afterwards the VIPs move to their preferred nodes."""
    found = old_installation("n3")
    take_over(found, "n1", "n2")
    data = found.objects.configmaps[GROUP].data or {}
    assert '"leads":["n1","n2"]' in data[names.AGENT_KEY]
    assert not found.group().writes
    found.snapshot.put(with_approval(found.snapshot.groups[GROUP], ""))
    found.group()
    assert "leads" not in (found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY]


def test_the_address_lists_of_the_old_daemons_end_at_one_instant() -> None:
    """The VRID stays. The condition names what changes: the advertised addresses."""
    found = old_installation("n3")
    take_over(found, "n1", "n2")
    found.group()
    reason, message = condition(found, names.ConditionType.PROGRAMMED)[1:]
    assert reason == "Pending"
    assert "a change that all nodes make at one instant (advertised addresses) waits for" in message


@pytest.mark.parametrize("interval", ["1", "1.0", "0.50", "01"])
def test_the_interval_of_the_old_daemons_stays_as_it_is_written_until_the_switch(interval: str) -> None:
    """Also one in a form in which kavip writes none itself: the last nodes still hear the first ones."""
    text = conf(instance(WEB, 7, VIP, "192.0.2.141", lines=(f"advert_int {interval}",)))
    found = old_installation("n3", text=text, vrrp_version=3, advert_interval_milliseconds=200, unicast_enabled=True)
    take_over(found, "n1", "n2", "n3")
    assert not [key for key in found.objects.pods[GROUP] if "old" in key]
    assert f"    advert_int {interval}\n" in found.text()
    for _ in range(3):
        found.group()
        found.later(1.0)
    message = condition(found, names.ConditionType.PROGRAMMED)[2]
    assert f"    advert_int {interval}\n" in found.text()
    assert "at one instant" in message


def test_a_change_that_would_lose_vips_pauses_it() -> None:
    """The condition names the instances, and the change to revert."""
    found = old_installation("n3")
    spread = {names.SPREAD_ANNOTATION: "true"}
    found.snapshot.put(serving(WEB, VIP, "192.0.2.141", annotations=spread))
    for _ in range(4):
        found.group()
    assert not replaced_nodes(found)
    assert "the VIPs of shop/web would be lost on the way" in condition(found, PROGRAMMED)[2]


def test_a_removed_password_pauses_it() -> None:
    """The old pods use authentication, so the new ones must too."""
    found = old_installation("n3", text=conf(instance(WEB, 7, VIP, "192.0.2.141", password="secret")))
    for _ in range(4):
        found.group()
    assert not replaced_nodes(found)
    assert "the old pods use a password: set spec.passwordAuth" in condition(found, PROGRAMMED)[2]


def test_old_pods_without_their_configmap_are_left_alone() -> None:
    """What they run is unknown."""
    found = old_installation("n3")
    del found.objects.configmaps[GROUP]
    assert not applied_kinds(found.group())
    assert condition(found, ACCEPTED)[1] == "OldOperatorRunning"


@pytest.mark.parametrize("approval", ["true", ""])
@pytest.mark.parametrize("status", [None, {WEB: 1, "shop/api": 7}])
def test_vrids_are_those_of_the_old_text_for_any_status(status: dict[str, int] | None, approval: str) -> None:
    """A new group object has no status, and keepalived-operator wrote its text before its status."""
    found = old_installation("n3", approval=approval)
    group = found.snapshot.groups[GROUP]
    found.snapshot.put(msgspec.structs.replace(group, status=msgspec.structs.replace(group.status, router_ids=status)))
    found.snapshot.put(serving("shop/api", "192.0.2.150"))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert found.snapshot.groups[GROUP].status.router_ids == {"shop/api": 1, WEB: 7}


@pytest.mark.slow
def test_keepalived_operator_may_come_back_in_the_middle() -> None:
    """It creates its objects and pods again. After it is stopped again, kavip starts from the beginning."""
    found = old_installation("n3")
    found.group()
    found.group()
    start_new_pod(found, "n1")
    again = old_installation("n3")
    found.objects.configmaps[GROUP] = configmap(OLD)
    found.objects.pods[GROUP] = dict(again.objects.pods[GROUP])
    found.agents = again.agents
    found.objects.daemonsets.clear()
    found.records.replaced.clear()
    found.removed.clear()
    assert take_over(found, "n1", "n2") == ["n1", "n2", "n3"]
    assert set(found.objects.configmaps[GROUP].data or {}) == {names.AGENT_KEY, names.CONFIG_KEY}


@pytest.mark.slow
def test_it_does_not_begin_where_kubernetes_would_delete_old_pods() -> None:
    """A DaemonSet deletes pods that its selector excludes, masters too. The condition names the field to revert."""
    found = old_installation("n3", node_selector={"for": "vips"})
    for name in ("n1", "n2"):
        set_label(found, name)
    plan = found.group()
    assert (applied_kinds(plan), annotations(plan), found.removed) == ([], {}, [])
    status, reason, message = condition(found, ACCEPTED)
    assert (status, reason) == ("False", "OldOperatorRunning")
    assert (
        "would end the pods on n3 at once, with the VIPs that they hold: until it is done, let spec.nodeSelector"
        in message
    )
    assert not found.group().writes, "the status is written once"
    set_label(found, "n3")
    assert take_over(found, "n1", "n2") == ["n1", "n2", "n3"]


def test_a_selector_that_changes_in_the_middle_does_not_stop_it() -> None:
    """The DaemonSet is kavip's by then: the new pods follow the change, and the old one ends."""
    found = old_installation("n3", node_selector={"for": "vips"})
    for name in NODES:
        set_label(found, name)
    take_over(found, lagging="BACKUP")
    assert replaced_nodes(found) == ["n1", "n2"]
    set_label(found, "n3", "")
    found.snapshot.put(serving("shop/new", "192.0.2.150"))
    catch_up(found, "n1", "n2")
    assert "shop/new" in (found.objects.configmaps[GROUP].data or {})[names.TAKE_OVER_KEY]
