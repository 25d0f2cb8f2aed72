"""
Excludes faulty instances from a configuration, so that the others can run.

An excluded instance that ran before is kept as it last ran, if that does not contradict what is wanted now: the same
VRID and interface, no address that it should have lost, no claim that conflicts with another instance. A mistake in a
change then costs the change, not the VIP, as it does where the whole configuration is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kavip.agent.config.blocks import Block, joined, split
from kavip.agent.config.facts import NodeFacts, unfit
from kavip.agent.config.model import (
    ConfiguredInstance,
    Exclusion,
    InstanceFault,
    LocalizedConfig,
    ParsedConfig,
    RefusedConfig,
)
from kavip.api.agent import ProblemCode

_TRACK_FILE: Final = re.compile(r"^track_file (\S+) \{$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PreviousInstance:
    """An instance as it last ran."""

    block: Block
    instance: ConfiguredInstance


PreviousInstances = Mapping[str, PreviousInstance]


def previous_instances(good: LocalizedConfig | None, facts: NodeFacts) -> PreviousInstances:
    """The instances of *good*, the configuration that ran last, that can still run on this node, by name."""
    if good is None:
        return {}
    bad = unfit(good.configuration.instances, facts)
    instances = {each.name: each for each in good.configuration.instances if each.name not in bad}
    return {
        each.name: PreviousInstance(each, instances[each.name]) for each in split(good.text) if each.name in instances
    }


def exclude(
    localized: LocalizedConfig, faults: Mapping[str, InstanceFault], previous: PreviousInstances
) -> LocalizedConfig | RefusedConfig:
    """
    *localized* without the instances that have *faults*; refused if no instance would be left that runs as wanted.

    An excluded instance that is kept as it last ran, and has a fault that way too, is removed.
    """
    if not faults:
        return localized
    wanted = {each.name: each for each in localized.configuration.instances}
    running = {name: each for name, each in wanted.items() if name not in faults}
    already = {each.name for each in localized.excluded}
    kept = _kept(sorted(faults.keys() - already), wanted, running, previous, text=localized.text)
    running |= {name: each.instance for name, each in kept.items()}
    excluded = exclusions(localized, faults, kept)
    if not running.keys() - {each.name for each in excluded}:
        first = excluded[0]
        return RefusedConfig(
            ProblemCode.NO_INSTANCE, f"no instance is left; {first.name}: {first.fault.message}", excluded
        )
    blocks = (kept[each.name].block if each.name in kept else each for each in split(localized.text))
    return replace(
        localized,
        text=joined(each for each in blocks if not each.name or each.name in running),
        configuration=ParsedConfig(tuple(running[name] for name in sorted(running))),
        excluded=excluded,
    )


def _kept(
    names: Iterable[str],
    wanted: Mapping[str, ConfiguredInstance],
    running: Mapping[str, ConfiguredInstance],
    previous: PreviousInstances,
    *,
    text: str,
) -> PreviousInstances:
    """Which of *names* stay as they last ran, if they do not conflict with the instances that are *running*."""
    defined = frozenset(_TRACK_FILE.findall(text))
    kept: dict[str, PreviousInstance] = {}
    for name in names:
        found = previous.get(name)
        others = [*running.values(), *(each.instance for each in kept.values())]
        if found and _stands_for(found.instance, wanted[name]) and not _conflicts(found.instance, others):
            kept[name] = _with_defined_tracks(found, defined)
    return kept


def exclusions(
    localized: LocalizedConfig, faults: Mapping[str, InstanceFault], kept: Collection[str] = ()
) -> tuple[Exclusion, ...]:
    """The instances that *localized* excludes already, and those with *faults*, by name; some are *kept*."""
    wanted = {each.name: each for each in localized.configuration.instances}
    found = {each.name: each for each in localized.excluded}
    for name, fault in faults.items():
        before = found.get(name) or Exclusion(name, fault, wanted[name].virtual_ips)
        found[name] = replace(before, kept=name in kept)
    return tuple(found[name] for name in sorted(found))


def _with_defined_tracks(previous: PreviousInstance, defined: Collection[str]) -> PreviousInstance:
    """*previous* without the track files that are not *defined* any more: keepalived would refuse the instance."""
    gone = {f"{each.name} weight {each.weight}" for each in previous.instance.tracks if each.name not in defined}
    if not gone:
        return previous
    lines = tuple(line for line in previous.block.lines if line.strip() not in gone)
    tracks = tuple(each for each in previous.instance.tracks if each.name in defined)
    return PreviousInstance(replace(previous.block, lines=lines), replace(previous.instance, tracks=tracks))


def _stands_for(old: ConfiguredInstance, new: ConfiguredInstance) -> bool:
    """Whether *old* has only what is wanted for *new*; a VRID or interface that cannot be read counts as unchanged."""
    addresses = {each.address for each in new.virtual_ips}
    return (
        old.router_id == (new.router_id or old.router_id)
        and old.interface == (new.interface or old.interface)
        and all(each.address in addresses for each in old.virtual_ips)
    )


def _conflicts(instance: ConfiguredInstance, others: Iterable[ConfiguredInstance]) -> bool:
    """Whether one of *others* has the VRID or an address of *instance*."""
    addresses = {each.address for each in instance.virtual_ips}
    identity = instance.router_id, instance.family, instance.interface
    return any(
        identity == (each.router_id, each.family, each.interface)
        or any(virtual_ip.address in addresses for virtual_ip in each.virtual_ips)
        for each in others
    )
