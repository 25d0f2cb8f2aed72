"""The pools and groups of the chart's values: what is read, what stands in the way, and what is merged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.errors import BadInput, Conflict, Forbidden, Rejected, Unavailable
from kavip.names import Reason
from kavip.reconcile import chartvalues
from kavip.reconcile.chartvalues import MAX_ENTRIES, Wanted
from kavip.reconcile.observed.operator import WritesBlocked

POOL = {"name": "lan", "spec": {"addresses": ["192.0.2.0/28"]}}
GROUP = {"name": "edge", "namespace": "lb", "labels": {"a": "b"}, "spec": {"interface": "eth0"}}


def read(**values: Any) -> list[Wanted]:
    """The objects of *values*."""
    return list(chartvalues.read(json.dumps(values)))


def problem(**values: Any) -> str:
    """Why the one object of *values* cannot be applied."""
    (found,) = read(**values)
    return found.problem


def test_pools_come_before_groups() -> None:
    """A VIP of a group must not be in a pool that comes later, so pools are applied first."""
    pool, group = read(revision="1", groups=[GROUP], pools=[POOL])
    assert (pool.kind, pool.key, pool.path) == (names.VIP_POOL, "lan", "pools[0]")
    assert (group.kind, group.key, group.path) == (names.KEEPALIVED_GROUP, "lb/edge", "groups[0]")
    assert group.body == {"metadata": {"labels": {"a": "b"}, "annotations": {}}, "spec": {"interface": "eth0"}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pools": [{**POOL, "nme": 1}]}, "pools[0].nme: unknown field; want name, namespace, labels"),
        ({"pools": [{"spec": {}}]}, "pools[0]: Object missing required field `name`"),
        ({"pools": [{**POOL, "labels": {"a": 1}}]}, "pools[0].labels[...]: Expected `str`, got `int`"),
        ({"pools": [{**POOL, "namespace": "lb"}]}, "pools[0].namespace: 'lb': a VIPPool has none; remove it"),
        ({"groups": [{**GROUP, "namespace": ""}]}, "groups[0].namespace: '': want the namespace of the group"),
        (
            {"groups": [{**GROUP, "spec": {"interface": "eth0", "virtualIPs": [{"adress": "192.0.2.1"}]}}]},
            "groups[0].spec.virtualIPs[0].adress: unknown field; did you mean address?",
        ),
        (
            {"groups": [{**GROUP, "spec": {"interface": "eth0", "podTemplate": {}}}]},
            "groups[0].spec.podTemplate: kavip would set it with its own rights; create this group with kubectl",
        ),
        (
            {"groups": [{**GROUP, "spec": {"interface": "eth0", "configTemplateRef": {"name": "t"}}}]},
            "groups[0].spec.configTemplateRef: kavip would set it with its own rights",
        ),
    ],
)
def test_a_malformed_entry_is_named_by_its_path(values: dict[str, Any], message: str) -> None:
    """The problem begins with the path of the field."""
    assert problem(**values).startswith(message)


def test_one_bad_entry_does_not_stop_the_others() -> None:
    """Duplicates and entries over the limit have problems of their own."""
    pools = [POOL, POOL, *({**POOL, "name": f"p{number}"} for number in range(MAX_ENTRIES))]
    found = read(pools=pools)
    assert len(found) == MAX_ENTRIES + 1
    assert [each.problem for each in found if each.problem] == [
        "pools[1].name: 'lan' is pools[0] already",
        f"pools: {MAX_ENTRIES + 2} entries; want at most {MAX_ENTRIES}",
    ]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pool": []}', '{"pools": 1}', "[" * 100_000, '{"pools": [{"name":'])
def test_values_that_are_none_are_one_error(text: str) -> None:
    """It names the key of the ConfigMap and the remedy."""
    with pytest.raises(BadInput, match=r"values\.json: .*run helm upgrade"):
        chartvalues.read(text)


def state(wanted: Wanted, *, blocked: WritesBlocked | None = None) -> tuple[str, str]:
    """Reason and message of *wanted* without a request, in a cluster with the namespace lb."""
    found = chartvalues.state(wanted, None, values="1", namespaces={"lb"}, blocked=blocked)
    return (found.reason, found.message) if found else ("", "")


def test_obstacles_need_no_request() -> None:
    """A missing namespace, keepalived-operator and a malformed entry are known before."""
    (group,) = read(groups=[GROUP])
    (elsewhere,) = read(groups=[{**GROUP, "namespace": "web"}])
    assert state(group) == ("", "")
    assert state(elsewhere) == (
        Reason.NAMESPACE_NOT_FOUND,
        "groups[0].namespace: 'web' does not exist; run kubectl create namespace web",
    )
    assert state(group, blocked=WritesBlocked(("Deployment a/b",)))[0] == Reason.OLD_OPERATOR_RUNNING
    (bad,) = read(pools=[{**POOL, "namespace": "lb"}])
    assert state(bad)[0] == Reason.INVALID


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Rejected(422, "Invalid", "spec: bad"), Reason.REFUSED),
        (Forbidden(403, "Forbidden", "no"), Reason.REFUSED),
        (Unavailable(500, "InternalError", "failed calling webhook"), Reason.PENDING),
        (Conflict(409, "Conflict", "changed"), Reason.PENDING),
        (BadInput("key", "a/b", "want a name"), Reason.INVALID),
    ],
)
def test_a_refusal_is_told_from_an_outage(error: Any, reason: Reason) -> None:
    """What the webhook cannot answer yet is Pending; the message names the entry."""
    (pool,) = read(pools=[POOL])
    found = chartvalues.failure(pool, error)
    assert (found.status, found.reason) == ("False", reason)
    assert found.message.startswith("pools[0]: ")


def test_conditions_follow_the_values() -> None:
    """A condition is True for the values that it was written for, and keeps its time while its status stays."""
    (pool,) = read(pools=[POOL])
    first = chartvalues.conditions({pool.entry: chartvalues.APPLIED}, {}, values="1", now="t1")
    again = chartvalues.conditions({pool.entry: chartvalues.APPLIED}, first, values="2", now="t2")
    assert again[pool.entry].last_transition_time == "t1"
    assert chartvalues.are_settled(again.values())
    stored = chartvalues.stored(json.dumps([wire(each) for each in again.values()]))
    assert stored == again
    for values, applied in (("2", True), ("3", False)):
        found = chartvalues.state(pool, stored[pool.entry], values=values, namespaces=(), blocked=None)
        assert (found == chartvalues.APPLIED) is applied
    waiting = chartvalues.conditions({pool.entry: chartvalues.unsent(pool, None)}, again, values="3", now="t3")
    assert (waiting[pool.entry].reason, waiting[pool.entry].last_transition_time) == (Reason.PENDING, "t3")
    assert not chartvalues.are_settled(waiting.values())


def wire(condition: Any) -> dict[str, str]:
    """A condition as the annotation has it."""
    return {
        "kind": condition.kind,
        "name": condition.name,
        "namespace": condition.namespace,
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observed": condition.observed,
        "lastTransitionTime": condition.last_transition_time,
    }


@pytest.mark.parametrize("annotation", ["", "{", "{}", '[{"kind": 1}]', "[" * 100_000])
def test_an_annotation_that_others_wrote_counts_as_none(annotation: str) -> None:
    """Everything is applied again."""
    assert chartvalues.stored(annotation) == {}


ITEMS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)


@given(wanted=st.dictionaries(st.sampled_from("xyz"), ITEMS), others=st.dictionaries(st.sampled_from("xyz"), ITEMS))
def test_the_surplus_patch_leaves_the_lists_of_the_values(wanted: dict[str, Any], others: dict[str, Any]) -> None:
    """After server-side apply and the patch, each list of the values has its items, and other lists stay."""
    keys = wanted.keys() | others.keys()
    merged = {key: [*{**dict.fromkeys(others.get(key, [])), **dict.fromkeys(wanted.get(key, []))}] for key in keys}
    patch = chartvalues.surplus({"spec": wanted, "a": 1}, {"spec": merged, "a": 2})
    after = merged | patch.get("spec", {})
    assert {key: sorted(after[key]) for key in wanted} == {key: sorted(items) for key, items in wanted.items()}
    assert {key: after[key] for key in keys - wanted.keys()} == {key: merged[key] for key in keys - wanted.keys()}
    assert set(patch) <= {"spec"}
