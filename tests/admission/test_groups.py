"""Rules for a KeepalivedGroup that depend on other objects: ports and nodes, namespaces, Services."""

from typing import Any

import msgspec
import pytest

from kavip.admission import policy
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.admission.groups import RUNS_IN_PODS
from kavip.admission.verdict import Verdict
from kavip.api.group import ConfigTemplateRef, GroupSpec, Instances, KeepalivedGroup
from kavip.api.review import Operation, Review
from kavip.names import Reason
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.snapshot import Object, Snapshot
from tests.support.build import group, node, service

NODES = (node("n1", "192.0.2.1", labels={"rack": "1"}), node("n2", "192.0.2.2", labels={"rack": "2"}))


def evaluate(
    submitted: KeepalivedGroup, *existing: Object, old: KeepalivedGroup | None = None, counting: str = ""
) -> Verdict:
    """The verdict on *submitted*, a new group or an update of *old*, in *existing*."""
    snapshot = Snapshot.from_objects([*existing, *([old] if old else [])], group_namespaces=counting.split())
    return policy.review(Review(Operation.UPDATE if old else Operation.CREATE, submitted, old), snapshot)


def listening(key: str, port: int, **spec: Any) -> KeepalivedGroup:
    """A group to whose agents the controller assigned *port*."""
    made = group(key, **spec)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, metrics_port=port))


@pytest.mark.parametrize(
    ("others", "free"),
    [
        ([group("lb/a", metrics_port=9700)], "9650"),
        ([listening("lb/a", 9700), listening("lb/b", 9650)], "9651"),
        ([group("lb/a", metrics_port=9700, node_selector={"rack": "1"})], "9650"),
        ([listening("far/a", 9700)], "9650"),
    ],
    ids=["named", "given", "on one node of two", "of a group that does not count"],
)
def test_a_port_in_use_is_refused_with_a_free_one(others: list[Object], free: str) -> None:
    """Agents use the network of their node, so a port serves one group per node; the message has a free one."""
    found = evaluate(group("lb/new", metrics_port=9700), *NODES, *others, counting="lb")
    (refusal,) = found.refusals
    assert refusal.field == "spec.metricsPort"
    assert refusal.message.startswith("9700: in use by group ")
    assert f" {free} is free" in refusal.message


@pytest.mark.parametrize(
    "submitted",
    [
        group("lb/new", metrics_port=9700, node_selector={"rack": "2"}),
        group("lb/new"),
        group("lb/a", metrics_port=9700),
    ],
    ids=["on other nodes", "no port named", "its own"],
)
def test_a_port_of_other_nodes_is_free(submitted: KeepalivedGroup) -> None:
    """Groups without a common node may use one port, and a group without ``metricsPort`` is assigned a free one."""
    assert evaluate(submitted, *NODES, group("lb/a", metrics_port=9700, node_selector={"rack": "1"})) == ALLOWED


def test_a_selector_that_brings_ports_together_is_refused() -> None:
    """A new node selector that causes a port conflict is refused; other edits are accepted."""
    other = group("lb/a", metrics_port=9700, node_selector={"rack": "1"})
    old = group("lb/new", metrics_port=9700, node_selector={"rack": "2"})
    new = group("lb/new", metrics_port=9700)
    assert [refusal.field for refusal in evaluate(new, *NODES, other, old=old).refusals] == ["spec.metricsPort"]
    assert evaluate(group("lb/new", metrics_port=9700, unicast_enabled=True), *NODES, other, old=new).allowed


def test_a_group_outside_group_namespaces_may_be_edited() -> None:
    """Creation is refused; an edit of an existing group is accepted with a warning."""
    submitted = group("shop/edge")
    (refusal,) = evaluate(submitted, counting="lb edge").refusals
    assert (refusal.field, refusal.message) == (
        "metadata.namespace",
        '"shop": kavip ignores groups here (groupNamespaces); want edge, lb',
    )
    found = evaluate(group("shop/edge", unicast_enabled=True), old=submitted, counting="lb edge")
    assert found.allowed
    assert found.warnings == (f"accepted because the field is unchanged: metadata.namespace: {refusal.message}",)


