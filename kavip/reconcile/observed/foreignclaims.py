"""
Which VIPs another machine on the LAN has, by what the agents of a group report.

An agent does not know the hardware address of every node. So the claim of a machine counts as foreign only after it was
compared with what all nodes report.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address
from kavip.reconcile.observed.agentstates import AgentStates, ClaimedAddress, Contact, NodeState

PATIENCE: Final = 10.0
"""Seconds after which nodes that do not answer keep no foreign claim from being reported."""

_NO_CLAIMS: Final[Mapping[Address, "ForeignClaim"]] = MappingProxyType({})
_HARDWARE: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


@dataclass(frozen=True, slots=True)
class ForeignClaim:
    """The *claim* of a machine that is no node, as *node* reports it."""

    node: str
    claim: ClaimedAddress


def is_hardware(text: str) -> bool:
    """Whether *text* is an Ethernet address as agents write it."""
    return _HARDWARE.fullmatch(text) is not None


def foreign_claims_of(states: Mapping[str, NodeState], *, nodes: Collection[str]) -> Mapping[Address, ForeignClaim]:
    """The foreign claims in *states*, by address; *nodes*: the hardware addresses of all nodes."""
    found: dict[Address, ForeignClaim] = {}
    for name, state in sorted(states.items()):
        for each in state.claimed:
            if each.hardware not in nodes:
                found.setdefault(each.address, ForeignClaim(name, each))
    return found


def have_all_reported(
    expected: Iterable[str],
    states: Mapping[str, NodeState],
    contacts: Mapping[str, Contact],
    *,
    seconds: float,
) -> bool:
    """
    Whether the nodes that are *expected* have reported their hardware addresses, so that claims can be compared.

    *seconds*: for how long they have been asked. A node that does not answer counts for a while only.
    """
    for name in expected:
        state = states.get(name)
        is_silent = state is None or (name in contacts and contacts[name].is_silent)
        if (state is None or not state.hardware) and not (is_silent and seconds >= PATIENCE):
            return False
    return True


def foreign_claims_in(agents: AgentStates, group: str) -> Mapping[Address, ForeignClaim]:
    """The foreign claims that the nodes of *group* report, compared with the nodes of all groups."""
    states = agents.states_of(group)
    for state in states.values():
        if state.claimed:
            return foreign_claims_of(states, nodes=agents.hardware)
    return _NO_CLAIMS


def compared_claims(agents: AgentStates, group: str, expected: Iterable[str]) -> Mapping[Address, ForeignClaim]:
    """The same; none until the nodes of *group* that are *expected* have reported their hardware addresses."""
    found = foreign_claims_in(agents, group)
    states, contacts, asked = agents.states_of(group), agents.contacts_of(group), agents.at - agents.since
    return found if found and have_all_reported(expected, states, contacts, seconds=asked) else _NO_CLAIMS


def hardware_of(agents: AgentStates, groups: Iterable[str]) -> tuple[str, ...]:
    """The hardware addresses that the nodes of *groups* report, the first of each node first; each once."""
    states = [state for key in groups for _, state in sorted(agents.states_of(key).items())]
    longest = max((len(state.hardware) for state in states), default=0)
    return tuple(
        dict.fromkeys(state.hardware[at] for at in range(longest) for state in states if at < len(state.hardware))
    )
