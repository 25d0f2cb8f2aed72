"""
Which node takes a VIP over if its master fails or is drained: the standby of the highest priority, as VRRP decides.

keepalived itself reports the priorities, after health checks and endpoints. So this needs the answers of agents.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kavip.cli.views.doctor.inspection import AgentAnswer
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, InstanceState

Standby = tuple[int, str]
"""A priority and a node."""
_RUNS: Final = (BACKUP, MASTER)


class Succession:
    """The instances of all nodes, as the agents in *answers* report them."""

    def __init__(self, answers: Iterable[AgentAnswer]) -> None:
        self._standbys: defaultdict[tuple[str, str], list[Standby]] = defaultdict(list)
        self._instances: dict[tuple[str, str, str], InstanceState] = {}
        self._names: dict[tuple[str, str], str] = {}
        for answer in answers:
            for instance in answer.state.instances:
                self._instances[answer.group, instance.name, answer.node] = instance
                if instance.state in _RUNS and instance.priority:
                    self._standbys[answer.group, instance.name].append((instance.priority, answer.node))
            self._names |= {(answer.group, str(each)): name for each, name in answer.state.instance_of.items()}

    def since(self, group: str, address: str, *, node: str) -> str:
        """When *node* became the master of *address*, by its own clock; "" if its agent did not say."""
        instance = self._instances.get((group, self._names.get((group, address), ""), node))
        return instance.since if instance is not None and instance.state == MASTER else ""

    def successor(self, group: str, address: str, *, node: str) -> str:
        """The node that takes *address* over from *node*; "" if there is none."""
        standbys = self._standbys.get((group, self._names.get((group, address), "")), ())
        return _first({name: priority for priority, name in standbys if name != node}) if node else ""


def _first(priorities: Mapping[str, int]) -> str:
    """The node of the highest priority; "" if two have it: then their addresses decide."""
    highest = max(priorities.values(), default=0)
    found = [node for node, priority in priorities.items() if priority == highest]
    return found[0] if len(found) == 1 else ""
