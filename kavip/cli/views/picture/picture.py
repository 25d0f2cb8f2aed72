"""
All sections of the page of one moment: what the controller has written, and what agents answer.

The states are those of ``kavip status``. Nothing is decided again. The number of rows is bounded: the page says if some
are left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from kavip.api import conditions
from kavip.api.address import read_address
from kavip.cli.views import status
from kavip.cli.views.doctor.inspection import AgentAnswer
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.addressmap import AddressMap, address_map
from kavip.cli.views.picture.problems import MOST, problems_of
from kavip.cli.views.picture.rows import (
    GroupRow,
    Level,
    MemberRow,
    NoteRow,
    PoolRow,
    ProblemRow,
    Row,
    TimelineRow,
    VirtualIPRow,
    shown,
)
from kavip.cli.views.picture.successors import Succession
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.agentstates import NodeState
from kavip.snapshot import Snapshot

MOST_ROWS: Final = 10_000
"""Rows of a section."""

_WELL: Final = (Reason.MASTER, Reason.LEFT_TO_PLATFORM)
_DOUBTFUL: Final = (Reason.UNKNOWN, Reason.PENDING, Reason.NO_ENDPOINTS, Reason.VRID_COLLISION, Reason.EXHAUSTED)
_READY: Final = (Reason.READY, Reason.ACCEPTED, Reason.PROGRAMMED)
_NO_POD: Final = "no pod of the group is on the node"
_NO_MAP: Final = AddressMap({}, (), 0)

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """
    The *answers* of agents; *silent*: why others did not answer, by group and node.

    *note*: why not all were asked, or none, "" if all were. *late*: why they may be outdated, "" if they are not.
    """

    answers: tuple[AgentAnswer, ...] = ()
    silent: Mapping[tuple[str, str], str] = field(default_factory=dict)
    note: str = ""
    late: str = ""

    def silence(self, group: str, node: str) -> str | None:
        """Why the agent of *group* on *node* has not answered; None if that is unknown."""
        is_whole = not self.note and (self.answers or self.silent)
        return self.silent.get((group, node), _NO_POD if is_whole else None)


NOT_ASKED: Final = AgentAnswers()


class Picture(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The sections; each is sorted."""

    problems: tuple[ProblemRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    members: tuple[MemberRow, ...] = ()
    vips: tuple[VirtualIPRow, ...] = ()
    pools: tuple[PoolRow, ...] = ()
    timeline: tuple[TimelineRow, ...] = ()
    notes: tuple[NoteRow, ...] = ()


def picture_of(listing: Listing, agents: AgentAnswers = NOT_ASKED, *, now: datetime) -> Picture:
    """The picture of *listing* and the answers of *agents*; it has no timeline."""
    snapshot = Snapshot.from_objects(listing.objects)
    snapshot.ledger.cooldown.expire(now)
    found = status.report_of(snapshot)
    vips = tuple(_vips(found.virtual_ips, Succession(agents.answers)))
    members, groups = tuple(_members(found, agents)), tuple(_groups(found.groups, snapshot))
    pools = tuple(_pools(found.pools, snapshot))
    problems = problems_of(vips, members, groups=groups, pools=pools, since=_since(snapshot))
    shown_vips, shown_members, shown_problems = _sorted(vips), _sorted(members), problems[:MOST]
    left_out = {
        "VIPs": len(vips) - len(shown_vips),
        "nodes": len(members) - len(shown_members),
        "problems": len(problems) - len(shown_problems),
    }
    notes = (
        *listing.notes,
        agents.note,
        agents.late and f"agents cannot be asked: {agents.late}",
        *(f"{count} {what} are not shown" for what, count in left_out.items() if count),
    )
    return Picture(
        problems=shown_problems,
        groups=_sorted(groups),
        members=shown_members,
        vips=shown_vips,
        pools=_sorted(pools),
        notes=tuple(
            NoteRow(id=f"{n:02} {shown(text)}", text=shown(text)) for n, text in enumerate(filter(None, notes))
        ),
    )


def _sorted(rows: Iterable[R]) -> tuple[R, ...]:
    """*rows* by their id, of which each is there once."""
    return tuple(row for _, row in sorted({row.id: row for row in rows}.items())[:MOST_ROWS])


# --- VIPs -------------------------------------------------------------------------------------------------------------
def _vips(found: Sequence[status.VirtualIPRow], succession: Succession) -> Iterator[VirtualIPRow]:
    for each in found:
        address = read_address(each.address)
        place = f"{address.family}{address.value:032x}" if address else "7"  # in the order of addresses
        yield VirtualIPRow(
            id=f"{place} {shown(each.address)} {shown(each.service or each.group)}",
            level=_level(each.state),
            address=shown(each.address),
            service=shown(each.service),
            group=shown(each.group),
            pool=shown(each.pool),
            node=shown(each.node),
            state=shown(each.state),
            message=shown(each.message),
            since=succession.since(each.group, each.address, node=each.node),
            successor=shown(succession.successor(each.group, each.address, node=each.node)),
        )


def _level(state: str, well: Iterable[str] = _WELL) -> Level:
    if state in well:
        return Level.OK
    return Level.WARNING if state in _DOUBTFUL else Level.ERROR


def _since(snapshot: Snapshot) -> Mapping[str, str]:
    """By Service, since when its first condition that is not True has been so."""
    found = {}
    kinds = (ConditionType.ADDRESS_ASSIGNED, ConditionType.SERVICE_PROGRAMMED, ConditionType.ADVERTISED)
    for key, service in snapshot.services.items():
        known = (conditions.find(service.status.conditions, kind) for kind in kinds)
        bad = next((each for each in known if each is not None and each.status != "True"), None)
        if bad is not None:
            found[key] = shown(bad.last_transition_time)
    return found


# --- groups and their nodes -------------------------------------------------------------------------------------------
def _groups(found: Iterable[status.GroupRow], snapshot: Snapshot) -> Iterator[GroupRow]:
    for each in found:
        group = snapshot.any_group(each.group)
        yield GroupRow(
            id=each.group,
            level=_level(each.state, _READY),
            group=shown(each.group),
            mode=shown(each.mode),
            interface=shown(group.spec.interface or group.spec.interface_from_ip) if group else "",
            desired=each.desired,
            ready=each.ready,
            current=each.current,
            state=shown(each.state),
            message=shown(each.message),
        )


def _members(found: status.StatusReport, agents: AgentAnswers) -> Iterator[MemberRow]:
    states = {(each.group, each.node): each.state for each in agents.answers}
    held = Counter({(each.group, each.node, each.address) for each in found.virtual_ips if each.node})
    counts = Counter((group, node) for group, node, _ in held)
    drained = {(each.group, node) for each in found.groups for node in each.drained}
    for node in found.nodes:
        for group in node.groups:
            key = group, node.node
            answer, problems, level = _agent(states.get(key), agents.silence(group, node.node))
            yield MemberRow(
                id=f"{group} {node.node}",
                level=Level.ERROR if node.ready is False else level,
                group=shown(group),
                node=shown(node.node),
                ready=node.ready,
                cordoned=node.cordoned,
                drained=node.drained or key in drained,
                virtual_ips=counts[key],
                agent=answer,
                problems=problems,
            )


def _agent(state: NodeState | None, silence: str | None) -> tuple[str, tuple[str, ...], Level]:
    """Whether an agent answers, what is wrong with it, and how much that matters."""
    if state is None:
        return ("Unknown", (), Level.OK) if silence is None else ("Silent", (shown(silence),), Level.ERROR)
    errors = ["keepalived does not run"] if not state.running else []
    if state.refused:
        errors.append(f"its configuration is refused: {state.refused}")
    warnings = [each.message for each in state.notes]
    warnings += [f"{each.name} does not run as it is wanted: {each.reason}" for each in state.excluded]
    level = Level.ERROR if errors else Level.WARNING if warnings else Level.OK
    return "Answers", tuple(map(shown, (*errors, *warnings))), level


# --- pools ------------------------------------------------------------------------------------------------------------
def _pools(found: Iterable[status.PoolRow], snapshot: Snapshot) -> Iterator[PoolRow]:
    for each in found:
        wire, pool = snapshot.pools[each.pool], snapshot.parsed_pools.read(each.pool)
        addresses = address_map(pool, snapshot) if pool is not None else _NO_MAP
        problem = next((one for one in wire.status.conditions or () if one.status == "False"), None)
        yield PoolRow(
            id=f"{each.priority:010} {each.pool}",
            level=_level(each.state, _READY),
            pool=shown(each.pool),
            priority=each.priority,
            auto_assign=wire.spec.auto_assign,
            interface=shown(each.interface),
            state=shown(each.state),
            message=shown(problem.message) if problem else "",
            counts=addresses.counts,
            spans=addresses.spans,
            omitted=addresses.omitted,
        )
