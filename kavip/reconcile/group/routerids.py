"""
The VRID of each instance of a group.

A VRID is rendered only after the status names it, so no node ever runs one that could be forgotten. A new Service is
excluded until then; all others are served meanwhile. :func:`kavip.vrrp.routerids.assign` picks the numbers, in
the order of :func:`kavip.vrrp.keys.wanted_keys`; :mod:`.status` writes them, and :mod:`.configuration` renders those
that are persisted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kavip.api.group import KeepalivedGroup
from kavip.reconcile import segmentids
from kavip.reconcile.observed.neighbours import Elsewhere
from kavip.reconcile.observed.observed import Observed
from kavip.snapshot import Snapshot
from kavip.vrrp import keys, routerids
from kavip.vrrp.coexistence import Coexistence
from kavip.vrrp.running import RunningInstance
from kavip.vrrp.sharding import Shards


@dataclass(frozen=True, slots=True)
class RouterIDs:
    """
    The VRIDs of a group, by key (:mod:`kavip.vrrp.keys`).

    *assigned*: all of them. *persisted*: those that the status names already. *status*: ``status.routerIDs`` as it
    should be. *is_settled*: no VRID in use changes. *unavailable*: why VRIDs that VIPs of the group pin cannot be used.
    """

    assigned: Mapping[str, int]
    persisted: Mapping[str, int]
    status: dict[str, int]
    is_settled: bool
    unavailable: tuple[str, ...] = ()


def assign_router_ids(
    snapshot: Snapshot,
    group: KeepalivedGroup,
    observed: Observed,
    *,
    members: Shards,
    running: Mapping[str, RunningInstance],
    others: Elsewhere,
    coexistence: Coexistence,
) -> RouterIDs:
    """
    Assign a VRID to each instance that *members* need: that of the old pods, else that in the status, else a free one.

    *running*: the instances that nodes run now; new instances get their VRIDs last. *others*: what the nodes of other
    groups run; a new instance gets none of their VRIDs.
    """
    shown = group.status.router_ids or {}
    held, wanted, pinned = keys.holding_keys(shown), keys.wanted_keys(group, members), keys.pinned_ids(group)
    taken = segmentids.taken_ids(snapshot, group, observed.records.reserved)
    if not held.keys() >= set(wanted):
        taken |= others.router_ids(snapshot.neighbours(group)) - set(held.values())
    assigned = routerids.assign(
        coexistence.held_router_ids(held),
        wanted,
        blacklist=routerids.blacklist_of(group.spec),
        taken=taken | coexistence.reserved(wanted),
        avoid=frozenset(each.identity.router_id for each in running.values()),
        reserved=snapshot.platform_router_ids(group),
        pinned=pinned,
    )
    persisted = {key: number for key, number in assigned.items() if held.get(key) == number}
    return RouterIDs(
        assigned=assigned,
        persisted=persisted,
        status=shown if shown == assigned else dict(assigned),
        is_settled=all(key in persisted or key not in held for key in assigned),
        unavailable=tuple(_unavailable(snapshot, group, pinned, assigned)),
    )


def _unavailable(
    snapshot: Snapshot, group: KeepalivedGroup, pinned: Mapping[str, int], assigned: Mapping[str, int]
) -> Iterator[str]:
    """Why pinned VRIDs are not assigned; a blacklisted one is a fault of the spec, which ``Accepted`` reports."""
    fields = keys.pinned_fields(group)
    for number in (number for key, number in pinned.items() if key not in assigned):
        users = sorted(
            other.key for other in snapshot.neighbours(group) if number in (other.status.router_ids or {}).values()
        )
        by = f"group {users[0]} uses it" if users else "nodes of another group still run it"
        yield f"{fields[number]}: {number}: {by}; choose another VRID"
