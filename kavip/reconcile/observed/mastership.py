"""
Which node is master of each VIP and instance, from the answers of one group's agents, and how certain that is.

The agents do not answer at the same time: the last answer of the old master may be older than the first one of the new
master. A claim therefore lasts from the first answer that made it to the last one, by the controller's clock, as long
as keepalived did not change its state in between. Two nodes were masters together for as long as their claims overlap.
If the overlap is short, the later claim counts, after the time in which the earlier node could have withdrawn its own.

The claim of a node that does not answer any more counts only if no other node claims the same. It stays as long as
other nodes are BACKUP: without the adverts of a master they would be master themselves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final

from kavip.api.address import Address
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.names import Reason
from kavip.reconcile.observed.agentstates import (
    BACKUP,
    FAULT,
    NO_CONTACT,
    AgentStates,
    Contact,
    NodeState,
    masters_by_instance,
)
from kavip.reconcile.observed.foreignclaims import ForeignClaim, foreign_claims_in, have_all_reported
from kavip.vrrp.timing import SECOND, timing_of

_SOON: Final = 0.5  # seconds that two masters may need to notice each other, if adverts are more frequent
_AGAIN: Final = 0.25  # seconds until the next decision: nodes that claim the same are probed often
_SPARE: Final = 1.0  # seconds that a fail-over may take in addition to four intervals
SHORTEST: Final = 2.0
"""Seconds without a master that are never a fault, however frequent the adverts are."""

VipOrInstance = Address | str
"""What has a master: a VIP, or a VRRP instance by name."""


@dataclass(frozen=True, slots=True, order=True)
class MasterClaim:
    """*node* was master from *since* until *last* at least."""

    since: float
    last: float
    node: str
    is_silent: bool = False

    def overlap(self, other: "MasterClaim") -> float:
        """For how many seconds both nodes were master."""
        return min(self.last, other.last) - max(self.since, other.since)


@dataclass(frozen=True, slots=True)
class MasterState:
    """The masters *nodes* of a subject, with a *reason*; None: unknown until *wait* seconds have passed."""

    nodes: tuple[str, ...]
    reason: Reason | None
    wait: float = 0.0
    silent: tuple[str, ...] = ()  # nodes whose answers are missing for a decision
    is_run: bool = True  # by any node


@dataclass(frozen=True, kw_only=True)
class Mastership:
    """
    The masters of a group at *at*, from the answers *states* and the *contacts* by node.

    *expected*: the nodes that should answer. *spec*: of the group, if it exists. *foreign_claims*: those of machines
    that are no nodes, by VIP. *asked*: for how many seconds the agents have been asked. *has_nodes*: whether the group
    has nodes or pods; without both no node holds a VIP, and no agent has to say so.
    """

    expected: tuple[str, ...]
    states: Mapping[str, NodeState]
    contacts: Mapping[str, Contact]
    at: float
    spec: GroupSpec | None
    foreign_claims: Mapping[Address, ForeignClaim]
    asked: float
    has_nodes: bool

    @classmethod
    def of(
        cls,
        group: KeepalivedGroup | None,
        expected: Iterable[str],
        agents: AgentStates,
        *,
        key: str,
        has_nodes: bool = True,
    ) -> "Mastership":
        """The mastership from the answers for the group *key*."""
        return cls(
            expected=tuple(expected),
            states=agents.states_of(key),
            contacts=agents.contacts_of(key),
            at=agents.at,
            spec=group.spec if group else None,
            foreign_claims=foreign_claims_in(agents, key),
            asked=agents.at - agents.since,
            has_nodes=has_nodes,
        )

    def master_of(self, subject: VipOrInstance) -> MasterState:
        """The masters of *subject*."""
        if subject not in self._found:  # a plan asks twice for each instance
            self._found[subject] = self._master_of(subject)
        return self._found[subject]

    @cached_property
    def _found(self) -> dict[VipOrInstance, MasterState]:
        return {}

    def _master_of(self, subject: VipOrInstance) -> MasterState:
        every = [self._claim(node, subject) for node in self._masters(subject)]
        claims = [each for each in every if not each.is_silent] or every
        if not claims:
            return self._unclaimed(subject)
        if len(claims) == 1:
            return self._alone(subject, claims[0])
        most = self.overlap
        pairs = [pair for pair in combinations(sorted(claims), 2) if pair[0].overlap(pair[1]) >= most]
        if pairs:
            return MasterState(tuple(sorted({each.node for pair in pairs for each in pair})), Reason.SPLIT_BRAIN)
        newest = max(claims)
        wait = newest.since + most - self.at
        if wait <= 0 and any(each.last >= newest.since for each in claims if each is not newest):
            wait = _AGAIN  # not over yet: the next answers decide
        return MasterState((), None, wait) if wait > 0 else MasterState((newest.node,), Reason.MASTER)

    @property
    def interval(self) -> float:
        """The seconds between two adverts of an instance, at most."""
        if self.spec is None:
            return 1.0
        return max(timing_of(self.spec, 4).milliseconds, timing_of(self.spec, 6).milliseconds) / SECOND

    @property
    def overlap(self) -> float:
        """For how many seconds two nodes may be master: longer is a split brain."""
        return max(_SOON, 1.2 * self.interval)

    @property
    def gap(self) -> float:
        """After how many seconds a VIP without a master is reported."""
        return max(SHORTEST, 4 * self.interval + _SPARE)

    def foreign_claim(self, vip: Address) -> ForeignClaim | None:
        """The claim of another machine on *vip*; None also until the machine was compared with all nodes."""
        found = self.foreign_claims.get(vip)
        return found if found and self.are_nodes_known(self.asked) else None

    def are_nodes_known(self, seconds: float) -> bool:
        """Whether claims can be compared with all nodes, which have been asked for *seconds*."""
        return have_all_reported(self.expected, self.states, self.contacts, seconds=seconds)

    @property
    def lacks_answers(self) -> bool:
        """Whether a node that should answer does not."""
        return any(node not in self.states or self._is_silent(node) for node in self.expected)

    def is_certain(self, vips: Iterable[Address]) -> bool:
        """Whether one node that answers claims each of *vips*, and no other one does: time alone changes no master."""
        return all(sum(node not in self.silent for node in self._masters(vip)) == 1 for vip in vips)

    @cached_property
    def silent(self) -> frozenset[str]:
        """The nodes that have answered, and do not answer any more."""
        return frozenset(filter(self._is_silent, self.states))

    @cached_property
    def _leaders(self) -> Mapping[str, Collection[str]]:
        """The nodes that are master, by instance."""
        return masters_by_instance(self.states)

    @cached_property
    def _holders(self) -> Sequence[tuple[str, frozenset[Address]]]:
        """The nodes that are master of any VIP, and the VIPs of each."""
        return [(node, state.masters) for node, state in self.states.items() if state.masters]

    def _masters(self, subject: VipOrInstance) -> Collection[str]:
        if isinstance(subject, str):
            return self._leaders.get(subject, ())
        return [node for node, masters in self._holders if subject in masters]

    def _claim(self, node: str, subject: VipOrInstance) -> MasterClaim:
        contact = self.contacts.get(node, NO_CONTACT)
        instance = subject if isinstance(subject, str) else self.states[node].instance_of.get(subject, "")
        return MasterClaim(contact.since.get(instance, 0.0), contact.last, node, contact.is_silent)

    def _alone(self, subject: VipOrInstance, claim: MasterClaim) -> MasterState:
        if not claim.is_silent or any(self._hears(node, subject) for node in self.states):
            return MasterState((claim.node,), Reason.MASTER)
        return MasterState((), Reason.UNKNOWN, silent=(claim.node,))

    def _unclaimed(self, subject: VipOrInstance) -> MasterState:
        if not self.has_nodes:
            return MasterState((), Reason.NO_MASTER, is_run=False)
        is_run = any(_runs(state, subject) for state in self.states.values())
        silent = tuple(node for node in self.expected if node not in self.states or self._is_silent(node))
        if silent or not is_run:
            return MasterState((), Reason.UNKNOWN, silent=silent, is_run=is_run)
        return MasterState((), Reason.NO_MASTER)

    def _hears(self, node: str, subject: VipOrInstance) -> bool:
        """Whether *node* answers and is BACKUP, so it receives adverts of a master."""
        state = self.states[node]
        if self._is_silent(node):
            return False
        names = {sight.name for sight in state.instances if sight.state == BACKUP}
        return subject in names if isinstance(subject, str) else state.instance_of.get(subject) in names

    def _is_silent(self, node: str) -> bool:
        return node in self.contacts and self.contacts[node].is_silent

    def faults(self, subject: Address) -> tuple[str, ...]:
        """The nodes on which the instance of *subject* cannot work."""
        found = []
        for node, state in sorted(self.states.items()):
            bad = {sight.name for sight in state.instances if sight.state == FAULT}
            if state.instance_of.get(subject) in bad:
                found.append(node)
        return tuple(found)


def _runs(state: NodeState, subject: VipOrInstance) -> bool:
    if isinstance(subject, str):
        return any(sight.name == subject for sight in state.instances)
    return subject in state.runs