def test_no_preempt_is_refused_only_when_it_is_turned_on() -> None:
    """If the Local Service came later, edits of the group are accepted; the rule for Services refuses the Service."""
    existing = [service(f"shop/s{number}", group="lb/edge", external_traffic_policy="Local") for number in range(7)]
    (refusal,) = evaluate(group("lb/edge", no_preempt=True), *existing, old=group("lb/edge")).refusals
    assert refusal.message.startswith("true: shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 2 more have ")
    found = evaluate(group("lb/edge", no_preempt=True, segment="s"), *existing, old=group("lb/edge", no_preempt=True))
    assert found.allowed


def test_a_blacklist_of_a_shared_group_leaves_room_for_its_instances() -> None:
    """The shared instances count, not the Services; the message has the numbers and the remedies."""
    shared = msgspec.structs.replace(group().spec.instances, mode="Shared", count=16)
    taken = [group("lb/full", segment="s", instances=msgspec.structs.replace(shared, count=200))]
    (refusal,) = evaluate(
        group("lb/new", segment="s", instances=shared, blacklist_router_ids=list(range(1, 51))), *taken
    ).refusals
    assert refusal.field == "spec.blacklistRouterIDs"
    assert "need 16 virtual router IDs, but only 5 can be used: 255 in all, 50 blacklisted, " in refusal.message


@pytest.mark.parametrize(("last", "usable"), [(245, 10), (246, 9), (251, 4)])
def test_a_blacklist_of_a_shared_group_leaves_room_for_local_services(last: int, usable: int) -> None:
    """Beside its 4 instances, each Service with policy Local has one; with fewer numbers some would lose their VIPs."""
    local = [service(f"shop/s{n}", group="lb/edge", external_traffic_policy="Local") for n in range(6)]
    old = group("lb/edge", instances=Instances(mode="Shared", count=4), segment="default")
    new = msgspec.structs.replace(
        old, spec=msgspec.structs.replace(old.spec, blacklist_router_ids=list(range(1, last + 1)))
    )
    refusals = evaluate(new, *local, old=old).refusals
    if usable == 10:
        assert refusals == ()
        return
    (refusal,) = refusals
    assert (refusal.reason, refusal.field) == (Reason.ROUTER_IDS_EXHAUSTED, "spec.blacklistRouterIDs")
    assert f"need 10 virtual router IDs, but only {usable} can be used" in refusal.message
    assert refusal.message.endswith("; blacklist fewer, or choose another segment")


def test_without_a_blacklist_the_mode_is_at_fault() -> None:
    """A group of too many Services has no blacklist to shorten; only what other groups need is subtracted."""
    members = [service(f"shop/s{number}", group="lb/new") for number in range(300)]
    (refusal,) = evaluate(group("lb/new", segment="s"), *members).refusals
    assert (refusal.reason, refusal.field) == (Reason.ROUTER_IDS_EXHAUSTED, "spec.instances.mode")
    needs = "the instances of this group need 300 virtual router IDs, but only"
    assert refusal.message == f"{needs} 255 can be used; set it to Shared, or split the group"
    other = group("lb/other", segment="s", instances=Instances(mode="Shared", count=5))
    (refusal,) = evaluate(group("lb/new", segment="s"), other, *members).refusals
    usable = '250 can be used: 255 in all, 5 needed by other groups on segment "s"'
    assert refusal.message == f"{needs} {usable}; set it to Shared, or choose another segment"
    shared = group("lb/new", segment="s", instances=Instances(mode="Shared", count=255))
    (refusal,) = evaluate(shared, other).refusals
    assert refusal.field == "spec.instances.count"
    assert refusal.message.endswith("; lower it, or choose another segment")


def test_an_edit_of_a_group_without_vips_has_no_warning() -> None:
    """Without running VIPs nothing is disrupted."""
    assert evaluate(group("lb/edge", interface="eth1", segment="s"), old=group("lb/edge")) == ALLOWED


def test_removing_the_default_label_names_the_affected_services() -> None:
    """
    The warning has the first Services, their number, and the next default group; without such Services there is none.
    """
    old, new = group(default=True, segment="default"), group(segment="default")
    many = [service(f"shop/{name}") for name in "abcde"]
    (warning,) = evaluate(new, *many, service("shop/own", group="lb/edge"), old=old).warnings
    assert warning.startswith(
        "metadata.labels[kavip.io/default-group]: removing the label leaves 5 Services without a group, "
    )
    assert ": shop/a, shop/b, shop/c and 2 more; annotate them" in warning
    (warning,) = evaluate(new, *many[:1], group("lb/heir", default=True), old=old).warnings
    assert "removing the label moves 1 Service to lb/heir: shop/a; annotate" in warning
    assert evaluate(new, service("shop/own", group="lb/edge"), old=old) == ALLOWED


