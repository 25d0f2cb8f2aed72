"""What an agent tells about its node, as values and as the JSON of ``/state``: no password, no path, no file's text."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from kavip.agent.config.model import LeftOut
from kavip.agent.health.threshold import Asked
from kavip.agent.keepalived.dump import Dump, Stats, addresses_of
from kavip.api.instant import instant_text

_INSTANCES: Final = 512
"""How many instances are told without being written anew each second: a VRID each, in two families."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the reloader has come to."""

    node: str
    group: str = ""
    config_hash: str = ""  # of the configuration that the daemon runs
    wanted_hash: str = ""  # of the configuration that was last seen in the mount
    refused: str = ""
    left_out: tuple[LeftOut, ...] = ()
    note: str = ""
    prepared: str = ""  # the digest of what it can switch to
    next_refused: str = ""
    switch_at: str = ""
    now: str = ""  # told while something is to be switched to
    new_password: str = ""  # since when another than the one that runs is mounted
    version: str = ""
    reloads: int = 0
    failed_reloads: int = 0
    refusals: int = 0
    removed_addresses: int = 0
    reload_seconds: float = 0.0
    checks: tuple[Asked, ...] = ()
    locals: tuple[tuple[str, bool | None], ...] = ()

    @property
    def current(self) -> bool:
        """Whether the daemon runs what is wanted, but for instances that are left out: their neighbours do not wait."""
        return bool(self.wanted_hash) and self.config_hash == self.wanted_hash and not self.refused


class Keepalived(msgspec.Struct, frozen=True):
    """The daemon."""

    version: str
    running: bool


class Errors(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Adverts of others with this instance's VRID, counted since the daemon started; what is not there is 0."""

    address_list: int = 0
    authentication: int = 0
    interval: int = 0


class InstanceState(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One VRRP instance on this node."""

    name: str
    router_id: int = msgspec.field(name="routerID")
    family: int
    state: str
    virtual_ips: tuple[str, ...] = msgspec.field(name="virtualIPs")
    priority: int
    last_transition: str
    interface: str = ""
    transitions: int = 0  # to MASTER and from it, since the daemon started
    errors: Errors = Errors()


class LeftOutState(msgspec.Struct, frozen=True, rename="camel"):
    """
    One instance that does not run as it is wanted, and why.

    *by*: ``keepalived`` or ``agent``; *kept*: as it last ran, it runs on; *virtual_ips*: those that it was to have.
    """

    name: str
    reason: str
    by: str
    kept: bool
    virtual_ips: tuple[str, ...] = msgspec.field(name="virtualIPs")


class CheckState(msgspec.Struct, frozen=True):
    """One health check: whether it is *ok*, *since* when, and what was answered last. Unknown is ok, since ""."""

    name: str
    ok: bool
    since: str
    message: str


class LocalState(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a Service with ``externalTrafficPolicy: Local`` answers here; None until that is known."""

    track: str
    ready: bool | None


class State(msgspec.Struct, frozen=True, rename="camel"):
    """The body of ``/state``."""

    node: str
    group: str
    config_hash: str
    wanted_hash: str
    refused: str
    note: str
    keepalived: Keepalived
    instances: tuple[InstanceState, ...]
    left_out: tuple[LeftOutState, ...] = ()
    checks: tuple[CheckState, ...] = ()
    prepared: str = ""
    next_refused: str = ""
    switch_at: str = ""
    now: str = ""
    new_password: str = ""
    locals: tuple[LocalState, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """When an instance came into its state, and by which counters that is known to be the same stay in it."""

    state: int
    changes: int
    seconds: float


Moments = Mapping[str, Moment]


def moments_of(dump: Dump, before: Moments) -> Moments:
    """
    When each instance came into its state.

    keepalived says it too, but calls every reload a transition; its counters do not.
    """
    found: dict[str, Moment] = {}
    for each in dump:
        changes = each.stats.become_master + each.stats.release_master
        known = before.get(each.data.iname)
        stayed = known is not None and (known.state, known.changes) == (each.data.state, changes)
        moment = known if known and stayed else Moment(each.data.state, changes, each.data.last_transition)
        found[each.data.iname] = moment
    return found


def state_of(status: Status, dump: Dump | None, moments: Moments) -> State:
    """Put together what the reloader and the daemon say; *dump* is None when the daemon does not answer."""
    return State(
        node=status.node,
        group=status.group,
        config_hash=status.config_hash,
        wanted_hash=status.wanted_hash,
        refused=status.refused,
        note=status.note,
        prepared=status.prepared,
        next_refused=status.next_refused,
        switch_at=status.switch_at,
        now=status.now,
        new_password=status.new_password,
        keepalived=Keepalived(version=status.version, running=dump is not None),
        instances=tuple(
            InstanceState(
                name=each.data.iname,
                router_id=each.data.vrid,
                family=each.data.family,
                state=each.data.state_name,
                virtual_ips=_written((*each.data.vips, *each.data.evips)),
                priority=each.data.effective_priority,
                last_transition=_timestamp(moments[each.data.iname].seconds),
                interface=each.data.ifp_ifname,
                transitions=moments[each.data.iname].changes,
                errors=_errors(each.stats),
            )
            for each in dump or ()
        ),
        left_out=tuple(
            LeftOutState(
                name=each.name,
                reason=each.fault.reason,
                by=each.fault.by.value,
                kept=each.kept,
                virtual_ips=tuple(sorted(str(vip.address) for vip in each.virtual_ips)),
            )
            for each in status.left_out
        ),
        checks=tuple(
            CheckState(each.check.name, not each.health.fails, each.since, each.message) for each in status.checks
        ),
        locals=tuple(LocalState(track, ready) for track, ready in status.locals),
    )


def encode(state: State) -> bytes:
    """The JSON of ``/state``."""
    return msgspec.json.encode(state) + b"\n"


def _errors(stats: Stats) -> Errors:
    return Errors(
        address_list=stats.addr_list_err,
        authentication=stats.unauthenticated,
        interval=stats.advert_interval_err,
    )


@lru_cache(_INSTANCES)
def _written(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(address) for address in addresses_of(texts))


@lru_cache(_INSTANCES)
def _timestamp(seconds: float) -> str:
    """RFC 3339 in UTC; "" for an instance that has not changed its state yet."""
    return instant_text(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else ""
