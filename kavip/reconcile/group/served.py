"""
Remembers which Services of a group are served and report it, so that a comparison skips them.

They are remembered until their object changes, a node reports a change of their VIPs, or the circumstances change. Each
share of the members is remembered on its own: a comparison that ends early leaves those that it has not reached as they
were. The Snapshot keeps this memory (:mod:`kavip.memo`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.memo import change_of
from kavip.reconcile.observed.agentstates import NO_STATES, ExcludedInstance, NodeState
from kavip.reconcile.service.vips import ServingGroup
from kavip.snapshot.membership import part_of


class Circumstances(NamedTuple):
    """What conditions depend on, besides the Service, its problem, the holders of its VIPs, and the nodes' masters."""

    has_group: bool
    allowed: tuple[str, ...] | None
    has_nodes: bool
    ready: tuple[str, ...]
    apart: tuple[tuple[str, tuple[ExcludedInstance, ...], frozenset[str], frozenset[str]], ...]
    routed: tuple[tuple[str, frozenset[str]], ...]

    @classmethod
    def of(cls, serving: ServingGroup) -> "Circumstances":
        """Those of a group as it serves now."""
        states = sorted(serving.states.items())
        apart = tuple((node, state.excluded, state.unready, state.missing) for node, state in states)
        routed = tuple((node, state.routed) for node, state in states if state.fails_to_route)
        is_there = serving.group is not None
        return cls(is_there, allowed_namespaces(serving), serving.has_nodes, serving.ready, apart, routed)


def allowed_namespaces(serving: ServingGroup) -> tuple[str, ...] | None:
    """The namespaces that the group allows now; None: all of them."""
    group, snapshot = serving.group, serving.snapshot
    if group is None or group.spec.allowed_namespaces is None:
        return None
    return tuple(sorted(name for name in snapshot.namespaces if snapshot.allows(group, name)))


class _Share:
    """
    One share of the *members*: the VIPs of those that are *served*, by identity, and the *others*.

    It is true under *circumstances* and of the agents' answers *states*.
    """

    circumstances: Circumstances | None = None
    states: Mapping[str, NodeState] = NO_STATES
    members: tuple[Service, ...] = ()
    others: tuple[Service, ...] = ()

    def __init__(self) -> None:
        self.served: dict[int, tuple[Address, ...]] = {}

    def forget(self, changed: Collection[Address]) -> None:
        """Services with one of the VIPs *changed* are not known as served any more."""
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
    _states: Mapping[str, NodeState] = NO_STATES

    def __init__(self) -> None:
        """Know none."""
        self._shares: dict[str, _Share] = {}
        self._changed: dict[int, Collection[Address]] = {}

    def begin(self, circumstances: Circumstances, states: Mapping[str, NodeState], shares: Collection[str]) -> None:
        """Begin a comparison under *circumstances*, with the agents' answers *states*; *shares*: of the members."""
        if circumstances != self._circumstances:
            self._circumstances = circumstances
        self._states = states
        self._changed.clear()
        for gone in self._shares.keys() - shares:
            del self._shares[gone]

    def others(self, name: str, members: tuple[Service, ...]) -> Sequence[Service]:
        """Of *members*, the share *name* in this comparison, those that are not known as served."""
        share = self._shares.setdefault(name, _Share())
        if share.circumstances is not self._circumstances:
            share = self._shares[name] = _Share()
            share.circumstances = self._circumstances
        elif share.states is not self._states:
            share.forget(self._changed_since(share.states))
        share.states = self._states
        if share.members is not members:
            share.replace_members(members)
        if share.others:
            share.others = tuple(each for each in share.others if id(each) not in share.served)
        return share.others

    def add(self, service: Service, vips: tuple[Address, ...]) -> None:
        """*service*, one of the members in this comparison, is served with *vips* and reports it."""
        self._shares[part_of(service.key)].served[id(service)] = vips

    def _changed_since(self, before: Mapping[str, NodeState]) -> Collection[Address]:
        """
        The VIPs that a node has started or stopped to run, or to be master of, or to hear claims on.

        Circumstances name the nodes, so both have the same ones. Most shares have the same answers *before*.
        """
        if id(before) not in self._changed:
            found: set[Address] = set()
            for node, state in self._states.items():
                if state is not before[node]:
                    found |= (state.runs ^ before[node].runs) | (state.masters ^ before[node].masters)
                    found |= {each.address for each in {*state.claimed} ^ {*before[node].claimed}}
            self._changed[id(before)] = found
        return self._changed[id(before)]
