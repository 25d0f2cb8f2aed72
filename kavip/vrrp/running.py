"""
What a published ``keepalived.conf`` makes its nodes run: its instances, and the nodes that take part.

The published text is the record of what runs. Only texts that kavip wrote are read; others have no instances and no
nodes. Each value is read in the form in which kavip writes it, because it may be written again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address, read_address
from kavip.api.naming import is_interface
from kavip.memo import KEEPS_NOTHING, Memory, recent
from kavip.names import MAX_ROUTER_ID
from kavip.vrrp.addresslists import AddressList, read_line
from kavip.vrrp.drain import NO_TURNS, Turns
from kavip.vrrp.identity import Identity, identity_of
from kavip.vrrp.instances import NO_SOURCE, Model
from kavip.vrrp.priorities import NO_HOMES
from kavip.vrrp.timing import LONGEST
from kavip.vrrp.tokens import WORD
from kavip.vrrp.tracking import LOCAL
from kavip.vrrp.virtualips import VirtualIP, addresses_of, interfaces_of, is_anchor

_OPEN: Final = "vrrp_instance "
_HEAD: Final = re.compile(r"^vrrp_instance ", re.MULTILINE)
_INSTANCE: Final = re.compile(rf"vrrp_instance ({WORD}) \{{\n")
_ROUTER_ID: Final = re.compile(r"^    virtual_router_id ([0-9]{1,3})$", re.MULTILINE)
_INTERFACE: Final = re.compile(rf"^    interface ({WORD})$", re.MULTILINE)
_VERSION: Final = re.compile(r"^    version ([23])$", re.MULTILINE)
_INTERVAL: Final = re.compile(r"^    advert_int ([0-9]{1,3}(?:\.[0-9]{1,3})?)$", re.MULTILINE)
_VIPS: Final = "\n    virtual_ipaddress {\n"
_EXCLUDED: Final = "\n    virtual_ipaddress_excluded {\n"
_LIST: Final = "virtual_ipaddress"
_UNICAST: Final = "\n    unicast_peer {\n"
_AUTHENTICATED: Final = "\n    # kavip: authentication\n"
_DEAD: Final = re.compile(rf"^# kavip: dead ({WORD})$", re.MULTILINE)
_HOME: Final = re.compile(rf"^# kavip: home ({WORD}) ({WORD})$", re.MULTILINE)
_SPREAD: Final = re.compile(rf"^# kavip: spread ({WORD})$", re.MULTILINE)
_DRAINED: Final = re.compile(rf"^# kavip: drained ({WORD})(?: ([0-9]{{1,9}}))?$", re.MULTILINE)
_LACKS: Final = re.compile(rf"^# kavip: lacks ({WORD}) ({WORD})$", re.MULTILINE)
_PRIORITY: Final = re.compile(rf"^    @({WORD}) priority ([0-9]{{1,3}})$", re.MULTILINE)
_OTHER_NODE: Final = re.compile(
    rf"^    @(?!{WORD} (?:priority [0-9]{{1,3}}|unicast_src_ip [0-9A-Fa-f:.]+)$|\^{WORD} nopreempt$)", re.MULTILINE
)
_NO_PREEMPT: Final = re.compile(r"^    (?:@\^\S+ )?nopreempt$", re.MULTILINE)
_LOCAL: Final = f"\n        {LOCAL}"
_NODE: Final = re.compile(
    rf"^ +@(?P<listed>{WORD}) priority [0-9]{{1,3}}$|^ +@(?P<source>{WORD}) unicast_src_ip (?P<own>\S+)$"
    rf"|^ +@\^(?P<peer>{WORD}) (?P<accepted>[0-9A-Fa-f:.]+)(?: |$)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class RunningInstance:
    """
    One instance of a text; *virtual_ips* are all its addresses except an anchor that is no VIP.

    *carried*: the addresses of the VIPs.
    """

    name: str
    identity: Identity
    virtual_ips: tuple[VirtualIP, ...]
    carried: frozenset[Address]

    @cached_property
    def interfaces(self) -> frozenset[str]:
        """The interfaces of the VIPs."""
        return interfaces_of(self.virtual_ips)


NO_INSTANCES: Final[Mapping[str, RunningInstance]] = MappingProxyType({})
NO_BLOCKS: Final[Mapping[str, "_Block"]] = MappingProxyType({})


def running_instances(text: str, memory: Memory = KEEPS_NOTHING) -> Mapping[str, RunningInstance]:
    """The instances of *text*, by name."""
    return memory.last(_instances, "", text, memory)


def instances_of(model: Model) -> Mapping[str, RunningInstance]:
    """The same for the text of *model*."""
    found = {
        each.name: RunningInstance(each.name, identity_of(each), each.virtual_ips, each.carried)
        for each in model.instances
    }
    return MappingProxyType(found)


def has_instances(text: str) -> bool:
    """Whether *text* has an instance."""
    return next(_blocks(text), None) is not None


def is_read_in_full(text: str, found: Mapping[str, RunningInstance]) -> bool:
    """Whether *found* are all instances of *text*, with all their lines for nodes: so it is with each text of kavip."""
    return len(_HEAD.findall(text)) == len(found) and not _OTHER_NODE.search(text)


def _instances(text: str, memory: Memory) -> Mapping[str, RunningInstance]:
    last = memory.state(_LastText)
    blocks = dict(_blocks(text, last.blocks))  # of several with one name the last one
    last.blocks = {name: _read(name, block, last.blocks.get(name)) for name, block in blocks.items()}
    return MappingProxyType({name: each.instance for name, each in last.blocks.items() if each.instance is not None})


@dataclass(frozen=True, slots=True)
class _Block:
    """The *text* between the braces of an instance, with its *excluded* addresses."""

    text: str
    excluded: AddressList
    instance: RunningInstance | None


@dataclass(slots=True)
class _LastText:
    """The *blocks* of the text that was read last, by instance."""

    blocks: Mapping[str, _Block] = field(default_factory=dict)


def _blocks(text: str, known: Mapping[str, _Block] = NO_BLOCKS) -> Iterator[tuple[str, str]]:
    """
    The name of each instance of *text*, and the text between its braces.

    One that is *known* is found by comparison, which is faster than the search for its end.
    """
    place = 0
    while match := _INSTANCE.search(text, place):
        place = match.end()
        if match.start() and text[match.start() - 1] != "\n":
            continue
        block = known[match[1]].text if match[1] in known else None
        if block is None or not (text.startswith(block, place) and text.startswith("}", place + len(block))):
            if (end := _closing_brace(text, place)) < 0:
                return  # not closed, and neither is any later one
            block = text[place:end]
        yield match[1], block
        place += len(block) - 1


def _closing_brace(text: str, place: int) -> int:
    """The first brace from *place* on that begins a line; -1 without one. ``find`` is fast for one character only."""
    end = text.find("}", place)
    while end >= 0 and text[end - 1] != "\n":
        end = text.find("}", end + 1)
    return end


def _read(name: str, block: str, before: _Block | None) -> _Block:
    """*block* of the instance *name*, whose last one is that *before*."""
    if before is not None and before.text is block:
        return before
    excluded = (before.excluded if before else AddressList()).then(_lines(block, _EXCLUDED))
    return _Block(block, excluded, _instance(name, block, excluded))


def _lines(block: str, head: str) -> str:
    """The lines of the list of *block* after *head*; a brace within a line does not end it."""
    begin = block.find(head) + len(head)
    if begin < len(head):
        return ""
    end = block.find("}", begin)
    while end >= 0 and block[end - 5 : end + 2] != "\n    }\n":
        end = block.find("}", end + 1)
    return block[begin : end - 4] if end >= 0 else block[begin:]


def _instance(name: str, block: str, excluded: AddressList) -> RunningInstance | None:
    router_id, interface = _ROUTER_ID.search(block), _INTERFACE.search(block)
    version, interval = _VERSION.search(block), _INTERVAL.search(block)
    head, lines = block[: block.find(_VIPS) + 1], _lines(block, _VIPS).removesuffix("\n").split("\n")
    advertised = tuple(filter(None, map(read_line, lines)))
    if not (router_id and interface and version and interval and advertised) or len(advertised) < len(lines):
        return None
    is_valid = 1 <= int(router_id[1]) <= MAX_ROUTER_ID and 0 < float(interval[1]) <= LONGEST
    has_lists = block.count(_LIST) == (_VIPS in block) + (_EXCLUDED in block) and block.count("{") == block.count("}")
    if not (is_valid and has_lists and is_interface(interface[1])) or excluded.unreadable:
        return None  # no configuration of kavip has it, and no agent would accept it again
    identity = Identity(
        int(router_id[1]),
        interface[1],
        int(version[1]),
        interval[1],
        _UNICAST in head,
        _AUTHENTICATED in head,
        *(advertised[0], advertised[1:]),
    )
    vips = tuple(each for each in advertised if not is_anchor(each.address))
    return RunningInstance(name, identity, vips + excluded.vips, addresses_of(vips) | excluded.addresses)


@dataclass(frozen=True)
class RunningNodes:
    """
    The nodes that take part in a text: the *listed* ones have a priority.

    *sources* and *accepted* are pairs of node and address: where a node sends from, and what others accept. Both are
    empty in multicast. *dead*: because these nodes are dead, VIPs of spread Services have other first nodes.
    *drained*: these rank behind all others; without a number their turn is the first. *lacking*: nodes with an
    interface that they do not have. *homes*: by unit, the node that ranks first in place of the hash's. *spread*: the
    units whose VIPs are spread.
    """

    listed: frozenset[str] = frozenset()
    sources: frozenset[tuple[str, Address]] = frozenset()
    accepted: frozenset[tuple[str, Address]] = frozenset()
    dead: frozenset[str] = frozenset()
    drained: Turns = field(default_factory=lambda: NO_TURNS)
    homes: Mapping[str, str] = field(default_factory=lambda: NO_HOMES)
    spread: frozenset[str] = frozenset()
    lacking: frozenset[tuple[str, str]] = frozenset()

    def source(self, node: str, family: int) -> Address | None:
        """The address of *family* that *node* sends from."""
        return self._source_of.get((node, family))

    def accepted_from(self, node: str, family: int) -> frozenset[Address]:
        """The source addresses of *family* from which the others accept adverts of *node*."""
        return self._accepted_from.get((node, family), frozenset())

    def lacking_of(self, node: str) -> frozenset[str]:
        """The interfaces that *node* does not have."""
        return frozenset(interface for name, interface in self.lacking if name == node)

    @cached_property
    def families(self) -> frozenset[int]:
        """The families of unicast instances."""
        return frozenset(address.family for _, address in self.sources)

    @cached_property
    def _source_of(self) -> Mapping[tuple[str, int], Address]:
        return {(node, address.family): address for node, address in sorted(self.sources)}

    @cached_property
    def _accepted_from(self) -> Mapping[tuple[str, int], frozenset[Address]]:
        found: dict[tuple[str, int], set[Address]] = {}
        for node, address in self.accepted:
            found.setdefault((node, address.family), set()).add(address)
        return {key: frozenset(addresses) for key, addresses in found.items()}


@recent(most=16)
def running_nodes(text: str) -> RunningNodes:
    """
    The nodes that take part in *text*.

    All instances of a family have the same nodes, so only the first instance of each family is read.
    """
    return _nodes("\n".join([text[: max(0, text.find(_OPEN))], *_first_blocks(text)]))


@recent(most=16)  # most changes are in the lists of VIPs
def _nodes(text: str) -> RunningNodes:
    """The nodes in *text*: the head and the first instances."""
    listed: set[str] = set()
    sources: set[tuple[str, Address]] = set()
    accepted: set[tuple[str, Address]] = set()
    head = max(0, text.find(_OPEN))
    for match in _NODE.finditer(text, head):
        if match["listed"]:
            listed.add(match["listed"])
        elif match["source"] and (address := read_address(match["own"])):
            sources.add((match["source"], address))
        elif match["peer"] and (address := read_address(match["accepted"])):
            accepted.add((match["peer"], address))
    dead, spread = (frozenset(each.findall(text, 0, head)) for each in (_DEAD, _SPREAD))
    drained = MappingProxyType({node: int(turn or 1) for node, turn in _DRAINED.findall(text, 0, head)})
    homes = MappingProxyType(dict(_HOME.findall(text, 0, head)))
    lacking = frozenset(_LACKS.findall(text, 0, head))
    return RunningNodes(
        frozenset(listed), frozenset(sources), frozenset(accepted), dead, drained, homes, spread, lacking
    )


def node_orders(text: str) -> Mapping[str, tuple[str, ...]]:
    """
    The nodes of each instance of *text*, the one that should be master first.

    Instances that follow endpoints are left out: their text does not say on which nodes these are.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, block in _blocks(text):
        ranked = sorted(((int(number), node) for node, number in _PRIORITY.findall(block)), reverse=True)
        if ranked and _LOCAL not in block:
            found[name] = tuple(node for _, node in ranked)
    return found


def first_nodes(text: str, *, dead: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """The node that should be master of each instance of *text*, as in :func:`node_orders`, without the *dead* ones."""
    return first_of(node_orders(text), dead)


def first_of(orders: Mapping[str, tuple[str, ...]], dead: frozenset[str]) -> Mapping[str, str]:
    """The first node of each of *orders* that is not *dead*; instances without one are left out."""
    firsts = ((name, next((node for node in order if node not in dead), "")) for name, order in orders.items())
    return {name: node for name, node in firsts if node}


def instances_without_preemption(text: str) -> frozenset[str]:
    """The instances of *text* with ``nopreempt``: any node may be their master."""
    return frozenset(name for name, block in _blocks(text) if _NO_PREEMPT.search(block))


def _first_blocks(text: str) -> Iterator[str]:
    """The first instance, and the first unicast instance of each family, each up to its VIPs."""
    marks = [_OPEN, *(f" unicast_src_ip {address}\n" for address in NO_SOURCE.values())]
    for mark in marks:
        found = text.find(mark)
        if found >= 0:
            begin = text.rfind(_OPEN, 0, found + len(_OPEN))
            yield text[begin : text.find(_VIPS, begin)]
