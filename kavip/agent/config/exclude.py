"""
Takes instances out of a configuration, so that the others can run.

An instance that ran before stays as it last ran, where that still agrees with what is wanted: same VRID, no address
that it no longer has, nothing that another instance has now. A mistake in a change then costs the change and not the
VIP, as it always was where the whole configuration is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kavip.agent.config.blocks import Block, joined, split
from kavip.agent.config.facts import Facts, unfit
from kavip.agent.config.model import Configuration, Fault, Instance, LeftOut, Localized, Refused

_TRACK_FILE: Final = re.compile(r"^track_file (\S+) \{$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spare:
    """An instance as it last ran."""

    block: Block
    instance: Instance


Spares = Mapping[str, Spare]


def spares_of(good: Localized | None, facts: Facts) -> Spares:
    """The instances of *good* that can still run on this node, by name."""
    if good is None:
        return {}
    bad = unfit(good.configuration.instances, facts)
    instances = {each.name: each for each in good.configuration.instances if each.name not in bad}
    return {each.name: Spare(each, instances[each.name]) for each in split(good.text) if each.name in instances}


def without(localized: Localized, faults: Mapping[str, Fault], spares: Spares) -> Localized | Refused:
    """
    *localized* without the instances that have *faults*; refused where none would be left that is as it is wanted.

    An instance that is left out already, and whose spare has a fault too, goes altogether.
    """
    if not faults:
        return localized
    known = {each.name: each for each in localized.left_out}
    running = {each.name: each for each in localized.configuration.instances if each.name not in faults}
    wanted = {each.name: each for each in localized.configuration.instances}
    kept: dict[str, Spare] = {}
    defined = frozenset(_TRACK_FILE.findall(localized.text))
    for name in sorted(faults.keys() - known.keys()):
        spare = spares.get(name)
        if spare and _stands_for(spare.instance, wanted[name]) and not _clashes(spare.instance, running.values()):
            kept[name] = spare = _following(spare, defined)
            running[name] = spare.instance
    for name, fault in faults.items():
        before = known.get(name) or LeftOut(name, fault, wanted[name].virtual_ips)
        known[name] = replace(before, kept=name in kept)
    left_out = tuple(known[name] for name in sorted(known))
    if not running.keys() - known.keys():
        first = left_out[0]
        return Refused(f"no instance is left; {first.name}: {first.fault.reason}", left_out)
    blocks = (kept[each.name].block if each.name in kept else each for each in split(localized.text))
    return replace(
        localized,
        text=joined(each for each in blocks if not each.name or each.name in running),
        configuration=Configuration(tuple(running[name] for name in sorted(running))),
        left_out=left_out,
    )


def _following(spare: Spare, defined: Collection[str]) -> Spare:
    """*spare* without the track files that are not *defined* any more, for which keepalived would refuse it."""
    gone = {f"{each.name} weight {each.weight}" for each in spare.instance.tracks if each.name not in defined}
    if not gone:
        return spare
    lines = tuple(line for line in spare.block.lines if line.strip() not in gone)
    tracks = tuple(each for each in spare.instance.tracks if each.name in defined)
    return Spare(replace(spare.block, lines=lines), replace(spare.instance, tracks=tracks))


def _stands_for(old: Instance, new: Instance) -> bool:
    """Whether *old* has nothing that is not wanted for *new*; a VRID that cannot be read is taken to be the same."""
    addresses = {each.address for each in new.virtual_ips}
    return (
        old.router_id == (new.router_id or old.router_id)
        and old.interface == (new.interface or old.interface)
        and all(each.address in addresses for each in old.virtual_ips)
    )


def _clashes(instance: Instance, others: Iterable[Instance]) -> bool:
    """Whether one of *others* has its VRID or an address of it."""
    addresses = {each.address for each in instance.virtual_ips}
    identity = instance.router_id, instance.family, instance.interface
    return any(
        identity == (each.router_id, each.family, each.interface)
        or any(virtual_ip.address in addresses for virtual_ip in each.virtual_ips)
        for each in others
    )
