"""An announced switch of many nodes is called off: each node learns it at once, or it would switch alone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from kavip import names
from kavip.reconcile.group.annotations import BURST, INTERVAL
from kavip.reconcile.plan import Allowance, GroupPlan, PodAnnotation
from kavip.reconcile.rollout import switchover
from tests.reconcile.group.settledgroup import serving
from tests.reconcile.rollout.switchingnodes import MULTICAST, OTHER, SECOND, UNICAST, Site, is_done
from tests.reconcile.simulatedcluster import GROUP, NOW

NODES = BURST + 10
FROZEN = switchover.FROZEN + NODES * INTERVAL
"""Seconds before the instant from which on other changes wait."""
USED_UP = Allowance(10 * BURST)
"""No pod may be annotated for half a minute."""


def announced() -> Site:
    """Many nodes, all of which have read that they switch soon."""
    site = Site.of(nodes=NODES, **MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.published.switch_at and len(annotations(site)) == 1)
    return site


def use_up(site: Site) -> None:
    """Let the controller annotate no more pods."""
    at = (site.simulation.now - NOW).total_seconds()
    site.simulation.records.pod_allowance = replace(USED_UP, at=at)


def annotations(site: Site) -> set[str]:
    """The annotations of all pods."""
    pods = site.simulation.objects.pods[GROUP].values()
    return {each.metadata.annotation(names.CONFIG_HASH_ANNOTATION) for each in pods}


def refuse(site: Site) -> None:
    """A node cannot prepare any more."""
    site.nodes[1].refuses = "no"


def revert(site: Site) -> None:
    """The edit that all nodes would switch for is reverted."""
    site.edit(**MULTICAST)


def edit_again(site: Site) -> None:
    """Another switch is wanted, which no node has prepared."""
    site.edit(**SECOND)


def lose(site: Site) -> None:
    """Somebody deletes the ConfigMap."""
    del site.simulation.objects.configmaps[GROUP]


@pytest.mark.parametrize(
    ("change", "left"), [(refuse, FROZEN), (revert, FROZEN), (lose, FROZEN), (edit_again, FROZEN + 2.0)]
)
def test_all_pods_are_annotated_at_once(change: Callable[[Site], None], left: float) -> None:
    """In time, even if that is more than a burst, and others have used it up."""
    site = announced()
    site.until(lambda: site.seconds_left < left - 0.1)
    instant, before = site.switch_at, annotations(site)
    change(site)
    use_up(site)
    site.simulation.group()
    site.until(lambda: site.published.switch_at != instant)
    assert site.simulation.now + timedelta(seconds=switchover.TOO_LATE) < instant
    assert len(annotations(site)) == 1
    assert annotations(site) != before


def count(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[PodAnnotation]:
    """The annotations from now on."""
    sent, carry_out = list[PodAnnotation](), site.simulation._carry_out

    def counted(plan: GroupPlan) -> None:
        sent.extend(each for each in plan.writes if isinstance(each, PodAnnotation))
        carry_out(plan)

    monkeypatch.setattr(site.simulation, "_carry_out", counted)
    return sent


def add_service(site: Site, number: int) -> None:
    """Change what all nodes run."""
    site.simulation.snapshot.put(serving(f"shop/new-{number}", f"192.0.2.{201 + number}"))


def called_off() -> Site:
    """The edit has just been reverted, and all pods are annotated for it."""
    site = announced()
    revert(site)
    site.simulation.group()
    return site


def most(seconds: float) -> float:
    """How many pods may be annotated in *seconds*."""
    return BURST + seconds / INTERVAL


def test_only_pods_that_do_not_know_it_are_annotated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services may change all the time meanwhile."""
    site = called_off()
    sent = count(site, monkeypatch)
    for number in range(10):
        add_service(site, number)
        site.tick()
    assert NODES < len(sent) <= most(10.0)


def test_pods_that_have_just_been_annotated_may_answer_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their agents report the former instant for as long as kubelet needs."""
    site = called_off()
    sent = count(site, monkeypatch)
    for number in range(6):
        site.simulation.later(0.25)
        add_service(site, number)
        for _ in range(2):
            site.simulation.group()
    assert len(sent) <= most(1.5)


def test_another_switch_waits_for_one_that_is_near() -> None:
    """Otherwise changes that follow each other would call each switch off, and none would ever happen."""
    site = announced()
    site.until(lambda: site.seconds_left < FROZEN - 0.1)
    instant = site.switch_at
    edit_again(site)
    site.until(lambda: site.simulation.now > instant)
    assert all(node.runs and "unicast_peer" in node.runs.text for node in site.nodes)
    site.until(lambda: is_done(site))
    assert not any(node.runs and "unicast_peer" in node.runs.text for node in site.nodes)


def test_pods_whose_annotation_fails_are_annotated_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server may be slow just then."""
    site = announced()
    instant, before = site.switch_at, annotations(site)
    revert(site)
    use_up(site)
    simulation, failed = site.simulation, list[PodAnnotation]()
    carry_out = simulation._carry_out

    def fail_once(plan: GroupPlan) -> None:
        sent = [each for each in plan.writes if isinstance(each, PodAnnotation)]
        if sent and not failed:
            failed.extend(sent)
            plan = replace(plan, writes=tuple(each for each in plan.writes if each not in sent))
        carry_out(plan)

    monkeypatch.setattr(simulation, "_carry_out", fail_once)
    simulation.group()
    assert (site.published.switch_at, len(failed)) == (None, NODES)
    assert instant > simulation.now
    assert annotations(site) == before
    simulation.group()
    assert len(annotations(site)) == 1
    assert annotations(site) != before


def test_others_need_not_wait_for_what_went_at_once() -> None:
    """The API server has carried it out: it has no load left from it."""
    site = called_off()
    assert site.published.switch_at is None
    assert site.simulation.records.pod_allowance.spent <= BURST


def test_a_change_that_not_all_nodes_can_prepare_in_time_waits() -> None:
    """It would only call the switch off. The more pods are to be annotated for it, the earlier it waits."""
    site = announced()
    site.until(lambda: site.seconds_left < FROZEN - 0.1)
    before = site.published
    site.simulation.snapshot.put(serving("shop/new", OTHER))
    site.tick()
    assert site.seconds_left > switchover.FROZEN
    assert site.published == before
    site.until(lambda: is_done(site))
    assert all(node.runs and OTHER in node.runs.text for node in site.nodes)
    assert not site.published.aborts
