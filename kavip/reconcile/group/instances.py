"""
``status.instances`` and ``status.virtualIPs`` of a group: which node is master, by the answers of the agents.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kavip.api.address import Address
from kavip.api.cluster import Node
from kavip.api.group import GroupVirtualIPStatus, InstanceStatus, KeepalivedGroup
from kavip.names import Reason
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.observed.agentstates import BACKUP, FAULT, MASTER
from kavip.reconcile.observed.mastership import Mastership, VipOrInstance
from kavip.reconcile.plan import Unconfirmed
from kavip.reconcile.service import throttle
from kavip.vrrp.instances import Instance

_MOST: Final = 510
_WORST_FIRST: Final = (FAULT, "INIT", BACKUP)


@dataclass(frozen=True, slots=True)
class _Master:
    """The *node* that is master of a VIP or an instance, "" for none, and the *state* to report."""

    node: str
    state: str


_UNKNOWN_MASTER: Final = _Master("", Reason.UNKNOWN)


class MasterDoubts(NamedTuple):
    """
    By the name of a doubt, what is reported of a master only after it has lasted.

    *waits*: after how many seconds to look at the masters again.
    """

    unconfirmed: Mapping[str, Unconfirmed]
    waits: tuple[float, ...]


def subjects_of(group: KeepalivedGroup | None, desired: Desired) -> Iterator[tuple[str, VipOrInstance]]:
    """The instances and VIPs whose master the status reports, each with the name of its doubt."""
    model = desired.configuration.model
    for instance in model.instances[:_MOST] if model else ():
        yield f"instance {instance.name}", instance.name
    for address in group.virtual_ips if group else ():
        yield f"VIP {address}", address


def master_doubts(
    group: KeepalivedGroup, desired: Desired, mastership: Mastership, before: Mapping[str, Unconfirmed]
) -> MasterDoubts:
    """What is doubtful of the masters that the status reports; *before*: what the last plan found so."""
    unconfirmed, waits = {}, []
    for name, subject in subjects_of(group, desired):
        master = mastership.master_of(subject)
        if master.reason in throttle.UNCERTAIN:
            unconfirmed[name] = throttle.unconfirmed(master.reason, before.get(name), at=mastership.at)
        if wait := throttle.next_master_check(master, unconfirmed.get(name), mastership):
            waits.append(wait)
    return MasterDoubts(unconfirmed, tuple(waits))


def instances_of(
    group: KeepalivedGroup, desired: Desired, mastership: Mastership, doubts: Mapping[str, Unconfirmed]
) -> list[InstanceStatus]:
    """
    MASTER if one node is master; the reason if two are; else the worst state that a node reports.

    The master of before stays during a fail-over, but not where every node lacks an interface of the instance.
    """
    impossible = _impossible(mastership)
    before = {
        each.name: _Master(each.node, each.state)
        for each in group.status.instances or ()
        if each.name not in impossible
    }
    model = desired.configuration.model
    instances = model.instances[:_MOST] if model else ()
    masters = {
        each.name: _master(
            mastership, each.name, doubts.get(f"instance {each.name}"), before.get(each.name, _UNKNOWN_MASTER)
        )
        for each in instances
    }
    unknown = frozenset(name for name, master in masters.items() if master.state in throttle.UNCERTAIN)
    if unknown:
        worst = _worst_states(desired.nodes, mastership)
        masters.update({name: _Master("", worst.get(name, "")) for name in unknown})
    return [_instance(each, masters[each.name]) for each in instances]


def _worst_states(nodes: Iterable[Node], mastership: Mastership) -> Mapping[str, str]:
    """By instance, the worst state that one of *nodes* reports."""
    worst: dict[str, str] = {}
    for node in nodes:
        state = mastership.states.get(node.metadata.name)
        for each in state.instances if state else ():
            worst[each.name] = min(each.state, worst.get(each.name, each.state), key=_rank)
    return worst


def _impossible(mastership: Mastership) -> frozenset[str]:
    """The instances that every node excludes because it lacks an interface."""
    if mastership.lacks_answers or not mastership.expected:
        return frozenset()
    lacking = (
        frozenset(each.name for each in mastership.states[node].excluded if each.interface and not each.kept)
        for node in mastership.expected
    )
    return frozenset.intersection(*lacking)


def virtual_ips_of(
    group: KeepalivedGroup, mastership: Mastership, doubts: Mapping[str, Unconfirmed]
) -> list[GroupVirtualIPStatus]:
    """The VIPs of the group itself."""
    before = {each.address: _Master(each.node, each.state) for each in group.status.virtual_ips or ()}
    result = []
    for address in group.virtual_ips:
        last = before.get(str(address), _UNKNOWN_MASTER)
        master = _master(mastership, address, doubts.get(f"VIP {address}"), last)
        result.append(GroupVirtualIPStatus(address=str(address), node=master.node, state=master.state))
    return result


def _master(mastership: Mastership, subject: VipOrInstance, doubt: Unconfirmed | None, before: _Master) -> _Master:
    """The master of *subject*; *before* while what is observed may be a moment of a fail-over."""
    held = mastership.master_of(subject)
    if isinstance(subject, Address) and mastership.foreign_claim(subject):
        return _Master(next(iter(held.nodes), ""), Reason.ADDRESS_CONFLICT)
    if held.reason is None or (doubt is not None and throttle.seconds_to_confirm(doubt, mastership) > 0):
        return before
    if held.reason == Reason.MASTER:
        return _Master(held.nodes[0], MASTER)
    return _Master("", held.reason)


def _instance(instance: Instance, master: _Master) -> InstanceStatus:
    return InstanceStatus(
        name=instance.name,
        router_id=instance.router_id,
        family=instance.family,
        node=master.node,
        state=master.state,
        virtual_ips=len(instance.virtual_ips),
    )


def _rank(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)
