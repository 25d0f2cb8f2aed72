"""
What an agent says at ``/state``, and what decisions need of it.

Whatever an agent says more or less is taken: agents of an older kavip, and of a newer one, are asked as well. But who
answers may be whoever has taken the node: what is longer than an agent could mean is no state, so that a lie costs
little, and fits into a status.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from kavip.api.address import Address, read_address
from kavip.api.instant import read_instant
from kavip.api.meta import Wire, field
from kavip.names import MAX_ROUTER_ID
from kavip.reconcile.observed.collisions import Sign, Trace
from kavip.reconcile.observed.nodes import BY_KEEPALIVED, EVER, MASTER, ExcludedInstance, InstanceState, NodeState

DRIFT: Final = 0.3
"""Seconds by which a node's clock may differ from ours: more would show as two masters while nodes switch."""


_MOST: Final = 1024  # entries of a list; a daemon runs 510 instances at most
_MOST_VIPS: Final = 1 << 16  # in all; a ConfigMap has room for half of them

T = TypeVar("T")
Many = Annotated[list[T], Meta(max_length=_MOST)]
Name = Annotated[str, Meta(max_length=400)]  # as in status.instances, and so is a word
Word = Annotated[str, Meta(max_length=32)]


class ErrorsReport(Wire, frozen=True, gc=False):
    """``instances[].errors`` of ``/state``: adverts that keepalived did not take, counted since it started."""

    address_list: int = 0
    authentication: int = 0
    interval: int = 0


class InstanceReport(Wire, frozen=True, gc=False):
    """``instances[]`` of ``/state``."""

    name: Name
    router_id: Annotated[int, Meta(ge=0, le=MAX_ROUTER_ID)] = field(name="routerID", default=0)
    family: int = 4
    state: Word = ""
    virtual_ips: list[str] = field(name="virtualIPs", default=[])
    priority: int = 0
    last_transition: Name = ""
    interface: Name = ""
    errors: ErrorsReport = ErrorsReport()


class LeftOutReport(Wire, frozen=True, gc=False):
    """``leftOut[]`` of ``/state``."""

    name: str
    reason: str = ""
    by: str = ""
    kept: bool = False
    virtual_ips: list[str] = field(name="virtualIPs", default=[])


class LocalReport(Wire, frozen=True, gc=False):
    """``locals[]`` of ``/state``: whether a Service with ``externalTrafficPolicy: Local`` answers there."""

    track: str
    ready: bool | None = None


class DaemonReport(Wire, frozen=True):
    """``keepalived`` of ``/state``."""

    version: str = ""
    running: bool = False


class Report(Wire, frozen=True):
    """What an agent says at ``/state``, as far as the controller asks."""

    group: str
    config_hash: str = ""
    refused: str = ""
    note: str = ""
    keepalived: DaemonReport = DaemonReport()
    instances: Many[InstanceReport] = []
    left_out: Many[LeftOutReport] = []
    prepared: str = ""
    next_refused: str = ""
    switch_at: str = ""
    now: str = ""
    new_password: str = ""
    locals: Many[LocalReport] = []


def state_of(body: bytes) -> Report:
    """Decode an answer; raises :class:`msgspec.MsgspecError`."""
    try:
        report = msgspec.json.decode(body, type=Report)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    vips = [*(each.virtual_ips for each in report.instances), *(each.virtual_ips for each in report.left_out)]
    if sum(map(len, vips)) > _MOST_VIPS:
        raise msgspec.ValidationError(f"more than {_MOST_VIPS:,} virtual IPs")
    return report


def summary(report: Report, *, asked: datetime | None = None, answered: datetime | None = None) -> NodeState:
    """What decisions need of *report*, for which a node was *asked* and that it *answered*, by our clock."""
    runs: dict[Address, str] = {}
    masters: set[Address] = set()
    for instance in report.instances:
        addresses = {address for text in instance.virtual_ips if (address := read_address(text))}
        runs |= dict.fromkeys(addresses, instance.name)
        if instance.state == MASTER:
            masters |= addresses
    sights = (
        InstanceState(
            each.name,
            each.router_id,
            each.family,
            each.state,
            len(each.virtual_ips),
            each.last_transition,
            each.priority,
        )
        for each in report.instances
    )
    return NodeState(
        config_hash=report.config_hash,
        refused=_short(report.refused),
        note=_short(report.note),
        running=report.keepalived.running,
        runs=frozenset(runs),
        masters=frozenset(masters),
        instance_of=runs,
        instances=tuple(sorted(sights, key=lambda sight: sight.name)),
        excluded=tuple(sorted(map(_left_out, report.left_out), key=lambda left_out: left_out.name)),
        prepared=_short(report.prepared),
        next_refused=_short(report.next_refused),
        switch_at=_short(report.switch_at),
        drift=drift_of(read_instant(report.now), asked or EVER, answered or datetime.max.replace(tzinfo=UTC)),
        new_password=_short(report.new_password),
        unready=frozenset(_short(each.track) for each in report.locals if each.ready is False),
    )


def resumed(state: NodeState, before: NodeState) -> NodeState:
    """
    *state* of a node without a keepalived, as if it ran what it ran *before*; nobody is master of anything there.

    A daemon that dies is back within seconds, with the same configuration. To say otherwise of each of the group's
    Services meanwhile, and take it back, would be two writes of each for nothing.
    """
    if state.refused or not before.config_hash:
        return state
    return replace(
        state,
        config_hash=before.config_hash,
        runs=before.runs,
        instance_of=before.instance_of,
        excluded=before.excluded,
    )


def drift_of(told: datetime | None, asked: datetime, answered: datetime) -> float | None:
    """
    By how many seconds a clock is off that was *told* between two moments of ours; 0 where that does not matter.

    None: it was not told.
    """
    if told is None:
        return None
    off = max((asked - told).total_seconds(), (told - answered).total_seconds())
    return round(off, 1) if off > DRIFT else 0.0


def counts_of(report: Report) -> Mapping[Trace, int]:
    """What *report* counts of adverts that are not its group's."""
    found = {}
    for each in report.instances:
        what = each.name, each.router_id, _short(each.interface)
        found[Trace(*what, Sign.ADDRESSES)] = each.errors.address_list
        found[Trace(*what, Sign.PASSWORD)] = each.errors.authentication
        found[Trace(*what, Sign.INTERVAL)] = each.errors.interval
    return found


def _left_out(told: LeftOutReport) -> ExcludedInstance:
    return ExcludedInstance(
        name=_short(told.name),
        reason=_short(told.reason),
        by_keepalived=told.by == BY_KEEPALIVED,
        kept=told.kept,
        virtual_ips=frozenset(address for text in told.virtual_ips if (address := read_address(text))),
    )


def _short(text: str) -> str:
    """An agent's word goes into conditions: one short line."""
    return " ".join(text.split())[:200]
