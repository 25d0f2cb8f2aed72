"""
The shape of the configurations that kavip writes: one keyword per line, blocks opened and closed on lines of their own.

keepalived's own parser is far wider: includes, definitions, repetitions, conditions, escapes; some of it acts already
while a file is being checked. So a text is read here first, and what is not of this shape is never shown to keepalived.
Messages name a line and what is wrong with it; they never quote the line, which may hold a password.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kavip.agent.config.blocks import split
from kavip.agent.config.draft import Draft, first_doubled
from kavip.agent.config.model import Configuration, Fault, Instance, Refused
from kavip.agent.config.parser import Reader
from kavip.api.address import Address

_NOTHING: Final = Configuration()


@dataclass(frozen=True, slots=True)
class Examined:
    """Every instance of a text, as far as it could be read, and by name what is wrong with some of them."""

    instances: tuple[Instance, ...]
    faults: Mapping[str, Fault]


def read(text: str) -> Configuration | Refused:
    """Read a localised configuration; the first instance that is not of kavip's shape refuses all of it."""
    found = examine(text)
    if isinstance(found, Refused):
        return found
    for name, fault in sorted(found.faults.items()):
        return Refused(f"instance {name}: {fault.reason}")
    return Configuration(found.instances)


def examine(text: str, *, settled: Configuration = _NOTHING) -> Examined | Refused:
    """
    Read a localised configuration instance by instance; what is wrong outside them refuses all of it.

    Where two instances want what only one can have, that which has it in *settled* keeps it, else the first.
    """
    parts = split(text)
    outside = Reader()
    drafts: list[Draft] = []
    faults: dict[str, str] = {}
    for block in parts:
        if not block.name:
            if fault := outside.fault(block):
                number = block.first - 1 + fault.line
                return Refused(f"line {number}: {fault.text}")
            continue
        reader = Reader()
        if fault := reader.fault(block):
            faults[block.name] = f"line {fault.line} of the instance: {fault.text}"
        drafts.extend(reader.drafts[:1] or [Draft(block.name)])  # none where its first line cannot be read
    if "global_defs" not in outside.seen:
        return Refused("there is no global_defs block: this is not a configuration that kavip wrote")
    if doubled := first_doubled([each.name for each in drafts]):
        return Refused(f"instance {doubled} stands twice")
    faults = {each.name: why for each in drafts if (why := each.fault() or _lost(each, outside.tracks))} | faults
    instances = tuple(each.finished() for each in drafts)
    faults |= _conflicts([each for each in instances if each.name not in faults], settled)
    return Examined(
        tuple(sorted(instances, key=lambda each: each.name)), {name: Fault(text) for name, text in faults.items()}
    )


def _lost(draft: Draft, tracks: Collection[str]) -> str:
    return "it follows a track file that is not defined" if {each.name for each in draft.tracks} - set(tracks) else ""


def _conflicts(instances: Iterable[Instance], settled: Configuration) -> dict[str, str]:
    """Who wants an address or a VRID that another instance has."""
    had = {each.name: each for each in settled.instances}
    faults: dict[str, str] = {}
    addresses: dict[Address, str] = {}
    router_ids: dict[tuple[int, int, str], str] = {}
    for each in sorted(instances, key=lambda each: _differs(each, had.get(each.name))):
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


def _differs(instance: Instance, before: Instance | None) -> bool:
    """Whether *instance* wants anything to be its own that it does not have."""
    if before is None or (before.router_id, before.interface) != (instance.router_id, instance.interface):
        return True
    return not set(instance.virtual_ips) <= set(before.virtual_ips)
