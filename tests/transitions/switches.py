"""Switches of a live group: what its ConfigMap publishes, and waiting until all nodes have made a change."""

from hack.testbed import process
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of
from kavip.snapshot import Object
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.livegroup import LiveGroup


def published(live: LiveGroup) -> PublishedRevisions:
    """The revisions in the ConfigMap."""
    found = read_published(
        live.simulation.objects.configmaps[GROUP], settings_of(live.simulation.snapshot.groups[GROUP])
    )
    assert found is not None
    return found


def switched(live: LiveGroup) -> bool:
    """Run one round; return whether all nodes run what is published and no switch is pending."""
    return live.step() and published(live).next is None


def switch(live: LiveGroup, *objects: Object) -> tuple[Revision, Revision]:
    """Write *objects*, and wait until all nodes have switched; the revisions before and after."""
    old = published(live).current
    for each in objects:
        live.simulation.snapshot.put(each)
    process.wait_for(
        "all nodes switch",
        lambda: switched(live) and published(live).current != old,
        timeout=PATIENCE,
        interval=0.05,
    )
    return old, published(live).current
