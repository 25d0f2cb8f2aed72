"""
What the agents reported: the last state of each node of each group, and when it was reported.

The prober makes these values, decisions read them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address
from kavip.api.agent import SEPARATOR, NodeProblem, ProblemCode

MASTER: Final = "MASTER"  # as keepalived and the agent spell it
BACKUP: Final = "BACKUP"
FAULT: Final = "FAULT"

_RETURN_ROUTING: Final = (
    ProblemCode.RETURN_ROUTE_INVALID,
    ProblemCode.RETURN_ROUTE_FAILED,
    ProblemCode.ROUTING_TABLE_IN_USE,
)

EVER: Final = datetime.min.replace(tzinfo=UTC)
"""Before any moment at which agents could have been asked."""


@dataclass(frozen=True, slots=True)
class InstanceState:
    """
    One VRRP instance as the keepalived of one node reports it.

    *since*: when it entered its *state*, by the clock of that node. *virtual_ips*: their number. *priority*: the
    effective one, after health checks and endpoints; 0: not reported. *anchor*: the first address that it advertises;
    "": not reported.
    """

    name: str
    router_id: int
    family: int
    state: str
    virtual_ips: int
    since: str = ""
    priority: int = 0
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedInstance:
    """
    An instance that one node does not run as the configuration requires.

    *by_keepalived*: keepalived refuses what is written in it. *kept*: the node continues with its previous version.
    *interface*: the one that the node lacks; "": the cause is another one.
    """

    name: str
    reason: str
    by_keepalived: bool = False
    kept: bool = False
    virtual_ips: frozenset[Address] = frozenset()
    code: ProblemCode = ProblemCode.NONE
    interface: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Collision:
    """Another router uses the VRID of *instance* on *interface*: adverts with *sign* come in."""

    instance: str
    router_id: int
    interface: str
    sign: str


@dataclass(frozen=True, slots=True, order=True)
class ClaimedAddress:
    """
    Another machine with the *hardware* address claims *address*, as its node hears on *interface*.

    *is_held*: the node holds the VIP; otherwise it withholds it, because it was not announced yet.
    """

    address: Address
    hardware: str
    interface: str
    is_held: bool


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """
    The last answer of one node's agent.

    *runs*, *instance_of*: the VIPs of the configuration that keepalived has read, and the name of the instance of each.
    *masters*: the VIPs of the instances in state MASTER. *excluded*: instances that the node does not run as wanted.
    *prepared*: the digest of the configuration it can switch to; *next_refused*: why it cannot; *switch_at*: when it
    will. *drift*: by how many seconds its clock differs from ours; 0: too little to matter; None: not reported.
    *new_password*: since when the mounted password differs from the one in use. *unready*: the track files of Services
    without a ready endpoint on the node. *hardware*: the hardware addresses of the node; an earlier agent reports none.
    *claimed*: the VIPs that another machine claims. *missing*: the interfaces that it lacks. *routed*: the pools whose
    replies it routes. *reads_compact*: it reads a text in the compact notation; *reads_packed*: a packed one.
    """

    config_hash: str = ""
    refused: str = ""
    refused_code: ProblemCode = ProblemCode.NONE
    notes: tuple[NodeProblem, ...] = ()
    running: bool = True
    runs: frozenset[Address] = frozenset()
    masters: frozenset[Address] = frozenset()
    instance_of: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    instances: tuple[InstanceState, ...] = ()
    excluded: tuple[ExcludedInstance, ...] = ()
    collisions: tuple[Collision, ...] = ()
    prepared: str = ""
    next_refused: str = ""
    next_refused_code: ProblemCode = ProblemCode.NONE
    switch_at: str = ""
    drift: float | None = None
    new_password: str = ""
    unready: frozenset[str] = frozenset()
    hardware: tuple[str, ...] = ()
    claimed: tuple[ClaimedAddress, ...] = ()
    missing: frozenset[str] = frozenset()
    routed: frozenset[str] = frozenset()
    reads_compact: bool = False
    reads_packed: bool = False

    @property
    def note(self) -> str:
        """The messages of all notes."""
        return SEPARATOR.join(each.message for each in self.notes)

    @cached_property
    def leads(self) -> tuple[str, ...]:
        """The instances of which it is master."""
        return tuple(each.name for each in self.instances if each.state == MASTER)

    @property
    def fails_to_route(self) -> bool:
        """Whether it reports that it cannot route replies, except those of the pools that are *routed*."""
        return any(each.code in _RETURN_ROUTING for each in self.notes)


@dataclass(frozen=True, slots=True)
class Contact:
    """
    When one node's agent answered, by the controller's monotonic clock.

    *last*: the last moment at which its answer was true. *since*: from when on each of its instances has been in its
    state without a break. *is_silent*: it has not answered for a while.
    """

    last: float = inf
    since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    is_silent: bool = False


NO_CONTACT: Final = Contact()
NO_STATES: Mapping[str, NodeState] = MappingProxyType({})
NO_CONTACTS: Mapping[str, Contact] = MappingProxyType({})


@dataclass(frozen=True)
class AgentStates:
    """
    Group -> node -> the last answer of its agent, and when it answered. A node that has never answered is absent.

    *probed_from*: when the agents were first asked; *since*: the same by the monotonic clock. *at*: the moment of this
    value, by the monotonic clock.
    """

    states: Mapping[str, Mapping[str, NodeState]] = field(default_factory=lambda: MappingProxyType({}))
    contacts: Mapping[str, Mapping[str, Contact]] = field(default_factory=lambda: MappingProxyType({}))
    probed_from: datetime = EVER
    since: float = -inf
    at: float = 0.0

    @cached_property
    def hardware(self) -> frozenset[str]:
        """The hardware addresses that the nodes of all groups report."""
        answers = (state for states in self.states.values() for state in states.values())
        return frozenset(chain.from_iterable(state.hardware for state in answers))

    def states_of(self, group: str) -> Mapping[str, NodeState]:
        """The answers of the nodes of *group*."""
        return self.states.get(group, NO_STATES)

    def contacts_of(self, group: str) -> Mapping[str, Contact]:
        """When the nodes of *group* answered."""
        return self.contacts.get(group, NO_CONTACTS)

    def with_state(self, group: str, node: str, *, state: NodeState) -> "AgentStates":
        """The same, with the answer of *node* replaced."""
        return replace(self, states={**self.states, group: {**self.states_of(group), node: state}})

    def with_contact(self, group: str, node: str, *, contact: Contact) -> "AgentStates":
        """The same, with the contact of *node* replaced."""
        return replace(self, contacts={**self.contacts, group: {**self.contacts_of(group), node: contact}})

    def with_nodes(self, group: str, nodes: Iterable[str]) -> "AgentStates":
        """The same, of *group* only the answers of *nodes*; without the group if there are none."""
        states = {node: state for node in nodes if (state := self.states_of(group).get(node))}
        contacts = {node: contact for node in states if (contact := self.contacts_of(group).get(node))}
        other_states = {key: each for key, each in self.states.items() if key != group}
        other_contacts = {key: each for key, each in self.contacts.items() if key != group}
        return replace(
            self,
            states={**other_states, group: states} if states else other_states,
            contacts={**other_contacts, group: contacts} if contacts else other_contacts,
        )


def masters_by_instance(states: Mapping[str, NodeState]) -> Mapping[str, set[str]]:
    """The nodes that report in *states* that they are master, by instance."""
    found: dict[str, set[str]] = {}
    for node, state in states.items():
        for name in state.leads:
            found.setdefault(name, set()).add(node)
    return found
