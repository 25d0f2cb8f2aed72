"""The cache of what groups own: the groups that a change concerns, and what is left of a group."""

import pytest

from kavip import names
from kavip.api.cluster import Pod
from kavip.api.event import Event, ObjectReference
from kavip.api.meta import Metadata
from kavip.api.workload import ConfigMap, DaemonSet
from kavip.reconcile.observed.objects import Owned, OwnedObjects


def labelled(group: str) -> Metadata:
    """An object with the label of *group*."""
    return Metadata(name="edge", namespace="lb", uid="u", labels={names.GROUP_LABEL: group})


def event(group: str) -> Event:
    """An Event of the DaemonSet of *group*."""
    about = ObjectReference(kind="DaemonSet", namespace="lb", name=group)
    return Event(metadata=Metadata(name=f"event-{group}", namespace="lb"), regarding=about)


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        (Pod(metadata=labelled("b")), Pod(metadata=labelled("a")), ("lb/a", "lb/b")),
        (Pod(metadata=labelled("b")), None, ("lb/b",)),
        (Pod(metadata=labelled("")), None, ()),
        (ConfigMap(metadata=labelled("edge")), ConfigMap(metadata=labelled("a")), ("lb/a", "lb/edge")),
        (DaemonSet(metadata=labelled("b")), DaemonSet(metadata=labelled("a")), ("lb/a", "lb/b", "lb/edge")),
    ],
)
def test_a_change_concerns_the_groups_before_and_after(old: Owned, new: Owned | None, groups: tuple[str, ...]) -> None:
    """The one that loses the object too, and the one that finds a ConfigMap or a DaemonSet by its name."""
    objects = OwnedObjects()
    objects.store(None, old)
    assert objects.store(old, new) == groups


def test_nothing_is_left_of_groups_without_objects() -> None:
    """Any user may label pods with any number of names."""
    objects = OwnedObjects()
    for number in range(100):
        for each in (Pod(metadata=labelled(f"g{number}")), event(f"g{number}")):
            objects.store(None, each)
            objects.store(each, each)
            assert len(objects.pods) + len(objects.failures) == 1
            objects.store(each, None)
    assert (objects.pods, objects.failures) == ({}, {})
