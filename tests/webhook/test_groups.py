"""What is asked of a KeepalivedGroup beside the cases of the table."""

from tests.build import group, node
from tests.webhook.judging import create, update


def test_an_old_group_may_be_edited_elsewhere() -> None:
    """A flaw that keepalived-operator let pass stays until its own field is edited."""
    old = group("lb/old", interface="much-too-long-a-name", verbatim_config={"notify": "x"})
    new = group("lb/old", interface="much-too-long-a-name", verbatim_config={"notify": "x"}, unicast_enabled=True)
    assert update(old, new).allowed
    touched = group("lb/old", interface="much-too-long-a-name!", verbatim_config={"notify": "x"})
    assert [refusal.field for refusal in update(old, touched).refusals] == ["spec.interface"]


def test_a_selector_without_nodes_is_told() -> None:
    """A group that no node serves is accepted with a warning, unless no node is known at all."""
    asked = group("lb/edge", node_selector={"role": "edge"})
    assert create(asked, node("n1", "192.0.2.1")).warnings == (
        "spec.nodeSelector: selects no node; no VIP of this group will answer",
    )
    assert create(asked).warnings == ()


def test_the_default_group_may_be_edited() -> None:
    """The one default group is no second one."""
    only = group("lb/edge", default=True)
    assert update(only, group("lb/edge", default=True, unicast_enabled=True)).allowed
