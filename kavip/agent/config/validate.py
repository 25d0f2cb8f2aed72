"""
Validates that a configuration has the shape that kavip writes.

That is one keyword a line, and blocks that are opened and closed on lines of their own. keepalived's own parser accepts
far more: includes, definitions, repetitions, conditions, escapes; some of these act
while a file is only checked. So the agent reads a text first, and never passes another shape to keepalived. Messages
name a line and its fault; they never quote the line, which may hold a password.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.agent.config.blocks import split
from kavip.agent.config.model import ConfiguredInstance, InstanceFault, ParsedConfig, RefusedConfig
from kavip.agent.config.parser import BlockParser, InstanceDraft, first_duplicate
from kavip.api.address import Address
from kavip.api.agent import ProblemCode

_EMPTY: Final = ParsedConfig()


@dataclass(frozen=True, slots=True)
class ExaminedConfig:
    """Every instance of a text, as far as it could be read, and the faults by the name of the instance."""

    instances: tuple[ConfiguredInstance, ...]
    faults: Mapping[str, InstanceFault]


def read(text: str) -> ParsedConfig | RefusedConfig:
    """Read a localised configuration; one faulty instance refuses all of it."""
    found = examine(text)
    if isinstance(found, RefusedConfig):
        return found
    for name, fault in sorted(found.faults.items()):
        return RefusedConfig(fault.code, fault.of_instance(name).message)
    return ParsedConfig(found.instances)


def examine(text: str, *, settled: ParsedConfig = _EMPTY) -> ExaminedConfig | RefusedConfig:
    """
    Read a localised configuration instance by instance; a fault outside the instances refuses all of it.

    Where two instances claim the same address or VRID, the one that has it in *settled* keeps it, else the first.
    """
    outside = BlockParser()
    drafts: list[InstanceDraft] = []
    faults: dict[str, str] = {}
    for block in split(text):
        if not block.name:
            if fault := outside.parse(block):
                return _refused(f"line {block.first - 1 + fault.line}: {fault.message}")
            continue
        parser = BlockParser()
        if fault := parser.parse(block):
            faults[block.name] = f"line {fault.line} of the instance: {fault.message}"
        drafts.extend(parser.drafts[:1] or [InstanceDraft(block.name)])  # none if its first line cannot be read
    if "global_defs" not in outside.keywords:
        return _refused("there is no global_defs block: this is not a configuration that kavip wrote")
    if duplicate := first_duplicate([each.name for each in drafts]):
        return _refused(f"instance {duplicate} stands twice")
    faults = {each.name: why for each in drafts if (why := each.fault() or _undefined(each, outside.tracks))} | faults
    instances = [each.finished() for each in drafts]
    conflicts = _conflicts([each for each in instances if each.name not in faults], settled)
    return ExaminedConfig(
        tuple(sorted(instances, key=lambda each: each.name)),
        {name: InstanceFault(ProblemCode.CONFIG_INVALID, message) for name, message in faults.items()}
        | {name: InstanceFault(ProblemCode.CONFIG_CONFLICT, message) for name, message in conflicts.items()},
    )


def _refused(message: str) -> RefusedConfig:
    return RefusedConfig(ProblemCode.CONFIG_INVALID, message)


def _undefined(draft: InstanceDraft, tracks: Collection[str]) -> str:
    return "it follows a track file that is not defined" if {each.name for each in draft.tracks} - set(tracks) else ""


def _conflicts(instances: Iterable[ConfiguredInstance], settled: ParsedConfig) -> dict[str, str]:
    """The instances that claim an address or a VRID that another one has; the message by name."""
    before = {each.name: each for each in settled.instances}
    faults: dict[str, str] = {}
    addresses: dict[Address, str] = {}
    router_ids: dict[tuple[int, int, str], str] = {}
    for each in sorted(instances, key=lambda each: _claims_more(each, before.get(each.name))):
        identity = each.router_id, each.family, each.interface
        taken = [str(vip.address) for vip in each.virtual_ips if vip.address in addresses]
        if taken:
            faults[each.name] = f"virtual IP {taken[0]} stands in another instance too"
        elif identity in router_ids:
            faults[each.name] = f"virtual_router_id {each.router_id} stands in another instance too"
        else:
            router_ids[identity] = each.name
            addresses |= {vip.address: each.name for vip in each.virtual_ips}
    return faults


def _claims_more(instance: ConfiguredInstance, before: ConfiguredInstance | None) -> bool:
    """Whether *instance* claims an address, VRID or interface that it did not have *before*."""
    if before is None or (before.router_id, before.interface) != (instance.router_id, instance.interface):
        return True
    return not set(instance.virtual_ips) <= set(before.virtual_ips)
