"""
Which node takes a VIP over if its master fails or is drained: the standby of the highest priority, as VRRP decides.

keepalived itself reports the priorities, after health checks and endpoints. So this needs the answers of agents.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kavip.api.address import Address, read_address
from kavip.cli.views.doctor.inspection import AgentAnswer
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, InstanceState

_RUNS: Final = (BACKUP, MASTER)


class Succession:
    """The instances of all nodes, as the agents in *answers* report them; each is believed about its own node only."""

    def __init__(self, answers: Iterable[AgentAnswer]) -> None:
        self._nodes: defaultdict[str, dict[str, _Node]] = defaultdict(dict)
        for answer in answers:
            instances = {each.name: each for each in answer.state.instances}
            self._nodes[answer.group][answer.node] = _Node(answer.state.instance_of, instances)

    def since(self, group: str, address: str, *, node: str) -> str:
        """When *node* became the master of *address*, by its own clock; "" if its agent did not say."""
        found = self._nodes.get(group, {}).get(node)
        instance = found.instance(read_address(address)) if found is not None else None
        return instance.since if instance is not None and instance.state == MASTER else ""

    def successor(self, group: str, address: str, *, node: str) -> str:
        """The node that takes *address* over from *node*; "" if there is none."""
        if not node:
            return ""
        vip = read_address(address)
        found = {name: each.instance(vip) for name, each in self._nodes.get(group, {}).items() if name != node}
        return _first({name: each.priority for name, each in found.items() if each and each.state in _RUNS})


class _Node(NamedTuple):
    """The *instances* that a node reports, by name, and the name of that of each VIP."""

    instance_of: Mapping[Address, str]
    instances: Mapping[str, InstanceState]

    def instance(self, address: Address | None) -> InstanceState | None:
        """That of *address*."""
        return self.instances.get(self.instance_of.get(address, "")) if address is not None else None


def _first(priorities: Mapping[str, int]) -> str:
    """The node of the highest priority; "" if two have it: then their addresses decide."""
    highest = max(priorities.values(), default=0)
    found = [node for node, priority in priorities.items() if priority == highest]
    return found[0] if highest and len(found) == 1 else ""
