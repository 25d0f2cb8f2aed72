"""
The answer of an agent at ``/state``, as decisions need it.

The answer is untrusted: a node may be compromised, and a router on the way may change what it says. Texts are cut
and made printable, so that they fit into a status, and of the VIPs only those are read that the group wants.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec

from kavip.api.address import Address, read_address
from kavip.api.agent import (
    LONGEST,
    SEPARATOR,
    AgentState,
    Capability,
    ConflictKind,
    ExcludedReport,
    NodeProblem,
    RefusedBy,
    short_line,
)
from kavip.api.instant import read_instant
from kavip.reconcile.observed.agentstates import (
    EVER,
    MASTER,
    ClaimedAddress,
    ExcludedInstance,
    InstanceState,
    NodeState,
)
from kavip.reconcile.observed.collisions import Sign, Trace
from kavip.reconcile.observed.foreignclaims import is_hardware

DRIFT: Final = 0.3
"""Seconds by which a node's clock may differ from the controller's: more would show as two masters during a switch."""


WantedVIPs = Mapping[str, Address]
"""The VIPs of a group, by their canonical text, which is how agents report them."""
KnownLists = Mapping[str, frozenset[Address]]
"""The wanted VIPs of the lists that agents report by their hashes."""
NO_LISTS: Final[KnownLists] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the VIPs of a report are: those of each of its instances, all that it *runs*, and the instance of each."""

    addresses: tuple[frozenset[Address], ...]
    runs: frozenset[Address]
    instance_of: Mapping[Address, str]

    @classmethod
    def of(cls, state: AgentState, wanted: WantedVIPs | None, lists: KnownLists = NO_LISTS) -> "Placement":
        """The VIPs in *state* that are *wanted*, None: all; *lists*: those that it reports by hash."""
        find: Callable[[str], Address | None] = read_address if wanted is None else wanted.get
        addresses, instance_of = list[frozenset[Address]](), dict[Address, str]()
        for each in state.instances:
            found = frozenset(address for text in each.virtual_ips if (address := find(text)))
            if each.virtual_ips_hash and not each.virtual_ips:
                found = lists.get(each.virtual_ips_hash, frozenset())
            addresses.append(found)
            instance_of |= dict.fromkeys(found, short_line(each.name))
        return cls(tuple(addresses), frozenset(instance_of), instance_of)


def node_state(
    state: AgentState,
    *,
    wanted: WantedVIPs | None = None,
    placement: Placement | None = None,
    asked: datetime | None = None,
    answered: datetime | None = None,
) -> NodeState:
    """
    What decisions need of *state*: of its VIPs those that are *wanted*; None: all.

    *placement*: that of these VIPs, if it is known. The agent was *asked* and *answered* at these times of the
    controller's clock.
    """
    find: Callable[[str], Address | None] = read_address if wanted is None else wanted.get
    placement = placement or Placement.of(state, wanted)
    placed = list(zip(state.instances, placement.addresses, strict=True))
    sights = (
        InstanceState(
            short_line(each.name),
            each.router_id,
            each.family,
            short_line(each.state),
            len(addresses),
            short_line(each.last_transition),
            each.priority,
            short_line(each.anchor),
        )
        for each, addresses in placed
    )
    return NodeState(
        config_hash=short_line(state.config_hash),
        refused=short_line(state.refused),
        refused_code=state.refused_code,
        notes=tuple(_bounded(state.notes)),
        running=state.keepalived.running,
        runs=placement.runs,
        masters=frozenset[Address]().union(*(addresses for each, addresses in placed if each.state == MASTER)),
        instance_of=placement.instance_of,
        instances=tuple(sorted(sights, key=lambda sight: sight.name)),
        excluded=tuple(sorted((_excluded(each, find) for each in state.left_out), key=lambda each: each.name)),
        prepared=short_line(state.prepared),
        next_refused=short_line(state.next_refused),
        next_refused_code=state.next_refused_code,
        switch_at=short_line(state.switch_at),
        drift=drift_of(read_instant(state.now), asked or EVER, answered or datetime.max.replace(tzinfo=UTC)),
        new_password=short_line(state.new_password),
        unready=frozenset(short_line(each.track) for each in state.locals if each.ready is False),
        hardware=tuple(filter(is_hardware, state.hardware_addresses)),
        claimed=tuple(sorted(_claimed(state, find))),
        missing=frozenset(map(short_line, state.missing_interfaces)),
        routed=frozenset(map(short_line, state.routed_pools)),
        reads_compact=Capability.COMPACT_TEXT in state.capabilities,
        reads_packed=Capability.PACKED_TEXT in state.capabilities,
    )


def resumed(state: NodeState, before: NodeState) -> NodeState:
    """
    *state* of a node whose keepalived has just ended, as if it still ran what it ran *before*, but without a master.

    kubelet starts keepalived again within seconds, with the same configuration. Reporting the gap would cost two status
    writes for each Service of the group.
    """
    if state.refused or not before.config_hash:
        return state
    return replace(
        state,
        config_hash=before.config_hash,
        runs=before.runs,
        instance_of=before.instance_of,
        excluded=before.excluded,
        missing=before.missing,
    )


def drift_of(reported: datetime | None, asked: datetime, answered: datetime) -> float | None:
    """
    By how many seconds the node's clock is off, which showed *reported* between two moments of the controller's clock.

    0 up to :data:`DRIFT`; None: the node does not report its clock.
    """
    if reported is None:
        return None
    off = max((asked - reported).total_seconds(), (reported - answered).total_seconds())
    return round(off, 1) if off > DRIFT else 0.0


def counts_of(state: AgentState) -> Mapping[Trace, int]:
    """The counters of adverts that came from outside the group."""
    found = {}
    for each in state.instances:
        what = short_line(each.name), each.router_id, short_line(each.interface)
        found[Trace(*what, Sign.ADDRESSES)] = each.errors.address_list
        found[Trace(*what, Sign.PASSWORD)] = each.errors.authentication
        found[Trace(*what, Sign.INTERVAL)] = each.errors.interval
    return found


def _excluded(excluded: ExcludedReport, find: Callable[[str], Address | None]) -> ExcludedInstance:
    return ExcludedInstance(
        name=short_line(excluded.name),
        reason=short_line(excluded.reason),
        by_keepalived=excluded.by is RefusedBy.KEEPALIVED,
        kept=excluded.kept,
        virtual_ips=frozenset(address for text in excluded.virtual_ips if (address := find(text))),
        code=excluded.code,
        interface=short_line(excluded.interface),
    )


def _claimed(state: AgentState, find: Callable[[str], Address | None]) -> Iterator[ClaimedAddress]:
    for each in state.conflicts:
        address = find(each.address)
        if address is not None and is_hardware(each.hardware_address) and each.kind is not ConflictKind.OTHER:
            is_held = each.kind is ConflictKind.HELD
            yield ClaimedAddress(address, each.hardware_address, short_line(each.interface), is_held)


def _bounded(notes: Iterable[NodeProblem]) -> Iterator[NodeProblem]:
    """The first of *notes*; joined they are one short line."""
    room = LONGEST
    for each in notes:
        if message := short_line(each.message)[: max(room, 0)]:
            yield msgspec.structs.replace(each, message=message)
        room -= len(message) + len(SEPARATOR)
