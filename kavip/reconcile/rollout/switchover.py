"""
Changes that all nodes make at one instant: what is published while they prepare, and when they switch.

The text that runs stays published, and goes on being maintained; the next one lies beside it, compressed. Agents try
the next text and say that they are prepared. When all are, the instant is announced; each swaps when its clock shows
it. A node that is not prepared, or has not seen the announcement shortly before the instant, aborts the switch for all.
What was published says how far things are, so a controller that is new goes on where the last one stopped.

Announced too early, a switch would only be aborted: each time it is, the next one lies twice as far ahead, until also a
node whose kubelet looks at its mounts once a minute has seen it.
"""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kavip.api.address import Address
from kavip.api.instant import instant_text
from kavip.reconcile.rollout.configmap import LARGEST, MARGIN, PublishedRevisions, Revision
from kavip.reconcile.text import few
from kavip.vrrp.identity import Identity, agree
from kavip.vrrp.running import RunningInstance

LEAD: Final = 10.0
"""Seconds between the announcement and the instant: kubelet brings it to a pod that is told within one."""
LONGEST_LEAD: Final = 300.0
FROZEN: Final = 5.0
"""Seconds before the instant from which on nothing that is published changes, but for an abort."""
LAST_LOOK: Final = 4.0
"""Seconds before the instant at which every node must have seen it."""
TOO_LATE: Final = 2.0
"""Seconds before the instant at which it can no longer be called off: not all nodes might see that in time."""
ELECTION: Final = 5
"""Advert intervals after which instances that have just started have their masters."""
_REST: Final = 8_000  # bytes of a ConfigMap for what stands in it beside the texts


@dataclass(frozen=True, slots=True)
class Voter:
    """A node that runs the group. *why* it is not ready to switch; "" where it is. *seen*: the instant it knows of."""

    node: str
    why: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Switching:
    """What is to be *published*, what to say of a switch that is not done, and in how many seconds to look again."""

    published: PublishedRevisions
    message: str = ""
    look: float | None = None


def decide(
    published: PublishedRevisions | None,
    current: Revision,
    following: Revision | None,
    *,
    vote: Callable[[Revision], Sequence[Voter]],
    now: datetime,
) -> Switching:
    """
    What to publish, where *current* may roll from node to node and *following* may not.

    *published*: what is; *vote* asks the nodes on which the group runs whether they are ready.
    """
    published = published.at(now) if published else None
    if published and published.next and published.switch_at and _is_frozen(published.switch_at, now):
        return _frozen(published, published.next, at=published.switch_at, voters=vote(published.next), now=now)
    if published is None or following is None or not published.current.running or not (voters := vote(following)):
        return Switching(
            PublishedRevisions(following or current)
        )  # nothing runs that could disagree, or nothing disagrees
    if problem := _oversized(current, following):
        return Switching(PublishedRevisions(current), problem)
    what = _what(current, following)
    if published.switch_at and published.next and _is_alike(published.next, following):
        left = _left(published.switch_at, now)
        kept = replace(published, current=current, next=following)
        return Switching(kept, _announced(what, kept), left - LAST_LOOK)
    tries, blame = (published.tries, published.blame) if published.next else (0, "")
    pending = PublishedRevisions(current, following, tries=tries, blame=blame)
    if waiting := [voter for voter in voters if voter.why]:
        return Switching(pending, _waits(what, waiting))
    ahead = min(max(LEAD * 2**tries, ELECTION * _slowest(current, following)), LONGEST_LEAD)
    announced = replace(pending, switch_at=now + timedelta(seconds=ahead))
    return Switching(announced, _announced(what, announced), ahead - LAST_LOOK)


