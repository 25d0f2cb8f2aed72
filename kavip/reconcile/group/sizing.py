"""
What fits into one ConfigMap: where the text of a group does not, its youngest Services are excluded, and report it.

Refusing the whole text instead would stop the changes of every Service because of one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address
from kavip.api.agent import Capability
from kavip.api.refusal import Refusal
from kavip.names import Reason
from kavip.vrrp import config
from kavip.vrrp.config import Config, Use
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.members import Member
from kavip.vrrp.sharding import Shards
from kavip.vrrp.virtualips import is_anchor

_HEAD: Final = "\nvrrp_instance "

Build = Callable[[Iterable[Member]], tuple[Model, Config]]
"""The model of some members and its text."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The model and text of the members that fit; *excluded*: by Service, why the others do not."""

    model: Model
    config: Config
    excluded: Mapping[str, Refusal]


def fit(members: Shards, build: Build) -> Fitted:
    """Build *members*; exclude the youngest ones until the rest fits, or no member is left."""
    model, text = build(members)
    if not text.oversized:
        return Fitted(model, text, {})
    kept, need, remedy = sorted(members, key=lambda member: member.age_key), text.need, _remedy(model, text)
    excluded: list[Member] = []
    while text.oversized and kept:
        sizes = _sizes(model, text.content, kept)
        excess = len(text.content) * (1 - 1 / text.excess)  # the rest shrinks in proportion
        freed, before = 0, len(excluded)
        while kept and (freed < excess or len(excluded) == before):
            excluded.append(kept.pop())
            freed += sizes.get(excluded[-1].key, 0)
        model, text = build(kept)
    refusal = Refusal(
        Reason.PENDING,
        f"KeepalivedGroup {model.group} has no room for the {len(excluded):,} youngest of its {len(members):,} "
        f"Services: its configuration would need {need}; {remedy}",
    )
    return Fitted(model, text, {each.key: refusal for each in excluded})


def _remedy(model: Model, text: Config) -> str:
    """What helps; a shorter notation, too, if only the agents keep it from being used."""
    uses, is_large = text.target.notations, config.is_large(model, text.size_in_full)
    wanted = [Capability.COMPACT_TEXT] if uses.compact is Use.NEVER and is_large else []
    wanted += [Capability.PACKED_TEXT] if uses.packed is Use.NEVER else []
    if not wanted:
        return config.remedy(model)
    reports = f"once every agent reports {' and '.join(wanted)}, it needs less"
    return f"{config.remedy(model)}; or replace the pods of an older kavip: {reports}"


def _sizes(model: Model, text: str, members: Sequence[Member]) -> dict[str, int]:
    """The bytes of *text* by Service: its own instances, and its lines in shared ones."""
    owner: dict[Address, str] = {}
    for member in members:  # by age: the oldest one carries a shared address
        for address in member.addresses:
            owner.setdefault(address, member.key)
    sizes: dict[str, int] = {}
    for instance, block in zip(model.instances, text.split(_HEAD)[1:], strict=True):
        for key, size in _shares(instance, block, owner):
            sizes[key] = sizes.get(key, 0) + size
    return sizes


def _shares(instance: Instance, block: str, owner: Mapping[Address, str]) -> list[tuple[str, int]]:
    if not is_anchor(instance.anchor.address):
        return [(key, len(_HEAD) + len(block)) for key in instance.services[:1]]
    lines = {vip.address: f"        {vip} dev {vip.interface}\n" for vip in instance.excluded}
    return [(owner[address], len(line)) for address, line in lines.items() if address in owner]