HARMLESS = {
    "advert_interval_milliseconds",
    "allow_verbatim",
    "allowed_namespaces",
    "blacklist_router_ids",
    "checks",
    "daemonset_pod_priority_class_name",
    "drain_on",
    "image_pull_secrets",
    "instances",
    "interface",
    "interface_from_ip",
    "metrics_port",
    "no_preempt",
    "openshift_cluster_name",
    "password_auth",
    "placement",
    "preempt_delay_seconds",
    "resources",
    "segment",
    "unicast_enabled",
    "update_strategy",
    "virtual_ips",
    "vrrp_interface",
    "vrrp_version",
}
"""Fields that choose neither a program nor a right nor a node of the pods."""
TEMPLATED = group("lb/edge", pod_template={"spec": {"priorityClassName": "x"}})
PERMITTED = PolicyOptions(templates=ALL_PERMITTED)


def conditional(new: KeepalivedGroup, old: KeepalivedGroup | None) -> list[str]:
    """The fields whose change needs the right to create DaemonSets."""
    review = Review(Operation.UPDATE if old else Operation.CREATE, new, old)
    found = policy.review(review, Snapshot(), options=PERMITTED)
    assert found.allowed
    return [each.field for each in found.conditional]


def test_each_field_needs_the_right_of_a_template_or_is_known_as_harmless() -> None:
    """A new field of groups is classified before it exists."""
    assert {each.name for each in msgspec.structs.fields(GroupSpec)} == HARMLESS | RUNS_IN_PODS.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("affinity", {"nodeAffinity": {}}),
        ("agent_image", "x"),
        ("allow_scripts", True),
        ("daemonset_pod_annotations", {"a": "b"}),
        ("image", "x"),
        ("node_selector", {"a": "b"}),
        ("service_account_name", "x"),
        ("tolerations", []),
        ("verbatim_config", {"vrrp_garp_master_refresh": "60"}),
    ],
)
def test_what_runs_beside_a_template_needs_the_right_too(name: str, value: Any) -> None:
    """With a template, and not without one."""
    changed = msgspec.structs.replace(TEMPLATED, spec=msgspec.structs.replace(TEMPLATED.spec, **{name: value}))
    assert conditional(changed, TEMPLATED) == [f"spec.{RUNS_IN_PODS[name]}"]
    assert conditional(group("lb/edge", **{name: value}), group("lb/edge")) == []


def test_a_template_of_lines_needs_the_right_too() -> None:
    """To come and to change; it runs no programs, so nothing else of the group does."""
    one, other = (group("lb/edge", config_template_ref=ConfigTemplateRef(name)) for name in ("one", "other"))
    assert conditional(one, None) == conditional(one, other) == ["spec.configTemplateRef"]
    assert conditional(group("lb/edge"), one) == conditional(one, one) == []
    spec = msgspec.structs.replace(one.spec, allow_scripts=True, image="x")
    assert conditional(msgspec.structs.replace(one, spec=spec), one) == []
    both = msgspec.structs.replace(TEMPLATED.spec, config_template_ref=one.spec.config_template_ref)
    assert conditional(msgspec.structs.replace(TEMPLATED, spec=both), TEMPLATED) == ["spec.configTemplateRef"]
    assert conditional(TEMPLATED, msgspec.structs.replace(TEMPLATED, spec=both)) == []
    fields = ["spec.podTemplate", "spec.configTemplateRef"]
    assert conditional(msgspec.structs.replace(TEMPLATED, spec=both), None) == fields


def test_a_template_needs_the_right_to_come_and_to_change() -> None:
    """To stay and to go it needs none, nor do other fields."""
    plain = group("lb/edge")
    assert conditional(TEMPLATED, None) == conditional(TEMPLATED, plain) == ["spec.podTemplate"]
    assert conditional(group("lb/edge", pod_template={}), TEMPLATED) == ["spec.podTemplate"]
    assert conditional(TEMPLATED, TEMPLATED) == conditional(plain, TEMPLATED) == []
    moved = msgspec.structs.replace(TEMPLATED, spec=msgspec.structs.replace(TEMPLATED.spec, metrics_port=9700))
    assert conditional(moved, TEMPLATED) == []
