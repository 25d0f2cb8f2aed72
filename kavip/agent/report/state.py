"""The status of the agent, and the body of ``/state`` made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from kavip.agent.config.model import Exclusion
from kavip.agent.report.dump import Dump, Stats, addresses_of
from kavip.agent.report.health import CheckStatus
from kavip.api import agent
from kavip.api.agent import (
    SEPARATOR,
    AdvertErrors,
    AgentState,
    Capability,
    CheckReport,
    ConflictReport,
    ExcludedReport,
    InstanceReport,
    KeepalivedReport,
    LocalReport,
    NodeProblem,
    ProblemCode,
    Standing,
)
from kavip.api.instant import instant_text

_INSTANCES: Final = 512
"""Instances whose texts are cached between two answers: 255 VRIDs in two families."""
_NO_PROBLEM: Final = NodeProblem(ProblemCode.NONE, "")


@dataclass(frozen=True, slots=True)
class Standings:
    """
    Whether the node takes part in a static group.

    keepalived runs a configuration that sends adverts from *sources*, and accepts them from *peers*. *file*: the hash
    of the group's file; *switch_at*: when the node leaves multicast for it.
    """

    standing: Standing = Standing.NONE
    sources: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    file: str = ""
    switch_at: str = ""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """
    What the agent has done so far.

    *config_hash* belongs to the configuration that keepalived runs, *wanted_hash* to the mounted one. *prepared* is
    the digest of the next configuration if the node can switch to it; otherwise *next_refused* is the reason. *now* is
    the node's clock meanwhile. *missing* and *next_missing*: the interfaces of the two that the node lacks.
    *new_password_since*: when the mounted password first differed from the running one. *hardware*: the node's hardware
    addresses. *conflicts*: the VIPs that other machines claim; *asked_addresses* and *defences* count the VIPs that the
    LAN was asked for, and the announcements that defended one. *standings*: in a static group.
    """

    node: str
    group: str = ""
    config_hash: str = ""
    wanted_hash: str = ""
    refused: NodeProblem | None = None
    excluded: tuple[Exclusion, ...] = ()
    notes: tuple[NodeProblem, ...] = ()
    prepared: str = ""
    next_refused: NodeProblem | None = None
    switch_at: str = ""
    now: str = ""
    new_password_since: str = ""
    version: str = ""
    reloads: int = 0
    failed_reloads: int = 0
    refusals: int = 0
    removed_addresses: int = 0
    reload_seconds: float = 0.0
    checks: tuple[CheckStatus, ...] = ()
    locals: tuple[tuple[str, bool | None], ...] = ()
    hardware: tuple[str, ...] = ()
    conflicts: tuple[ConflictReport, ...] = ()
    asked_addresses: int = 0
    defences: int = 0
    missing: frozenset[str] = frozenset()
    next_missing: frozenset[str] = frozenset()
    routed_pools: tuple[str, ...] = ()
    standings: Standings = Standings()

    @property
    def current(self) -> bool:
        """Whether keepalived runs the wanted configuration; excluded instances do not count."""
        return bool(self.wanted_hash) and self.config_hash == self.wanted_hash and self.refused is None


@dataclass(frozen=True, slots=True)
class StateChange:
    """When an instance entered its *state*; *changes* counts its transitions to and from MASTER until then."""

    state: int
    changes: int
    seconds: float


StateChanges = Mapping[str, StateChange]


def state_changes(dump: Dump, before: StateChanges) -> StateChanges:
    """
    When each instance of *dump* entered its state, by name; *before* is the result for the previous dump.

    keepalived's own ``last_transition`` is the last reload, too; its counters change only with the state.
    """
    found: dict[str, StateChange] = {}
    for each in dump:
        changes = each.stats.become_master + each.stats.release_master
        known = before.get(each.data.iname)
        stayed = known is not None and (known.state, known.changes) == (each.data.state, changes)
        change = known if known and stayed else StateChange(each.data.state, changes, each.data.last_transition)
        found[each.data.iname] = change
    return found


def agent_state(status: AgentStatus, dump: Dump | None, changes: StateChanges) -> AgentState:
    """The body of ``/state``; *dump* is None if keepalived does not answer."""
    refused, next_refused = status.refused or _NO_PROBLEM, status.next_refused or _NO_PROBLEM
    return AgentState(
        node=status.node,
        group=status.group,
        config_hash=status.config_hash,
        wanted_hash=status.wanted_hash,
        refused=refused.message,
        refused_code=refused.code,
        note=SEPARATOR.join(each.message for each in status.notes),
        notes=status.notes,
        prepared=status.prepared,
        next_refused=next_refused.message,
        next_refused_code=next_refused.code,
        switch_at=status.switch_at or status.standings.switch_at,
        now=status.now,
        new_password=status.new_password_since,
        keepalived=KeepalivedReport(version=status.version, running=dump is not None),
        instances=_instances(dump or (), changes),
        left_out=tuple(map(_excluded, status.excluded)),
        checks=tuple(
            CheckReport(name=each.check.name, ok=not each.health.fails, since=each.since, message=each.message)
            for each in status.checks
        ),
        locals=tuple(LocalReport(track=track, ready=ready) for track, ready in status.locals),
        hardware_addresses=status.hardware,
        conflicts=status.conflicts,
        missing_interfaces=tuple(sorted(status.missing | status.next_missing)),
        routed_pools=status.routed_pools,
        standing=status.standings.standing,
        sources=status.standings.sources,
        peers=status.standings.peers,
        file_hash=status.standings.file,
        capabilities=(Capability.COMPACT_TEXT, Capability.PACKED_TEXT),
    )


def encode(state: AgentState, *, by_hash: bool = False) -> bytes:
    """The JSON of ``/state``; *by_hash*: for a client that prefers :data:`~kavip.api.agent.VIPS_BY_HASH`."""
    return msgspec.json.encode(agent.by_hash(state, _hash_of) if by_hash else state) + b"\n"


def _instances(dump: Dump, changes: StateChanges) -> tuple[InstanceReport, ...]:
    return tuple(
        InstanceReport(
            name=each.data.iname,
            router_id=each.data.vrid,
            family=each.data.family,
            state=each.data.state_name,
            virtual_ips=_address_texts((*each.data.vips, *each.data.evips)),
            priority=each.data.effective_priority,
            last_transition=_timestamp(changes[each.data.iname].seconds),
            interface=each.data.ifp_ifname,
            transitions=changes[each.data.iname].changes,
            errors=_errors(each.stats),
            anchor="".join(map(str, addresses_of(each.data.vips[:1]))),
        )
        for each in dump
    )


def _excluded(excluded: Exclusion) -> ExcludedReport:
    return ExcludedReport(
        name=excluded.name,
        reason=excluded.fault.message,
        by=excluded.fault.by,
        kept=excluded.kept,
        virtual_ips=tuple(sorted(str(vip.address) for vip in excluded.virtual_ips)),
        code=excluded.fault.code,
        interface=excluded.fault.interface,
    )


def _errors(stats: Stats) -> AdvertErrors:
    return AdvertErrors(
        address_list=stats.addr_list_err,
        authentication=stats.unauthenticated,
        interval=stats.advert_interval_err,
    )


@lru_cache(_INSTANCES)
def _address_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(address) for address in addresses_of(texts))


_hash_of: Final = lru_cache(_INSTANCES)(agent.hash_of)


@lru_cache(_INSTANCES)
def _timestamp(seconds: float) -> str:
    """RFC 3339 in UTC; "" for an instance that has not changed its state yet."""
    return instant_text(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else ""
