"""How far a node is drained, by the status of groups and Services."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition
from kavip.cli.views.drain import DrainProgress, progress_of, still_drained
from kavip.vrrp.drain import EXCLUDE_LABEL, OUT_OF_SERVICE
from tests.cli.views.test_status import group, instance, served
from tests.support import build

SAYS = "every pod is ready"
NODES = (build.node("n1", "192.0.2.11"), build.node("n2", "192.0.2.12"), build.node("n9", labels={"other": ""}))


def edge(holder: str = "n2", *, drained: Sequence[str] = ("n1",)) -> KeepalivedGroup:
    """A group on n1 and n2, with the node that holds the VIP of shop/web."""
    made = group(instance("shop/web", 7, holder), ids={"shop/web": 7}, node_selector={"kavip": ""})
    ready = [Condition(type=names.ConditionType.READY, status="True", reason="Ready", message=SAYS)]
    status = msgspec.structs.replace(made.status, drained_nodes=list(drained) or None, conditions=ready)
    return msgspec.structs.replace(made, status=status)


def progress(node: str, edge: KeepalivedGroup, *, reason: str = "Master", **more: Any) -> DrainProgress:
    """The progress of *node*."""
    nodes = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, labels={"kavip": ""}))
        if each.metadata.name != "n9"
        else each
        for each in NODES
    ]
    return progress_of([*nodes, edge, served("shop/web", "192.0.2.130", reason=reason, **more)], node)


def test_a_node_without_vips_is_drained() -> None:
    """Its group names it, and another node holds the VIP."""
    found = progress("n1", edge())
    assert (found.is_done, found.holders, list(found.lines())) == (True, {"192.0.2.130 shop/web": "n2"}, [])


def test_a_node_of_no_group_is_drained() -> None:
    """Other groups do not matter, nor VIPs of which nothing is known."""
    assert progress("n9", edge("", drained=()), reason="Unknown").is_done


@pytest.mark.parametrize(
    ("holder", "reason", "drained", "line"),
    [
        ("n1", "Master", ["n1"], "n1 still holds 192.0.2.130 shop/web"),
        ("", "Unknown", ["n1"], "n1 may hold 192.0.2.130 shop/web: the master is not known"),
        ("", "SplitBrain", ["n1"], "n1 may hold 192.0.2.130 shop/web: the master is not known"),
        (
            "n2",
            "Master",
            [],
            "n1 is not drained in lb/edge: no controller leads, or all nodes of the group are drained",
        ),
    ],
)
def test_what_is_left_to_do(holder: str, reason: str, drained: list[str], line: str) -> None:
    """The group says why."""
    found = progress("n1", edge(holder, drained=drained), reason=reason)
    assert not found.is_done
    assert list(found.lines()) == [line, f"KeepalivedGroup lb/edge: {SAYS}"]


def test_a_vip_that_follows_endpoints_says_so() -> None:
    """With policy Local the node with the only ready pod keeps the VIP."""
    found = progress("n1", edge("n1"), external_traffic_policy="Local")
    held, follows, _ = found.lines()
    assert held == "n1 still holds 192.0.2.130 shop/web"
    assert follows.startswith("externalTrafficPolicy: Local keeps 192.0.2.130 shop/web on the node with a ready pod: ")
    assert found.awaits_pods
    assert not progress("n1", edge("n1"), external_traffic_policy="Cluster").awaits_pods
    assert not progress("n1", edge("n1", drained=()), external_traffic_policy="Local").awaits_pods
    assert not progress("n1", edge("n2"), external_traffic_policy="Local").awaits_pods


def test_a_vip_without_a_master_is_on_no_node() -> None:
    """All agents answer, so the node does not hold it."""
    found = progress("n1", edge(""), reason="NoMaster")
    assert (found.is_done, found.holders) == (True, {"192.0.2.130 shop/web": ""})
    assert found.place_of("192.0.2.130 shop/web") == "on no node"


@pytest.mark.parametrize(("drained", "place"), [(["n1"], "on n2"), (["n1", "n2"], "on n2, which is drained too")])
def test_a_vip_on_a_drained_node_says_so(drained: list[str], place: str) -> None:
    """It is there because no other node can hold it."""
    assert progress("n1", edge(drained=drained)).place_of("192.0.2.130 shop/web") == place


def test_other_signals_are_named_after_the_annotation_is_gone() -> None:
    """A cordoned node, for example, is still drained by groups that drain on Cordon."""
    assert list(still_drained(NODES[0])) == []
    node = build.node("n2", labels={EXCLUDE_LABEL: ""}, taints=[f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"])
    cordoned = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    assert list(still_drained(cordoned)) == [
        "all groups still drain n2: it has the taint node.kubernetes.io/out-of-service",
        "groups with Cordon in spec.drainOn still drain n2: run kubectl uncordon n2",
        f"groups with ExcludeLabel in spec.drainOn still drain n2: it has the label {EXCLUDE_LABEL}",
    ]