def _frozen(
    published: PublishedRevisions, following: Revision, *, at: datetime, voters: Sequence[Voter], now: datetime
) -> Switching:
    """Shortly before the switch to *following*: call it off while that can be done, or let it come."""
    left = _left(at, now)
    what = _what(published.current, following)
    unaware = [
        replace(voter, why=voter.why or "it has not seen the announcement")
        for voter in voters
        if voter.why or voter.seen != instant_text(at)
    ]
    if unaware and TOO_LATE < left <= LAST_LOOK:
        blame = f"node {unaware[0].node}: {unaware[0].why}"
        called_off = replace(published, switch_at=None, tries=published.tries + 1, blame=blame)
        return Switching(called_off, _waits(what, unaware), 1.0)
    look = left - LAST_LOOK if left > LAST_LOOK else left + MARGIN
    return Switching(published, _announced(what, published), max(look, 0.1))


def difference(before: Revision, after: Revision) -> str:
    """What of a change from *before* to *after* all nodes must make at one instant, in words; "" where it may roll."""
    return "" if _is_alike(before, after) else _what(before, after)


def _is_frozen(instant: datetime, now: datetime) -> bool:
    return -MARGIN < _left(instant, now) <= FROZEN


def _left(instant: datetime, now: datetime) -> float:
    return (instant - now).total_seconds()


def _is_alike(one: Revision, other: Revision) -> bool:
    """Whether nodes of which some switch to *one* and some to *other* hear each other."""
    if (one.settings, one.renewed) != (other.settings, other.renewed):
        return False
    before, after = one.running, other.running
    return all(agree(before[name].identity, after[name].identity) for name in before.keys() & after.keys()) and not (
        _moved(before, after)
    )


def _moved(before: Mapping[str, RunningInstance], after: Mapping[str, RunningInstance]) -> bool:
    """Whether an address is in another instance afterwards."""
    places = {vip.address: name for name, each in before.items() for vip in each.virtual_ips}
    return any(places.get(vip.address, name) != name for name, each in after.items() for vip in each.virtual_ips)


def _what(current: Revision, following: Revision) -> str:
    """What a switch changes, in words of the group."""
    before, after, found = current.running, following.running, set[str]()
    for name in before.keys() & after.keys():
        one, other = before[name].identity, after[name].identity
        if agree(one, other):
            continue
        fields = {
            "VRIDs": one.router_id != other.router_id,
            "interface": (one.interface, one.anchor.interface) != (other.interface, other.anchor.interface),
            "version": one.version != other.version,
            "interval": one.interval != other.interval,
            "multicast to unicast" if other.unicast else "unicast to multicast": one.unicast != other.unicast,
            "password": one.authenticated != other.authenticated,
            "advertised addresses": _advertised(one) != _advertised(other),
        }
        found |= {word for word, differs in fields.items() if differs}
    if _moved(before, after):
        found.add("the instances in which VIPs live")
    if current.settings.interface_from_ip != following.settings.interface_from_ip:
        found.add("interfaceFromIP")
    if following.renewed or current.settings != replace(
        following.settings, interface_from_ip=current.settings.interface_from_ip
    ):
        found.add("password")
    return ", ".join(sorted(found)) or "VRIDs"


def _advertised(identity: Identity) -> list[Address]:
    return [identity.anchor.address, *sorted(vip.address for vip in identity.also)]


def _announced(what: str, published: PublishedRevisions) -> str:
    text = f"every node is prepared: all change at {instant_text(published.switch_at)} ({what})"
    return f"{text}; called off {published.tries} times, last for {published.blame}" if published.tries else text


def _waits(what: str, waiting: Sequence[Voter]) -> str:
    first = waiting[0]
    others = f"; so do {few([voter.node for voter in waiting[1:]])}" if waiting[1:] else ""
    return f"a change that all nodes make at one instant ({what}) waits for node {first.node}: {first.why}{others}"


def _oversized(current: Revision, following: Revision) -> str:
    size = len(current.text) + len(gzip.compress(following.text.encode(), mtime=0)) + _REST
    if size <= LARGEST:
        return ""
    return (
        f"a change that all nodes make at one instant ({_what(current, following)}) cannot be prepared: both "
        f"configurations would have {size:,} bytes, of which a ConfigMap holds {LARGEST:,}; use fewer Services or nodes"
    )


def _slowest(*bundles: Revision) -> float:
    """The longest interval, in seconds."""
    found = [each.running for each in bundles]
    return max((float(run.identity.interval) for each in found for run in each.values()), default=0.0)
