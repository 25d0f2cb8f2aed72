"""Which nodes of a static group are peers, and which take part."""

from dataclasses import dataclass, field, replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.peers.membership import (
    MOST_LEFT,
    PATIENCE,
    TRIES,
    Answer,
    Contact,
    Nodes,
    Record,
    Self,
    followed,
    listed,
    next_sources,
    peers_of,
)
from kavip.api.address import Address, parse_address
from kavip.api.agent import Standing
from tests.support.examples import examples

ONE, TWO, THREE, OTHER = (parse_address(f"192.0.2.{11 + number}") for number in range(4))
ADDRESSES = {"n1": (ONE,), "n2": (TWO,), "n3": (THREE,)}
FILE: Nodes = {"n1": (ONE,)}
"""The file names the bootstrap node alone."""


@dataclass
class Agent:
    """The agent of one node, and what its keepalived runs."""

    name: str
    disk: Record = field(default_factory=Record)
    own: Self = field(default_factory=lambda: Self(""))
    contacts: dict[str, Contact] = field(default_factory=dict)
    is_alive: bool = False
    is_tried: bool = False
    is_listed: bool = False
    was_here: bool = False
    has_left: bool = False

    def boot(self) -> None:
        """Start after a reboot: only the disk has outlived it."""
        self.was_here = bool(self.disk.accepted)
        self.own, self.contacts, self.is_alive, self.has_left = Self(self.name), {}, True, False
        self.is_tried = self.is_listed = False

    def answer(self) -> Answer:
        """What ``/state`` says."""
        if self.has_left:
            return Answer(Standing.LEFT)
        standing = Standing.JOINED if self.own.sends else Standing.JOINING
        others = [each for name, each in self.disk.accepted.items() if name != self.name]
        return Answer(standing, frozenset(self.own.sends.values()), frozenset().union(*others))

    def decide(self, now: float) -> None:
        """Follow what is known."""
        if self.has_left:
            return
        self.disk = followed(self.disk, FILE, self.contacts, own=self.own, now=now)
        answers = any(each.answer and each.answer.standing is Standing.JOINED for each in self.contacts.values())
        if self.own.sends or (self.is_tried and (answers or self.is_listed or not self.was_here)):
            sends, _ = next_sources(self.disk, FILE, self.contacts, own=self.own, now=now)
            self.own = replace(self.own, sends=sends)


