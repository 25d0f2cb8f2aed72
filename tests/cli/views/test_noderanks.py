"""``kavip explain``: in which order the nodes hold the VIPs of a Service."""

import msgspec
import pytest

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import GroupPlacement, GroupStatus, KeepalivedGroup, PreferredNodes
from kavip.cli.views.noderanks import ranks_of, sentence
from kavip.snapshot import Snapshot
from tests.support.build import group, node, service
from tests.vrrp.samples import shared

FAST = GroupPlacement(preferred=[PreferredNodes(weight=80, node_selector={"uplink": "fast"})])
PREFERS = {names.PREFERRED_NODES_ANNOTATION: "rack=b"}
OUT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
NODES = [
    node("n1", labels={"uplink": "fast"}),
    node("n2", labels={"uplink": "fast", "rack": "b"}),
    node("n3"),
    node("n4"),
    node("n5", labels={"uplink": "fast"}, taints=(OUT,)),
    node("n6", taints=(OUT,)),
]


def told(found: KeepalivedGroup, *nodes: Node, annotations: dict[str, str] | None = None) -> str:
    """The ranks of *nodes* for a Service with *annotations*, in words."""
    subject = service("shop/web", group=found.key, annotations=annotations or {})
    return sentence(ranks_of(subject, found, Snapshot.from_objects([found, subject, *nodes])))


def test_nodes_of_equal_rank() -> None:
    """Without preferences and drains kavip chooses among all nodes."""
    assert told(group(), *NODES[:4]) == "n1 or n2 or n3 or n4"
    assert told(group()) == ""


def test_preferred_and_drained_nodes() -> None:
    """The choice of the Service counts before the weights, and of drained nodes the last one is the first."""
    found = msgspec.structs.replace(group(placement=FAST), status=GroupStatus(drained_nodes=["n5", "n6"]))
    assert told(found, *NODES, annotations=PREFERS) == (
        "n2 (preferred by the Service, weight 80), then n1 (weight 80), then n3 or n4, then n6 "
        "(drained: node.kubernetes.io/out-of-service), then n5 (weight 80, drained: node.kubernetes.io/out-of-service)"
    )


@pytest.mark.parametrize(("spread", "first"), [("false", "n1 or n2"), ("true", "n2")])
def test_a_service_with_shared_instances_prefers_nothing(spread: str, first: str) -> None:
    """Only instances of its own have an order of their own."""
    notes = {**PREFERS, names.SPREAD_ANNOTATION: spread}
    assert told(group(instances=shared(2)), *NODES[:2], annotations=notes).partition(" (")[0] == first
