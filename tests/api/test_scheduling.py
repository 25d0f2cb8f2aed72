"""Where the pods of a DaemonSet may be."""

from typing import Any

import pytest

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.api.scheduling import placement_fields, placement_key, placement_of
from tests.support import build

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


def admits(node: Node, **spec: Any) -> bool:
    """Whether a group of *spec* has a pod on *node*."""
    placement = placement_of(GroupSpec(**spec))
    return placement.fits(node) and placement.admits(node)


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """An affinity that a node must satisfy one term of."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def wants(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A term of one requirement on labels."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@pytest.mark.parametrize(
    ("tolerations", "is_admitted"),
    [
        (None, True),  # kavip's pods tolerate everything where the group says nothing
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "dedicated", "operator": "Exists"}], True),
        ([{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}], True),
        ([{"key": "dedicated", "operator": "Equal", "value": "db"}], False),
        ([{"key": "dedicated", "operator": "", "value": "gpu"}], True),
        ([{"key": "other", "operator": "Exists"}, {"key": "dedicated", "value": "gpu"}], True),
        ([{"value": "gpu"}], False),  # a key may be left out only with Exists
        ([{"key": 1}], False),
    ],
)
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(tolerations: Any, is_admitted: bool) -> None:
    """Key, value and effect have to fit; an empty list tolerates nothing."""
    assert admits(build.node("n1", taints=["dedicated=gpu:NoSchedule"]), tolerations=tolerations) is is_admitted


def test_every_taint_counts_but_those_that_only_prefer() -> None:
    """One that is not tolerated is enough."""
    tolerations = [{"key": CONTROL_PLANE, "operator": "Exists"}]
    assert admits(build.node("n1", taints=[f"{CONTROL_PLANE}:NoSchedule"]), tolerations=tolerations)
    assert not admits(build.node("n1", taints=[f"{CONTROL_PLANE}:NoSchedule", "x:NoExecute"]), tolerations=tolerations)
    assert admits(build.node("n1", taints=["x=y:PreferNoSchedule"]), tolerations=[])


@pytest.mark.parametrize(
    "taint",
    ["unschedulable:NoSchedule", "network-unavailable:NoSchedule", "not-ready:NoExecute", "unreachable:NoExecute"],
)
def test_cordoned_and_failing_nodes_keep_their_pods(taint: str) -> None:
    """The pods of a DaemonSet tolerate what the cluster itself says of a node, whatever their template says."""
    assert admits(build.node("n1", taints=[f"node.kubernetes.io/{taint}"]), tolerations=[])


def test_a_pod_that_is_there_stays_but_where_it_is_evicted() -> None:
    """NoSchedule evicts no pod."""
    placement = placement_of(GroupSpec(tolerations=[]))
    assert placement.keeps(build.node("n1", taints=["x:NoSchedule"]))
    assert not placement.keeps(build.node("n1", taints=["x:NoExecute"]))


@pytest.mark.parametrize(
    ("terms", "is_admitted"),
    [
        ([wants(EXCLUDED, "DoesNotExist")], True),
        ([wants("zone", "In", "a", "b")], True),
        ([wants("zone", "NotIn", "a")], False),
        ([wants("zone", "In", "b"), wants("rank", "Gt", "3")], True),
        ([wants("rank", "Lt", "5")], False),
        ([wants("zone", "Gt", "1")], False),
        (
            [{"matchExpressions": [*wants("zone", "In", "a")["matchExpressions"], {"key": "x", "operator": "Exists"}]}],
            False,
        ),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}], False),
        ([{}], False),
    ],
)
def test_required_node_affinity_picks_nodes(terms: list[dict[str, Any]], is_admitted: bool) -> None:
    """One term has to hold, and in it every requirement; an empty one holds nowhere."""
    node = build.node("n1", labels={"zone": "a", "rank": "5"})
    assert admits(node, affinity=required(*terms)) is is_admitted
    assert not admits(node, affinity=required(*terms), node_selector={"zone": "b"})


def test_what_is_only_preferred_picks_nothing() -> None:
    """Such terms, terms about pods and invalid terms exclude no node."""
    node = build.node("n1")
    assert admits(node, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}})
    assert admits(node, affinity={"podAntiAffinity": {}})
    assert admits(node, affinity={"nodeAffinity": "x"})


def test_an_excluded_node_is_left_out_by_affinity() -> None:
    """The label that other load balancers heed, as a group says it."""
    spec = {"affinity": required(wants(EXCLUDED, "DoesNotExist"))}
    assert [admits(build.node("n1", labels=labels), **spec) for labels in (None, {EXCLUDED: ""})] == [True, False]


def test_groups_of_one_place_share_it() -> None:
    """The key is that of the content; messages name the fields that say something."""
    one, same, other = (GroupSpec(tolerations=[{"key": key}]) for key in ("a", "a", "b"))
    assert placement_key(one) == placement_key(same) != placement_key(other) != placement_key(GroupSpec())
    assert placement_fields(GroupSpec()) == "spec.nodeSelector"
    assert (
        placement_fields(GroupSpec(tolerations=[], affinity={"x": 1}))
        == "spec.nodeSelector or spec.affinity or spec.tolerations"
    )