class World:
    """Three nodes and an API server; the first one begins alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.api: dict[str, tuple[Address, ...]] = {}
        self.agents = {name: Agent(name) for name in ADDRESSES}
        self.do("boot", "n1", "n1")
        self.do("fail to list", "n1", "n1")

    def do(self, action: str, name: str, other: str) -> None:
        """Run one action on the node *name*."""
        agent = self.agents[name]
        match action:
            case "create":
                self.api[name] = ADDRESSES[name]
            case "delete" if not agent.is_alive or agent.has_left:
                self.api.pop(name, None)
            case "boot" if not agent.is_alive:
                agent.boot()
            case "crash":
                agent.is_alive = False
            case "say goodbye" if agent.is_alive and agent.disk.nodes is not None and name not in agent.disk.nodes:
                agent.has_left, agent.own = True, Self(name)
            case "list" if agent.is_alive:
                before = agent.disk.wanted(name, FILE)
                agent.disk, agent.is_tried, agent.is_listed = listed(agent.disk, self.api), True, True
                if not before and agent.disk.wanted(name, FILE):
                    agent.contacts.clear()
            case "fail to list" if agent.is_alive:
                agent.is_tried = True
            case "ask" if agent.is_alive and name != other:
                self.ask(agent, self.agents[other])
            case "wait":
                self.now += PATIENCE / 3
                for each in self.agents.values():
                    for another in self.agents.values():
                        self.ask(each, another)
        if agent.is_alive:
            agent.decide(self.now)

    def ask(self, agent: Agent, other: Agent) -> None:
        """Let *agent* request ``/state`` of *other*, if it knows it."""
        if not agent.is_alive or other.name == agent.name or other.name not in {*FILE, *agent.disk.accepted}:
            return
        known = agent.contacts.get(other.name) or Contact(self.now)
        answered = known.answered(other.answer(), now=self.now) if other.is_alive else known.failed()
        agent.contacts[other.name] = answered

    def settle(self) -> None:
        """Let every agent list and ask until nothing changes any more."""
        for _ in range(4 * TRIES + 8):
            for name in sorted(self.agents):
                self.do("list", name, name)
            self.do("wait", "n1", "n1")
            for name in sorted(self.agents):
                if self.agents[name].is_alive:
                    self.agents[name].decide(self.now)

    def joined(self) -> list[str]:
        """The nodes that can become master."""
        return [name for name, each in self.agents.items() if each.is_alive and each.own.sends]


ACTIONS = st.sampled_from(
    ("create", "delete", "boot", "crash", "say goodbye", "list", "fail to list", "ask", "ask", "ask", "wait")
)
NAMES = st.sampled_from(sorted(ADDRESSES))


@examples(400)
@given(history=st.lists(st.tuples(ACTIONS, NAMES, NAMES), max_size=60))
def test_nodes_that_take_part_hear_each_other(history: list[tuple[str, str, str]]) -> None:
    """In no history are there two nodes that could both become master because one does not accept the other."""
    world = World()
    for step in history:
        world.do(*step)
        for one, two in combinations(world.joined(), 2):
            for name, other in ((one, two), (two, one)):
                accepted = world.agents[name].disk.accepted.get(other, frozenset())
                assert accepted >= set(world.agents[other].own.sends.values()), (name, other, step)


@examples(100)
@given(history=st.lists(st.tuples(ACTIONS, NAMES, NAMES), max_size=40))
def test_in_the_end_every_node_takes_part(history: list[tuple[str, str, str]]) -> None:
    """When the API server answers again, every node with a Node joins, and all run the same peers."""
    world = World()
    for step in history:
        world.do(*step)
    for name in ADDRESSES:
        world.do("create", name, name)
        if world.agents[name].has_left or not world.agents[name].is_alive:
            world.do("crash", name, name)
            world.do("boot", name, name)
    world.settle()
    assert world.joined() == sorted(ADDRESSES)
    assert len({str(sorted(each.disk.accepted.items())) for each in world.agents.values()}) == 1


def joined(*peers: Address, source: Address = TWO) -> Contact:
    """The contact with a node that takes part, and accepts adverts of *peers*."""
    return Contact(0.0).answered(Answer(Standing.JOINED, frozenset({source}), frozenset(peers)), now=0.0)


def test_a_list_without_nodes_removes_no_living_node() -> None:
    """If the API server has lost all Nodes, nodes that answer stay peers, and this node goes on."""
    record = listed(Record(accepted={"n1": frozenset({ONE}), "n2": frozenset({TWO})}), {})
    own = Self("n1", {4: ONE})
    record = followed(record, {}, {"n2": joined(ONE)}, own=own, now=PATIENCE)
    assert record.accepted == {"n1": {ONE}, "n2": {TWO}}
    assert next_sources(record, {}, {"n2": joined(ONE)}, own=own, now=PATIENCE) == ({4: ONE}, "")
    later = followed(record, {}, {"n2": unanswered(joined(ONE))}, own=own, now=PATIENCE + 1)
    assert later.accepted == {"n1": {ONE}}


def unanswered(contact: Contact) -> Contact:
    """*contact* after some requests without an answer."""
    for _ in range(TRIES):
        contact = contact.failed()
    return contact


def test_an_agent_that_asks_late_drops_no_node() -> None:
    """If this agent was stopped for a while, or asks many that do not answer, those that answer are not silent."""
    record = listed(Record(accepted={"n1": frozenset({ONE}), "n2": frozenset({TWO})}), {})
    for contact in (joined(ONE), joined(ONE).failed()):
        late = followed(record, {}, {"n2": contact}, own=Self("n1", {4: ONE}), now=10 * PATIENCE)
        assert late.accepted == {"n1": {ONE}, "n2": {TWO}}


def test_a_node_that_names_no_address_yet_stays_a_peer() -> None:
    """It takes part, and its keepalived has not read that yet when its Node is deleted."""
    record = listed(Record(accepted={"n1": frozenset({ONE}), "n2": frozenset({TWO})}), {})
    contact = Contact(0.0).answered(Answer(Standing.JOINED, frozenset(), frozenset({ONE})), now=0.0)
    found = followed(record, {}, {"n2": contact}, own=Self("n1", {4: ONE}), now=1.0)
    assert found.accepted == {"n1": {ONE}, "n2": {TWO}}


def test_invented_nodes_are_bounded() -> None:
    """An API server that reports other nodes in each list fills neither the memory nor the configuration."""
    own, living = Self("n1", {4: ONE}), {"z": joined(ONE, source=TWO)}
    record = Record(accepted={"n1": frozenset({ONE}), "z": frozenset({TWO})})
    for turn in range(10):
        found = {f"i{turn}-{n}": (parse_address(f"198.51.{turn}.{n}"),) for n in range(100)}
        record = followed(listed(record, found), {}, living, own=own, now=0.0)
        assert len(record.accepted) <= 100 + MOST_LEFT + 2
        assert {"n1", "z", *found} <= record.accepted.keys()


def test_a_new_address_is_used_when_all_accept_it() -> None:
    """A node keeps sending from its old address until the others accept the new one; they drop the old one then."""
    nodes = {"n1": (OTHER,), "n2": (TWO,)}
    own = Self("n1", {4: ONE})
    record = followed(listed(Record(), nodes), {}, {}, own=own, now=0.0)
    assert record.accepted["n1"] == {ONE, OTHER}
    assert next_sources(record, {}, {"n2": joined(ONE)}, own=own, now=0.0) == ({4: ONE}, "n2")
    assert next_sources(record, {}, {"n2": joined(ONE, OTHER)}, own=own, now=0.0) == ({4: OTHER}, "")
    other = Self("n2", {4: TWO})
    before = followed(listed(Record(accepted={"n1": frozenset({ONE})}), nodes), {}, {}, own=other, now=0.0)
    assert before.accepted["n1"] == {ONE, OTHER}
    after = followed(before, {}, {"n1": joined(TWO, source=OTHER)}, own=other, now=0.0)
    assert after.accepted["n1"] == {OTHER}


def test_a_node_with_two_addresses_keeps_its_source() -> None:
    """The order in which the API lists the addresses of a node does not matter, and both are accepted."""
    nodes = {"n1": (OTHER, ONE)}
    record = followed(listed(Record(), nodes), {}, {}, own=Self("n1", {4: ONE}), now=0.0)
    assert record.accepted["n1"] == {ONE, OTHER}
    assert next_sources(record, {}, {}, own=Self("n1", {4: ONE}), now=0.0) == ({4: ONE}, "")


def test_a_list_without_addresses_changes_none() -> None:
    """An API server that reports no address of a node for a while removes none."""
    record = listed(listed(Record(), {"n2": (TWO,)}), {"n2": (), "n3": ()})
    assert record.nodes == {"n2": (TWO,)}


def test_no_node_takes_the_address_of_another() -> None:
    """Of two Nodes with one address this node has its own, and otherwise the first by name."""
    nodes = {"a": (ONE, TWO), "n1": (ONE,), "n2": (TWO,)}
    record = followed(listed(Record(), nodes), {}, {}, own=Self("n1", {4: ONE}), now=0.0)
    assert record.accepted == {"a": {TWO}, "n1": {ONE}}


def test_agents_that_do_not_follow_have_the_nodes_of_the_file() -> None:
    """A node joins beside agents of an earlier version if the file names both."""
    file = {"n1": (ONE,), "n2": (TWO,)}
    contacts = {"n2": Contact(0.0).answered(Answer(), now=0.0)}
    record = followed(Record(), file, contacts, own=Self("n1"), now=0.0)
    assert next_sources(record, file, contacts, own=Self("n1"), now=0.0) == ({4: ONE}, "")
    record = followed(listed(Record(), file), {"n1": (ONE,)}, contacts, own=Self("n1"), now=0.0)
    assert next_sources(record, {"n1": (ONE,)}, contacts, own=Self("n1"), now=0.0) == ({}, "n2")


def test_the_same_nodes_give_the_same_peers() -> None:
    """The order of the list does not matter."""
    nodes = {"n2": (TWO,), "n1": (ONE,)}
    found = [
        peers_of(followed(listed(Record(), some), {}, {}, own=Self("n1"), now=0.0), Self("n1"))
        for some in (nodes, dict(sorted(nodes.items())))
    ]
    assert found[0] == found[1]
