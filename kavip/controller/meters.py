"""
The metrics of what the agents say, and of what Services are told of it.

They are read off when somebody asks. Each label set is shown for as long as what it is about exists.
"""

from typing import Final

from kavip import telemetry
from kavip.api import conditions
from kavip.controller.metrics import Labels, show
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.observed.nodes import AgentStates
from kavip.snapshot import Snapshot

_ADVERTISED: Final = (Reason.MASTER.value, Reason.NO_MASTER.value, Reason.SPLIT_BRAIN.value, Reason.UNKNOWN.value)


class Masters:
    """What the agents say, and what Services are told of it, as metrics."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._advertised: frozenset[Labels] = frozenset()
        self._collisions: frozenset[Labels] = frozenset()
        self._agents: frozenset[Labels] = frozenset()

    def measure(self, snapshot: Snapshot, agents: AgentStates) -> None:
        """Set them all; of nothing observed and no group: remove them all."""
        advertised: dict[Labels, int] = {}
        collisions: dict[Labels, int] = {}
        answering: dict[Labels, int] = {}
        for key in snapshot.groups:
            advertised |= {(key, reason): 0 for reason in _ADVERTISED}
            for service in snapshot.members(key):
                told = conditions.find(service.status.conditions, ConditionType.ADVERTISED)
                if told is not None and told.reason in _ADVERTISED:
                    advertised[key, told.reason] += 1
            states, contacts = agents.states_of(key), agents.contacts_of(key)
            collisions[key,] = len({each.router_id for state in states.values() for each in state.collisions})
            silent = sum(node in contacts and contacts[node].is_silent for node in states)
            answering |= {(key, "answering"): len(states) - silent, (key, "silent"): silent}
        self._advertised = show(telemetry.SERVICES_ADVERTISED, advertised, self._advertised)
        self._collisions = show(telemetry.VRID_COLLISIONS, collisions, self._collisions)
        self._agents = show(telemetry.AGENTS, answering, self._agents)
