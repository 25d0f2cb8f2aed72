"""
Which nodes are peers in a static group, and whether this node takes part: peers are added before, and removed after.

Two nodes become masters together if one of them does not hear the other. So:

* A node accepts adverts of each node that has a Node object, or is in the file of the group, at once.
* A node sends adverts, and so can become master, only after every other agent that answers accepts its address, and
  knows no node that this one does not know. A node that does so goes on, whatever it hears.
* A node whose Node was deleted stays a peer until its agent says goodbye, or is silent for :data:`PATIENCE`. A node of
  the file that never had a Node stays until it says goodbye.
* A new address of a node is one more address first. The node sends from it when all others accept it, and they drop the
  old one when it does.

An API server that loses all Nodes changes nothing: their agents still answer. All times are monotonic.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from kavip.api.address import BITS, Address
from kavip.api.agent import Standing
from kavip.vrrp.members import Peer

PATIENCE: Final = 30.0
"""Seconds of silence after which a node without a Node is no peer any more: longer than the restart of an agent."""
TRIES: Final = 3
"""
Requests after which a joining node does not wait for a peer that has never answered; no peer is silent after fewer.
"""

MOST_LEFT: Final = 100
"""Nodes that have never answered and stay peers although their Node is gone: an API server may invent many."""

Nodes = Mapping[str, tuple[Address, ...]]
Sources = Mapping[int, Address]
"""The addresses that a node sends from, by family."""

NO_NODES: Final[Nodes] = MappingProxyType({})
_NOTHING: Final = frozenset[Address]()


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What another agent says: the addresses that its keepalived sends from, and accepts adverts from.

    *file*: the hash of its file. *switch_at*: the instant, by the wall clock, at which it leaves multicast; 0: none.
    """

    standing: Standing = Standing.NONE
    sources: frozenset[Address] = _NOTHING
    peers: frozenset[Address] = _NOTHING
    file: str = ""
    switch_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Contact:
    """
    What is known of another agent: when it was *first* asked, its last *answer* and when that came.

    *failures*: requests without an answer since, counted up to :data:`TRIES`.
    """

    first: float
    answer: Answer | None = None
    last: float = 0.0
    failures: int = 0

    def answered(self, answer: Answer, *, now: float) -> "Contact":
        """The same after an answer."""
        return Contact(self.first, answer, now)

    def failed(self) -> "Contact":
        """The same after a request without an answer."""
        return replace(self, failures=min(self.failures + 1, TRIES))

    def is_silent(self, now: float) -> bool:
        """
        Whether it has not answered for so long that it counts as stopped.

        Time alone says nothing: this agent may have been stopped itself, or be late because many others do not answer.
        """
        return self.failures >= TRIES and now - max(self.first, self.last) > PATIENCE


Contacts = Mapping[str, Contact]


@dataclass(frozen=True, slots=True)
class Record:
    """
    What outlives the agent.

    *nodes*: the last list of the API server; None: there was none yet. *seen*: nodes of the file that were in a list.
    *gone*: nodes of the file that said goodbye; *has_left*: this node did. *accepted*: by node, the addresses from
    which adverts are accepted.
    """

    nodes: Nodes | None = None
    seen: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    has_left: bool = False
    accepted: Mapping[str, frozenset[Address]] = field(default_factory=dict)

    def wanted(self, name: str, file: Nodes) -> tuple[Address, ...]:
        """The addresses of the node *name* now, in their order; none if it is no node of the group any more."""
        if self.nodes and name in self.nodes:
            return self.nodes[name]
        return file.get(name, ()) if name not in self.seen | self.gone else ()


@dataclass(frozen=True, slots=True)
class Self:
    """This node: its *name*, and the addresses that it *sends* from now, by family; none: it takes no part."""

    name: str
    sends: Sources = field(default_factory=dict)


def listed(record: Record, found: Mapping[str, tuple[Address, ...]]) -> Record:
    """*record* after a list of the API server; a node that has no address in it keeps those that it had."""
    before = record.nodes or NO_NODES
    nodes = {name: found[name] or before.get(name, ()) for name in sorted(found)}
    return replace(record, nodes={name: addresses for name, addresses in nodes.items() if addresses})


