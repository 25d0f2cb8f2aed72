"""
How long the plan of a whole group holds the event loop at once: part of ``python -m bench plan``.

A node lacks an interface: the conditions of all Services are compared. Or the masters of a node move to another one:
those of its VIPs are. The plan and each step of the comparison count on their own, because other keys get a turn
between them. The statuses of all Services are current. The two groups take turns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench.objects import GROUP, almost_full
from bench.reference import NAME, decoding
from bench.settled import NOW, Settled, settled
from bench.timing import flat, frozen, plain, timed
from kavip.reconcile.group.outdated import Outdated
from kavip.reconcile.group.reconcile import BegunPlan, begin_plan, compared
from kavip.reconcile.observed.agentstates import AgentStates, NodeState

CROWDS: Final = (100, 20_000)
MOST: Final = 1.5  # a step of 20,000 Services misses the caches of the CPU more often
TURNS: Final = 4

Change = Callable[[Settled, bool], Settled]
"""Changes something, or takes the change back."""


def table() -> None:
    """Print the table."""
    print("the longest step of a plan that compares all Services of a group")
    scenes, reference = [settled(almost_full(size)) for size in CROWDS], decoding()
    with frozen():
        for what, change in (("a node lacks an interface", interfaces), ("the VIPs of a node move", masters)):
            few, many = longest(scenes, change)
            plain(f"{what}, among {CROWDS[1]:,}", f"{many / reference():.0f} x {NAME}")
            flat(f"{what}, among {CROWDS[1]:,} / {CROWDS[0]}", few, many, most=MOST)


def longest(scenes: Sequence[Settled], change: Change) -> list[float]:
    """The seconds of the longest step in each of *scenes*: the least of several turns, so disturbances count less."""
    turns = [[max(steps(change(scene, flag))) for scene in scenes] for _ in range(TURNS) for flag in (True, False)]
    return [min(found) for found in zip(*turns, strict=True)]


def steps(scene: Settled) -> Iterator[float]:
    """The seconds of the plan of the group, and of each step of its comparison."""
    begun: list[BegunPlan] = []
    yield timed(lambda: begun.append(begin_plan(scene.snapshot, GROUP, now=NOW, observed=scene.observed)))
    comparison, found = iter(begun[0].comparison), list[Outdated]()
    while True:
        before = len(found)
        yield timed(lambda: found.extend(batch for batch in (next(comparison, None),) if batch is not None))
        if len(found) == before:
            break
    if record := begun[0].plan.record:
        scene.observed.records.groups[GROUP] = compared(record, Outdated.merge(found))


def interfaces(scene: Settled, flag: bool) -> Settled:
    """The first node lacks an interface, which no VIP needs."""
    states = scene.observed.agents.states_of(GROUP)
    node = min(states)
    changed = {**states, node: replace(states[node], missing=frozenset({"vlan20"}))}
    return _answered(scene, changed if flag else states)


def masters(scene: Settled, flag: bool) -> Settled:
    """The second node is master of the VIPs of the first one, too."""
    states = scene.observed.agents.states_of(GROUP)
    one, other = sorted(states)[:2]
    moved = {
        **states,
        one: replace(states[one], masters=frozenset()),
        other: replace(states[other], masters=states[other].masters | states[one].masters),
    }
    return _answered(scene, moved if flag else states)


def _answered(scene: Settled, states: Mapping[str, NodeState]) -> Settled:
    agents: AgentStates = replace(scene.observed.agents, states={GROUP: states})
    return Settled(scene.snapshot, replace(scene.observed, agents=agents))
