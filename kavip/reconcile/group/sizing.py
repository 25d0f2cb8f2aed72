"""
What fits into one ConfigMap: where a group's text does not, its youngest Services are left out, and told.

Freezing the group instead would cost every Service its changes because of one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.names import Reason
from kavip.vrrp import config
from kavip.vrrp.config import Config
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.members import Member
from kavip.vrrp.sharding import Shards
from kavip.vrrp.virtualips import is_anchor

_HEAD: Final = "\nvrrp_instance "

Build = Callable[[Iterable[Member]], tuple[Model, Config]]
"""The model of some members and its text."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The model and text of those who fit, and by Service why the others were *left_out*."""

    model: Model
    config: Config
    left_out: Mapping[str, Refusal]


def fit(members: Shards, build: Build) -> Fitted:
    """Build *members*; leave out the youngest until what is left fits, or nobody is left."""
    model, text = build(members)
    if not text.oversized:
        return Fitted(model, text, {})
    kept, size = sorted(members, key=lambda member: member.age_key), text.size
    left: list[Member] = []
    while text.oversized and kept:
        sizes = _sizes(model, text.text, kept)
        excess = (text.size - config.MOST_BYTES) * len(text.text) / text.size  # what is beside the text goes with it
        freed, first = 0, len(left)
        while kept and (freed < excess or len(left) == first):
            left.append(kept.pop())
            freed += sizes.get(left[-1].key, 0)
        model, text = build(kept)
    return Fitted(model, text, {each.key: _left_out(model.group, size, len(left), len(members)) for each in left})


def _left_out(group: str, size: int, left: int, members: int) -> Refusal:
    message = (
        f"the configuration of KeepalivedGroup {group} would have {size:,} bytes, of which a ConfigMap holds "
        f"{config.MOST_BYTES:,}: the {left} youngest of its {members} Services are left out, this one among them; "
        f"{config.REMEDY}"
    )
    return Refusal(Reason.PENDING, message)


def _sizes(model: Model, text: str, members: Sequence[Member]) -> dict[str, int]:
    """How many bytes of *text* go to the account of each Service: its own instances, its lines in those of all."""
    owner: dict[Address, str] = {}
    for member in members:  # by age: whoever comes first carries an address
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
