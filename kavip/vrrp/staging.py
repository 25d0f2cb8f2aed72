"""
What nodes may be told one after the other while something else waits for the moment at which all of them switch.

An instance that runs keeps its identity, and an address that runs in one instance stays there although another is to
have it: both change for all nodes at once, when the wanted model becomes the text. Everything else goes through at
once: other addresses come and go, nodes join, new instances start. A new instance that needs a VRID or an anchor which
still runs elsewhere starts with the switch. Those that can start before do: when the VIPs move into Shared instances,
these have settled masters, and the move costs no election.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp import keys
from kavip.vrrp.identity import Running, agree, identity_of
from kavip.vrrp.instances import Instance, Model, instance_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.units import Unit
from kavip.vrrp.virtualips import VirtualIP, is_anchor


@dataclass(frozen=True, slots=True)
class _Ground:
    """What instances are rebuilt from."""

    group: KeepalivedGroup
    peers: Sequence[Peer]
    members: Mapping[str, Member]
    owners: Mapping[Address, str]
    memory: Memory


def hold(
    wanted: Model,
    running: Mapping[str, Running],
    *,
    group: KeepalivedGroup,
    members: Iterable[Member],
    peers: Sequence[Peer],
    memory: Memory = KEEPS_NOTHING,
) -> Model:
    """*wanted* as far as it agrees with what is *running*; the same object where all of it does."""
    moving = _moving(wanted, running, memory)
    if not moving and all(_agrees(each, running) for each in wanted.instances):
        return wanted
    by_age = sorted(members, key=lambda member: member.age_key, reverse=True)
    owners = {address: member.key for member in by_age for address in member.addresses}
    ground = _Ground(group, peers, {member.key: member for member in by_age}, owners, memory)
    leaving = frozenset(vip.address for each in moving.values() for vip in each)
    now, fresh = [], []
    for each in wanted.instances:
        kept = [vip for vip in each.virtual_ips if vip.address not in leaving]
        if each.name in running:
            run = running[each.name]
            staying = moving.pop(each.name, [])
            is_same = len(kept) == len(each.virtual_ips) and not staying and _agrees(each, running)
            now.append(each if is_same else _held(ground, run, [*kept, *staying]))
        elif each.anchor.address not in leaving:
            fresh.append(replace(each, excluded=tuple(vip for vip in each.excluded if vip in kept)))
    now += [_held(ground, running[name], vips) for name, vips in moving.items()]
    taken = {_place(each) for each in now}
    now += [each for each in fresh if _place(each) not in taken]
    return replace(wanted, instances=tuple(sorted(now, key=lambda instance: instance.name)))


def _moving(wanted: Model, running: Mapping[str, Running], memory: Memory) -> dict[str, list[VirtualIP]]:
    """The VIPs that are in one of the *running* instances and are to be in another, by that in which they are."""
    there = {each.name: each for each in wanted.instances}
    lost = {name: memory.last(_lost, name, run, there.get(name)) for name, run in running.items()}
    suspects = {name: some for name, some in lost.items() if some}
    elsewhere = frozenset[Address]().union(*(each.carried for each in there.values() if suspects))
    return {
        name: [vip for vip in running[name].virtual_ips if vip.address in moving]
        for name, some in suspects.items()
        if (moving := some & elsewhere)
    }


def _lost(run: Running, wanted: Instance | None) -> frozenset[Address]:
    """What *run* carries and the instance of its name is not to."""
    return run.carried - wanted.carried if wanted else run.carried


def _held(ground: _Ground, run: Running, vips: Sequence[VirtualIP]) -> Instance:
    """*run* as it is, with *vips*; what all nodes need not agree on is as it is wanted."""
    identity, group = run.identity, ground.group
    family = identity.anchor.address.family
    unit_name = keys.unit_name(run.name, family)
    before, where = group.spec.interface, identity.anchor.interface
    placed = {vip.address: vip._replace(interface=where) if vip.interface == before else vip for vip in vips}
    is_slot = is_anchor(identity.anchor.address)
    for vip in () if is_slot else (identity.anchor, *identity.also):
        placed.setdefault(vip.address, vip)
    member = ground.members.get("/".join(unit_name.split("/")[:2]))
    unit = Unit(
        unit_name,
        identity.router_id,
        slot=is_slot,
        vips=list(placed.values()),
        lines=member.lines if member is not None and not is_slot else (),
        local=member is not None and member.local and not is_slot,
        services=sorted({ground.owners[address] for address in placed if address in ground.owners}),
    )
    spec = msgspec.structs.replace(
        group.spec, unicast_enabled=identity.unicast, interface=where, vrrp_interface=identity.interface
    )
    made = instance_of(
        msgspec.structs.replace(group, spec=spec),
        unit,
        family,
        peers=ground.peers,
        held={run.name: identity.anchor.address},
        memory=ground.memory,
    )
    return replace(
        made,
        version=identity.version,
        interval=identity.interval,
        authenticated=identity.authenticated,
        also=identity.also,
        excluded=tuple(vip for vip in made.excluded if vip.address not in {each.address for each in identity.also}),
    )


def _agrees(instance: Instance, running: Mapping[str, Running]) -> bool:
    run = running.get(instance.name)
    return run is None or agree(run.identity, identity_of(instance))


def _place(instance: Instance) -> tuple[int, int, str]:
    """What only one instance of a node can have."""
    return instance.router_id, instance.family, instance.interface
