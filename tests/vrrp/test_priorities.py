"""The node that leads each instance: rendezvous hashing."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp.priorities import BOTTOM, STEP_DOWN, TOP, UNLISTED, priorities

INSTANCES = st.sampled_from([f"lb/edge shop/s{number}" for number in range(50)])
NODES = st.lists(st.sampled_from([f"n{number}" for number in range(300)]), unique=True, min_size=1, max_size=100)


def ranked(instance: str, nodes: list[str]) -> list[str]:
    """*nodes*, the leader first."""
    drawn = dict(priorities(instance, nodes))
    return sorted(nodes, key=lambda node: -drawn[node])


@given(INSTANCES, NODES)
def test_distinct_in_the_band(instance: str, nodes: list[str]) -> None:
    """Up to a hundred nodes have distinct priorities, all in the band, above a node that is not listed."""
    drawn = [priority for _, priority in priorities(instance, nodes)]
    assert len(set(drawn)) == len(nodes)
    assert all(UNLISTED < BOTTOM <= priority <= TOP for priority in drawn)


@pytest.mark.slow
@given(INSTANCES, NODES, st.randoms(use_true_random=False))
def test_order_of_nodes_does_not_matter(instance: str, nodes: list[str], random: Random) -> None:
    """The order of the nodes has no effect."""
    shuffled = list(nodes)
    random.shuffle(shuffled)
    assert priorities(instance, nodes) == priorities(instance, shuffled)


@given(INSTANCES, NODES, st.sets(st.sampled_from([f"x{number}" for number in range(20)])))
def test_order_of_two_does_not_depend_on_a_third(instance: str, nodes: list[str], joined: set[str]) -> None:
    """When nodes join or leave, the remaining nodes keep their order."""
    after = ranked(instance, [*nodes, *joined])[:STEP_DOWN]
    assert [node for node in after if node in nodes] == [node for node in ranked(instance, nodes) if node in after]


@given(INSTANCES, NODES.filter(lambda nodes: len(nodes) < STEP_DOWN))
def test_old_and_new_text_agree(instance: str, nodes: list[str]) -> None:
    """While one joining or leaving node rolls out, no node with one text outranks another that leads it."""
    before, after = dict(priorities(instance, nodes)), dict(priorities(instance, [*nodes, "joined"]))
    assert all(abs(before[node] - after[node]) <= 1 for node in nodes)
    for higher, lower in pairwise(ranked(instance, nodes)):
        assert min(before[higher], after[higher]) >= max(before[lower], after[lower])


def test_priorities_of_few_nodes_are_stable() -> None:
    """When a fourth node joins three, nearly all of their priorities stay the same."""
    moved = sum(
        before != dict(priorities(f"a/s{number}", ["n1", "n2", "n3", "n4"]))[node]
        for number in range(1000)
        for node, before in priorities(f"a/s{number}", ["n1", "n2", "n3"])
    )
    assert moved < 60  # of 3,000


def test_spread() -> None:
    """Leaders, and the nodes that take over from a dead leader, are spread over the nodes."""
    nodes = [f"n{number}" for number in range(5)]
    order = [ranked(f"a/s{number}", nodes) for number in range(1000)]
    leaders = Counter(first for first, *_ in order)
    heirs = Counter(second for first, second, *_ in order if first == "n0")
    assert min(leaders.values()) > 150
    assert min(heirs.values()) > leaders["n0"] / 4 * 0.6


def test_more_than_a_hundred() -> None:
    """Nodes behind the hundredth share the lowest priority; the first hundred stay distinct."""
    drawn = Counter(priority for _, priority in priorities("a/web", [f"n{number}" for number in range(250)]))
    assert drawn[BOTTOM] == 151
    assert len(drawn) == STEP_DOWN


def test_a_new_node_takes_over_only_what_it_leads() -> None:
    """Instances that a new node does not lead keep their leader."""
    nodes = [f"n{number}" for number in range(4)]
    taken = 0
    for number in range(300):
        before, after = ranked(f"a/s{number}", nodes)[0], ranked(f"a/s{number}", [*nodes, "new"])[0]
        assert after in (before, "new")
        taken += after == "new"
    assert 30 < taken < 90
