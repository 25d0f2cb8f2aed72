"""
What the ready nodes of one group report, arranged by what is rare, so that a Service costs the same on few and many.

Most nodes run the same VIPs, and few exclude an instance, lack an interface or fail to route: the conditions of a
Service read only these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kavip.api.address import Address
from kavip.memo import Memory
from kavip.reconcile.observed.agentstates import NodeState

Nodes = Sequence[tuple[str, NodeState]]


@dataclass(frozen=True, slots=True)
class ReadyNodes:
    """
    The ready nodes of a group: their *names*, and the last answers of their agents.

    *unreported*: those that have never answered. *running*: the sets of VIPs that the others run, each once, with the
    nodes that run it. *excluding*: those that exclude an instance; *lacking*: those that lack an interface; *failing*:
    those that fail to route replies.
    """

    names: tuple[str, ...] = ()
    unreported: Sequence[str] = ()
    running: Sequence[tuple[frozenset[Address], Sequence[str]]] = ()
    excluding: Nodes = ()
    lacking: Nodes = ()
    failing: Nodes = ()

    @classmethod
    def of(cls, names: tuple[str, ...], states: Mapping[str, NodeState], memory: Memory) -> "ReadyNodes":
        """Those with *names*, by the answers *states*; *memory*: of the group."""
        return memory.last(_arranged, "", names, states)

    def without(self, vips: frozenset[Address], left_out: Iterable[str]) -> Sequence[str]:
        """The nodes that do not run all *vips*, except those that are *left_out* of them; in the order of the names."""
        found = {node for run, nodes in self.running if not vips <= run for node in nodes}.union(self.unreported)
        found.difference_update(left_out)
        return [name for name in self.names if name in found] if found else ()


def _arranged(names: tuple[str, ...], states: Mapping[str, NodeState]) -> ReadyNodes:
    answered = [(name, state) for name in names if (state := states.get(name)) is not None]
    running: dict[int, tuple[frozenset[Address], list[str]]] = {}
    for name, state in answered:
        running.setdefault(id(state.runs), (state.runs, []))[1].append(name)  # equal answers share one set
    return ReadyNodes(
        names,
        tuple(name for name in names if name not in states),
        tuple(running.values()),
        excluding=tuple(each for each in answered if each[1].excluded),
        lacking=tuple(each for each in answered if each[1].missing),
        failing=tuple(each for each in answered if each[1].fails_to_route),
    )