def followed(record: Record, file: Nodes, contacts: Contacts, *, own: Self, now: float) -> Record:
    """*record* with the peers of this moment; *file* has the nodes of the group's file."""
    said = {name: contacts[name].answer for name in file if name in contacts and not contacts[name].failures}
    left = {name for name, answer in said.items() if answer and answer.standing is Standing.LEFT}
    back = {name for name, answer in said.items() if answer and answer.standing is not Standing.LEFT}
    seen = (record.seen | (record.nodes or NO_NODES).keys()) & file.keys()
    gone = ((record.gone | left) - back) & file.keys()
    record = replace(record, seen=frozenset(seen), gone=frozenset(gone))
    accepted: dict[str, frozenset[Address]] = {}
    taken = set(record.wanted(own.name, file)) | set(own.sends.values())
    if taken:
        accepted[own.name] = frozenset(taken)
    forgotten = _forgotten(record, file, contacts)
    for name in sorted({*file, *(record.nodes or ()), *record.accepted} - {own.name}):
        before = _NOTHING if name in forgotten else record.accepted.get(name, _NOTHING)
        addresses = set(record.wanted(name, file)) | _still_used(before, contacts.get(name), now)
        if fresh := addresses - taken:  # of two nodes with one address, this node and then the first one has it
            accepted[name] = frozenset(fresh)
            taken |= fresh
    return replace(record, accepted=dict(sorted(accepted.items())))


def _forgotten(record: Record, file: Nodes, contacts: Contacts) -> frozenset[str]:
    """The nodes beyond :data:`MOST_LEFT` that are no nodes of the group any more and have never answered."""
    found = (
        name
        for name in sorted(record.accepted)
        if not record.wanted(name, file) and (name not in contacts or contacts[name].answer is None)
    )
    return frozenset(islice(found, MOST_LEFT, None))


def _still_used(before: frozenset[Address], contact: Contact | None, now: float) -> frozenset[Address]:
    """Those addresses of *before* from which a node that is not to be a peer any more may still send."""
    answer = contact.answer if contact else None
    if contact and (contact.is_silent(now) or (answer and answer.standing is Standing.LEFT)):
        return _NOTHING
    # A node that was joining when it answered, or named no address yet, may send meanwhile.
    return before & answer.sources if answer and answer.standing is Standing.JOINED and answer.sources else before


def next_sources(record: Record, file: Nodes, contacts: Contacts, *, own: Self, now: float) -> tuple[Sources, str]:
    """
    The addresses that this node may send from, and the peer that it waits for; "" if it waits for none.

    A node that sends goes on if its Node is deleted: the others keep it as a peer, and no VIP is lost for a mistake. It
    falls silent if one of them takes part without it: that one has joined later.
    """
    wanted = record.wanted(own.name, file)
    if own.sends and not wanted and any(_takes_part_without(each, own) for each in contacts.values()):
        return {}, ""
    target = {family: source for family in BITS if (source := _source(family, wanted, own.sends))}
    if target == own.sends:
        return own.sends, ""
    new = frozenset(target.values())
    known = new.union(*record.accepted.values(), *file.values(), *(record.nodes or NO_NODES).values())
    for name in sorted((record.accepted.keys() | contacts.keys()) - {own.name}):
        contact = contacts.get(name)
        are_in_file = {own.name, name} <= file.keys()
        accepted = record.accepted.get(name, _NOTHING)
        if contact is None or not _may_join(contact, new, known, accepted, are_in_file=are_in_file, now=now):
            return own.sends, name
    return target, ""


def _takes_part_without(contact: Contact, own: Self) -> bool:
    """Whether the node of *contact* sends adverts, and does not accept those of this node."""
    answer = contact.answer
    if answer is None or contact.failures or answer.standing is not Standing.JOINED:
        return False
    return bool(answer.sources) and answer.peers.isdisjoint(own.sends.values())


def _source(family: int, wanted: Iterable[Address], sends: Sources) -> Address | None:
    """The source of *family*: the present one while the node has it."""
    found = [each for each in wanted if each.family == family]
    current = sends.get(family)
    return current if current and (current in found or not found) else next(iter(found), None)


def _may_join(
    contact: Contact,
    new: Collection[Address],
    known: frozenset[Address],
    accepted: frozenset[Address],
    *,
    are_in_file: bool,
    now: float,
) -> bool:
    """
    Whether *contact* does not keep this node from sending from *new*.

    *known*: the addresses of all nodes; *accepted*: those of that node from which this one accepts adverts.
    """
    answer = contact.answer
    if answer is None:
        return contact.failures >= TRIES
    if answer.standing is Standing.LEFT:
        return True
    if not answer.peers <= known:  # also if it is silent since: the node that it knows may take part
        return False
    if contact.is_silent(now):
        return True
    if answer.standing is Standing.NONE:  # it has the nodes of its file, which is the same
        return are_in_file
    return answer.peers.issuperset(new) and answer.sources <= accepted


def peers_of(record: Record, own: Self) -> tuple[Peer, ...]:
    """The nodes for the text of this node; only the lines of this node say from where a node sends."""
    return tuple(
        Peer(
            name,
            own.sends.get(4) if name == own.name else None,
            own.sends.get(6) if name == own.name else None,
            tuple(sorted(addresses)),
        )
        for name, addresses in sorted(record.accepted.items())
    )
