"""
The part of a new model that may roll from node to node, while the rest waits for a switch of all nodes at once.

An instance that runs keeps its identity, and an address that runs in one instance, on one interface, stays there
although the model has it elsewhere: both change on all nodes at once, when the wanted model becomes the text.
Everything else rolls: other addresses come and go, nodes join, new instances start. A new instance that needs a VRID or
an anchor which still runs elsewhere starts with the switch; other new instances start before it. So when VIPs move into
Shared instances, these already have settled masters, and the move costs no election.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp import keys
from kavip.vrrp.identity import agree, identity_of
from kavip.vrrp.instances import Instance, Model, instance_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.placement import leads_of
from kavip.vrrp.running import RunningInstance
from kavip.vrrp.sharding import Shards, shard_members
from kavip.vrrp.spread import Lead
from kavip.vrrp.units import Unit
from kavip.vrrp.virtualips import VirtualIP, is_anchor

STAGED: Final = "staged"
"""The part of a memory for the staged model: its instances have the names of the wanted ones, and differ."""


def stage(
    wanted: Model,
    running: Mapping[str, RunningInstance],
    *,
    group: KeepalivedGroup,
    members: Iterable[Member],
    peers: Sequence[Peer],
    memory: Memory = KEEPS_NOTHING,
) -> Model:
    """The part of *wanted* that agrees with what is *running*; *wanted* itself if all of it agrees."""
    moving = _moving(wanted, running, memory)
    if not moving and all(_agrees(each, running, memory) for each in wanted.instances):
        return wanted
    rebuilder = _Rebuilder.of(group, members, peers, wanted=wanted, running=running, memory=memory.part(STAGED))
    leaving = frozenset(vip.address for vips in moving.values() for vip in vips)
    staged, new = [], []
    for each in wanted.instances:
        if each.name in running:
            staying, is_left = moving.pop(each.name, []), not leaving.isdisjoint(each.carried)
            if not (is_left or staying) and _agrees(each, running, memory):
                staged.append(each)
                continue
            kept = [vip for vip in each.virtual_ips if vip.address not in leaving] if is_left else each.virtual_ips
            staged.append(rebuilder.rebuild(running[each.name], [*kept, *staying]))
        elif each.anchor.address not in leaving:
            new.append(replace(each, excluded=tuple(vip for vip in each.excluded if vip.address not in leaving)))
    staged += [rebuilder.rebuild(running[name], vips) for name, vips in moving.items()]
    taken = {_place(each) for each in staged}
    staged += [each for each in new if _place(each) not in taken]
    return replace(wanted, instances=tuple(sorted(staged, key=lambda instance: instance.name)))


def _moving(wanted: Model, running: Mapping[str, RunningInstance], memory: Memory) -> dict[str, list[VirtualIP]]:
    """The VIPs that run in one instance and are wanted in another, by the name of the instance in which they run."""
    instances = {each.name: each for each in wanted.instances}
    leaving = {name: memory.last(_leaving, name, run, instances.get(name)) for name, run in running.items()}
    suspects = frozenset[Address]().union(*leaving.values())  # mostly few: an intersection reads the smaller set
    moving = frozenset[Address]().union(*(suspects & each.carried for each in wanted.instances if suspects))
    return {
        name: [vip for vip in running[name].virtual_ips if vip.address in moving]
        for name, addresses in leaving.items()
        if not moving.isdisjoint(addresses)
    }


def _leaving(run: RunningInstance, wanted: Instance | None) -> frozenset[Address]:
    """The VIPs of *run* that the *wanted* instance of the same name does not have."""
    return run.carried - wanted.carried if wanted else run.carried


@dataclass(frozen=True, slots=True)
class _Rebuilder:
    """
    Rebuilds instances that run from the objects as they are now.

    Of several *members* with one address the oldest owns it. *priorities* are those of the wanted instances; *leads*
    and *homes* rank the nodes of units that are not wanted any more, or on another interface, which other nodes may
    have.
    """

    group: KeepalivedGroup
    peers: Sequence[Peer]
    members: Shards
    owners: Mapping[Address, Member]
    priorities: Mapping[str, tuple[tuple[str, int], ...]]
    leads: Mapping[str, Lead]
    homes: Mapping[str, str]
    memory: Memory

    @classmethod
    def of(
        cls,
        group: KeepalivedGroup,
        members: Iterable[Member],
        peers: Sequence[Peer],
        *,
        wanted: Model,
        running: Mapping[str, RunningInstance],
        memory: Memory,
    ) -> "_Rebuilder":
        """For instances of *wanted* and those that are *running*."""
        shards = shard_members(group, members)
        priorities = {
            each.name: each.priorities
            for each in wanted.instances
            if each.name not in running or _stay(running[each.name], each)
        }
        units = [_spread_unit(each, shards) for each in running.values()]
        unicast = any(each.identity.unicast for each in running.values())
        homes = dict(wanted.homes)
        leads = leads_of(group.key, units, peers, unicast=unicast, homes=homes, memory=memory)
        return cls(group, peers, shards, shards.owners(), priorities, leads, homes, memory)

    def rebuild(self, run: RunningInstance, vips: Sequence[VirtualIP]) -> Instance:
        """The instance *run* with its identity, and with *vips*; all other properties are the wanted ones."""
        identity, spec = run.identity, self.group.spec
        family = identity.anchor.address.family
        unit = self._unit(run, family, vips)
        spec = msgspec.structs.replace(
            spec,
            unicast_enabled=identity.unicast,
            interface=identity.anchor.interface,
            vrrp_interface=identity.interface,
        )
        made = instance_of(
            msgspec.structs.replace(self.group, spec=spec),
            unit,
            family,
            peers=self.peers,
            anchors={run.name: identity.anchor.address},
            lead=self.leads.get(unit.name, ()),
            home=self.homes.get(unit.name, ""),
            memory=self.memory,
        )
        also = {vip.address for vip in identity.also}
        return replace(
            made,
            version=identity.version,
            interval=identity.interval,
            priorities=self.priorities.get(run.name, made.priorities),
            authenticated=identity.authenticated,
            also=identity.also,
            excluded=tuple(vip for vip in made.excluded if vip.address not in also),
        )

    def _unit(self, run: RunningInstance, family: int, vips: Sequence[VirtualIP]) -> Unit:
        """
        The unit of *run* with *vips*: each on the interface on which it runs.

        New ones on the group's interface are moved to the interface that runs.
        """
        identity, interface = run.identity, self.group.spec.interface
        name, is_shared = keys.unit_name(run.name, family), is_anchor(identity.anchor.address)
        runs_on, there = identity.anchor.interface, {vip.address: vip.interface for vip in run.virtual_ips}
        moved = {interface: runs_on}
        placed = {
            vip.address: vip.on(there.get(vip.address) or moved.get(vip.interface, vip.interface)) for vip in vips
        }
        for vip in () if is_shared else (identity.anchor, *identity.also):
            placed.setdefault(vip.address, vip)
        of_service = not is_shared and not keys.is_own_key(name)
        member = self.members.get("/".join(name.split("/")[:2])) if of_service else None
        return Unit(
            name,
            identity.router_id,
            is_shared=is_shared,
            vips=list(placed.values()),
            lines=member.lines if member is not None else (),
            local=member is not None and member.local,
            preferred=member.preferred if member is not None else frozenset(),
            services=sorted({self.owners[address].key for address in placed if address in self.owners}),
        )


def _spread_unit(run: RunningInstance, members: Shards) -> Unit:
    """The unit of *run* as far as its place depends on it; only an instance of one VIP of a Service is spread."""
    anchor = run.identity.anchor.address
    name = keys.unit_name(run.name, anchor.family)
    service, _, last = name.rpartition("/")
    member = members.get(service)
    return Unit(
        name,
        run.identity.router_id,
        spread=service if last == str(anchor) else "",
        endpoints=member.endpoints if member else frozenset(),
        preferred=member.preferred if member else frozenset(),
        vips=list(run.virtual_ips),
    )


def _agrees(instance: Instance, running: Mapping[str, RunningInstance], memory: Memory) -> bool:
    run = running.get(instance.name)
    if run is None:
        return True
    return agree(run.identity, identity_of(instance)) and memory.last(_stay, instance.name, run, instance)


def _stay(run: RunningInstance, instance: Instance) -> bool:
    """Whether the VIPs of *run* that *instance* has too stay on their interfaces."""
    if len(run.interfaces | instance.interfaces) == 1:
        return True
    wanted = {vip.address: vip.interface for vip in instance.virtual_ips}
    return all(wanted.get(vip.address, vip.interface) == vip.interface for vip in run.virtual_ips)


def _place(instance: Instance) -> tuple[int, int, str]:
    """What only one instance of a node can have."""
    return instance.router_id, instance.family, instance.interface
