"""
Remembers which Services of a group are served and report it, so that a comparison skips them.

They are remembered until their object changes, a node reports a change of their VIPs, or the circumstances change. Each
share of the members is remembered on its own: a comparison that ends early leaves those that it has not reached as they
were. The Snapshot keeps this memory (:mod:`kavip.memo`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.group import GroupSpec
from kavip.api.service import Service
from kavip.memo import change_of
from kavip.reconcile.observed.agentstates import NO_STATES, ExcludedInstance, NodeState
from kavip.reconcile.service.vips import ServingGroup
from kavip.snapshot.membership import part_of


class Circumstances(NamedTuple):
    """
    What conditions depend on, besides the Service, its problem, and the agents' answers about its VIPs.

    *spec*: of the group; None: it does not exist. *labels*: those of the nodes. *has_whole*: whether a ready node has
    all interfaces. *excluded*, *missing*, *routed*: only of the ready nodes that have any, or fail to route. *unready*:
    of each node that has answered.
    """

    spec: GroupSpec | None
    allowed: tuple[str, ...] | None
    labels: tuple[tuple[str, Mapping[str, str]], ...]
    has_whole: bool
    excluded: tuple[tuple[str, tuple[ExcludedInstance, ...]], ...]
    missing: tuple[tuple[str, frozenset[str]], ...]
    routed: tuple[tuple[str, frozenset[str]], ...]
    unready: tuple[tuple[str, frozenset[str]], ...]

    @classmethod
    def of(cls, serving: ServingGroup) -> "Circumstances":
        """Those of a group as it serves now."""
        ready = serving.ready
        return cls(
            serving.group.spec if serving.group else None,
            allowed_namespaces(serving),
            labels_of(serving),
            len(ready.names) > len(ready.lacking),
            tuple((node, state.excluded) for node, state in ready.excluding),
            tuple((node, state.missing) for node, state in ready.lacking),
            tuple((node, state.routed) for node, state in ready.failing),
            tuple((node, state.unready) for node, state in sorted(serving.states.items())),
        )


def allowed_namespaces(serving: ServingGroup) -> tuple[str, ...] | None:
    """The namespaces that the group allows now; None: all of them."""
    group, snapshot = serving.group, serving.snapshot
    if group is None or group.spec.allowed_namespaces is None:
        return None
    return tuple(sorted(name for name in snapshot.namespaces if snapshot.allows(group, name)))


def labels_of(serving: ServingGroup) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """The labels of the nodes of the group now, by node."""
    nodes = serving.snapshot.group_nodes(serving.group) if serving.group else ()
    return tuple((node.metadata.name, node.metadata.labels or {}) for node in nodes)


class Answers(NamedTuple):
    """The agents' last answers *states*, the nodes that are *silent* since, and those that are *ready*."""

    states: Mapping[str, NodeState] = NO_STATES
    silent: frozenset[str] = frozenset()
    ready: tuple[str, ...] = ()

    def changed_since(self, before: "Answers") -> Collection[Address]:
        """
        The VIPs of which these answers say something else than those *before*, which are of the same nodes.

        A node has started or stopped to run them, or to be their master, or to hear claims on them; or a master of them
        has fallen silent or answers again; or a node became ready that does not run them. A node that is not ready any
        more takes nothing back.
        """
        found: set[Address] = set()
        for node, state in self.states.items():
            past = before.states[node]
            if state is not past:
                found |= (state.runs ^ past.runs) | (state.masters ^ past.masters)
                found |= {each.address for each in {*state.claimed} ^ {*past.claimed}}
            if (node in self.silent) is not (node in before.silent):
                found |= state.masters | past.masters
        if new := [self.states[node] for node in set(self.ready).difference(before.ready) if node in self.states]:
            held = frozenset[Address]().union(*(state.masters for state in self.states.values()))
            found = found.union(*(held - state.runs for state in new))
        return found


class _Share:
    """
    One share of the *members*: the VIPs of those that are *served*, by identity, and the *others*.

    It is true under *circumstances* and of the agents' *answers*.
    """

    circumstances: Circumstances | None = None
    answers = Answers()
    members: tuple[Service, ...] = ()
    others: tuple[Service, ...] = ()

    def __init__(self) -> None:
        self.served: dict[int, tuple[Address, ...]] = {}

    def forget(self, changed: Collection[Address]) -> None:
        """Services with one of the VIPs *changed* are not known as served any more."""
        if not changed:
            return
        lost = [key for key, vips in self.served.items() if any(map(changed.__contains__, vips))]
        if lost:
            for key in lost:
                del self.served[key]
            self.others = tuple(each for each in self.members if id(each) not in self.served)

    def replace_members(self, members: tuple[Service, ...]) -> None:
        """The share has these *members* now."""
        change = change_of(self.members, members)
        gone = set(map(id, change.left))
        for key in gone:
            self.served.pop(key, None)
        self.others = tuple(each for each in (*self.others, *change.come) if id(each) not in gone)
        self.members = members


class ServedServices:
    """The Services of one group that are served and report it."""

    _circumstances: Circumstances | None = None
    _answers = Answers()

    def __init__(self) -> None:
        """Know none."""
        self._shares: dict[str, _Share] = {}
        self._changed: dict[int, Collection[Address]] = {}

    def begin(self, circumstances: Circumstances, answers: Answers, shares: Collection[str]) -> None:
        """Begin a comparison under *circumstances*, with the agents' *answers*; *shares*: of the members."""
        if circumstances != self._circumstances:
            self._circumstances = circumstances
        if answers.states is not self._answers.states or answers[1:] != self._answers[1:]:
            self._answers = answers
        self._changed.clear()
        for gone in self._shares.keys() - shares:
            del self._shares[gone]

    def others(self, name: str, members: tuple[Service, ...]) -> Sequence[Service]:
        """Of *members*, the share *name* in this comparison, those that are not known as served."""
        share = self._shares.setdefault(name, _Share())
        if share.circumstances is not self._circumstances:
            share = self._shares[name] = _Share()
            share.circumstances = self._circumstances
        elif share.answers is not self._answers:
            share.forget(self._changed_since(share.answers))
        share.answers = self._answers
        if share.members is not members:
            share.replace_members(members)
        if share.others:
            share.others = tuple(each for each in share.others if id(each) not in share.served)
        return share.others

    def add(self, service: Service, vips: tuple[Address, ...]) -> None:
        """*service*, one of the members in this comparison, is served with *vips* and reports it."""
        self._shares[part_of(service.key)].served[id(service)] = vips

    def _changed_since(self, before: Answers) -> Collection[Address]:
        """The VIPs that have changed since the answers *before*; most shares have the same ones."""
        if id(before) not in self._changed:
            self._changed[id(before)] = self._answers.changed_since(before)
        return self._changed[id(before)]
