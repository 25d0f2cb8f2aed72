"""
The metrics that are computed at each scrape: pools, waiting Services, groups, and what the agents report.

A label set is exported as long as its object exists: a pool that is gone leaves no line behind.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from prometheus_client import Gauge

from kavip import telemetry
from kavip.api import conditions
from kavip.names import ADVERTISED_REASONS, ConditionType, Contest, Reason
from kavip.reconcile.observed.agentstates import MASTER, AgentStates
from kavip.reconcile.observed.foreignclaims import compared_claims
from kavip.snapshot import Snapshot

Labels = tuple[str, ...]

_OF_GROUPS: Final = (ConditionType.ACCEPTED, ConditionType.PROGRAMMED, ConditionType.READY)


class PoolMetrics:
    """The counts of :class:`~kavip.ipam.ledger.ledger.Ledger`: addresses, waiting Services, conflicts."""

    def __init__(self) -> None:
        """Start without label sets."""
        self._pools: frozenset[Labels] = frozenset()
        self._waiting: frozenset[Labels] = frozenset()
        self._contests: Counter[Contest] = Counter()

    def update(self, snapshot: Snapshot, *, leads: bool) -> None:
        """Set all of them; only the replica that *leads* has waiting Services."""
        pools = snapshot.parsed_pools
        usage: dict[Labels, int] = {
            (pool.name, f"ipv{family}", state): number
            for pool in pools.in_force
            for family, each in snapshot.ledger.usage(pool.name).items()
            for state, number in each.clamped()._asdict().items()
        }
        self._pools = _export(telemetry.POOL_ADDRESSES, usage, self._pools)
        waiting: Counter[Labels] = Counter()
        for (pool, reason), number in snapshot.ledger.waiters.tally.items() if leads else ():
            waiting[pool if pools.get(pool) else "", reason] += number
        self._waiting = _export(telemetry.SERVICES_WAITING, waiting, self._waiting)
        for contest, number in snapshot.ledger.contests.items():
            telemetry.ADDRESS_CONFLICTS.labels(contest).inc(number - self._contests[contest])
            self._contests[contest] = number


class GroupMetrics:
    """The conditions of each group, what its agents report, and the condition ``Advertised`` of its Services."""

    def __init__(self) -> None:
        """Start without label sets."""
        self._conditions: frozenset[Labels] = frozenset()
        self._advertised: frozenset[Labels] = frozenset()
        self._own: frozenset[Labels] = frozenset()
        self._collisions: frozenset[Labels] = frozenset()
        self._duplicates: frozenset[Labels] = frozenset()
        self._agents: frozenset[Labels] = frozenset()

    def update(self, snapshot: Snapshot, agents: AgentStates) -> None:
        """Set all of them; an empty *snapshot* removes all."""
        stated: dict[Labels, int] = {}
        advertised: dict[Labels, int] = {}
        own_vips: dict[Labels, int] = {}
        collisions: dict[Labels, int] = {}
        duplicates: dict[Labels, int] = {}
        answering: dict[Labels, int] = {}
        for key, group in snapshot.groups.items():
            own = (each for each in group.status.conditions or () if each.type in _OF_GROUPS)
            stated |= {(key, each.type, each.status, each.reason): 1 for each in own}
            advertised |= {(key, reason.value): 0 for reason in ADVERTISED_REASONS}
            for service in snapshot.members(key):
                stored = conditions.find(service.status.conditions, ConditionType.ADVERTISED)
                if stored is not None and stored.reason in ADVERTISED_REASONS:
                    advertised[key, stored.reason] += 1
            own_vips |= {(key, reason.value): 0 for reason in ADVERTISED_REASONS}
            for vip in group.status.virtual_ips or ():
                reason = Reason.MASTER if vip.state == MASTER else vip.state
                if reason in ADVERTISED_REASONS:
                    own_vips[key, reason] += 1
            states, contacts = agents.states_of(key), agents.contacts_of(key)
            collisions[key,] = len({each.router_id for state in states.values() for each in state.collisions})
            duplicates[key,] = len(compared_claims(agents, key, snapshot.ready_nodes(group)))
            silent = sum(node in contacts and contacts[node].is_silent for node in states)
            answering |= {(key, "answering"): len(states) - silent, (key, "silent"): silent}
        self._conditions = _export(telemetry.GROUP_CONDITIONS, stated, self._conditions)
        self._advertised = _export(telemetry.SERVICES_ADVERTISED, advertised, self._advertised)
        self._own = _export(telemetry.GROUP_VIRTUAL_IPS, own_vips, self._own)
        self._collisions = _export(telemetry.VRID_COLLISIONS, collisions, self._collisions)
        self._duplicates = _export(telemetry.DUPLICATE_ADDRESSES, duplicates, self._duplicates)
        self._agents = _export(telemetry.AGENTS, answering, self._agents)


def _export(gauge: Gauge, values: Mapping[Labels, int], before: frozenset[Labels]) -> frozenset[Labels]:
    """Set *gauge* to *values*, remove the other label sets of *before*, and return the present ones."""
    for labels, number in values.items():
        gauge.labels(*labels).set(number)
    now = frozenset(values)
    for labels in before - now:
        gauge.remove(*labels)
    return now
