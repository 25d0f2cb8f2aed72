"""The nodes of a group: computed once for a stored group, and not kept for a reviewed one."""

import pytest

from kavip.api.cluster import Node
from kavip.api.group import GroupSpec
from kavip.api.scheduling import Placement, placement_of
from kavip.snapshot import Snapshot
from tests.support import build


def test_nodes_of_a_reviewed_group_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a stored group are computed once; those of a spec that a client sends, each time."""
    computed: list[GroupSpec] = []

    def counting(spec: GroupSpec) -> Placement:
        computed.append(spec)
        return placement_of(spec)

    monkeypatch.setattr("kavip.snapshot.placement.placement_of", counting)
    stored = build.group("lb/edge", affinity={"a": "stored"})
    snapshot = Snapshot.from_objects([stored, build.node("n1")])
    reviewed = [build.group("lb/edge", affinity={"a": "x"}), build.group("lb/new", affinity={"a": "x"})]
    for group in (stored, *reviewed, stored, *reviewed):
        assert [node.metadata.name for node in snapshot.group_nodes(group)] == ["n1"]
    assert [spec.affinity for spec in computed] == [{"a": "stored"}, *[{"a": "x"}] * 4]


def test_selector_and_affinity_are_compared_once_with_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many questions follow from the result."""
    compared: list[str] = []
    fits = Placement.fits

    def counting(self: Placement, node: Node) -> bool:
        compared.append(node.metadata.name)
        return fits(self, node)

    monkeypatch.setattr(Placement, "fits", counting)
    stored = build.group()
    snapshot = Snapshot.from_objects([stored, build.node("n1"), build.node("n2")])
    assert len(snapshot.group_nodes(stored)) == len(snapshot.keeping_nodes(stored)) == 2
    assert compared == ["n1", "n2"]
