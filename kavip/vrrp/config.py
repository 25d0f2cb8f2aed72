"""
The model of a group as the text of ``keepalived.conf``.

All nodes of a group get one text: lines for one node carry keepalived's own marks (``@n1``: only on node n1, ``@^n1``:
on all other nodes). Every value passes :func:`guard` on its way into the template, so that no value can become a second
word, a brace, a comment, a macro or a new line.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.errors import UnsafeValue
from kavip.memo import KEEPS_NOTHING, Change, Memory, index_of
from kavip.names import Reason
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.priorities import UNLISTED
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

MOST_BYTES: Final = 1_000_000
"""Most bytes of a text: a ConfigMap holds 1 MiB with all its keys, metadata and the agent's key included."""

REMEDY: Final = "use instances.mode Shared, several groups, or a nodeSelector that picks fewer nodes"

HASH_LENGTH: Final = 16

_SAFE: Final = re.compile(r"[A-Za-z0-9_.:/+=,-]{1,256}")


class _Lines(str):
    """Whole lines whose values have passed the guard."""

    __slots__ = ()


_MADE: Final = frozenset({int, Address, VirtualIP, _Lines})  # their text is made by kavip


@dataclass(frozen=True, slots=True)
class Config:
    """
    A rendered configuration; *hash* identifies it everywhere. *oversized* is set if no ConfigMap can hold it.

    *agent_bytes*: the bytes in the agent's key of the ConfigMap that belong to it.
    """

    text: str
    hash: str
    oversized: Refusal | None = None
    agent_bytes: int = 0

    @property
    def size(self) -> int:
        """Its bytes in a ConfigMap."""
        return len(self.text) + self.agent_bytes


def render(model: Model, *, agent_bytes: int = 0, memory: Memory = KEEPS_NOTHING) -> Config:
    """
    The configuration of *model*; *agent_bytes* are the bytes in the agent's key of the ConfigMap that belong to it.

    Raises :class:`UnsafeValue` for a value that the text cannot hold. Only objects that bypassed every check have one.
    """
    blocks = (memory.last(_block, (each.name, bool(each.added)), each, memory) for each in model.instances)
    text = "".join([_HEAD.render(model=model, track_dir=TRACK_DIR), *blocks])
    return Config(
        text,
        hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH],
        _oversized(model, len(text) + agent_bytes),
        agent_bytes,
    )


def _block(instance: Instance, memory: Memory) -> str:
    if instance.has_own_anchor:  # it has thousands, of which few change
        excluded: Iterable[str] = memory.follow(_written, _written_after, instance.name, instance.excluded).lines
    else:
        excluded = map(_line, instance.excluded)
    return _INSTANCE.render(instance=instance, unlisted=UNLISTED, excluded=_Lines("".join(excluded)))


class _Written(NamedTuple):
    """Sorted VIPs and their lines."""

    vips: tuple[VirtualIP, ...]
    lines: tuple[str, ...]


def _written(vips: tuple[VirtualIP, ...]) -> _Written:
    return _Written(vips, tuple(map(_line, vips)))


def _written_after(before: _Written, change: Change[VirtualIP]) -> _Written:
    vips, lines = list(before.vips), list(before.lines)
    for each in change.left:
        at = index_of(vips, each)
        del vips[at], lines[at]
    for each in change.come:
        at = bisect_left(vips, each)
        vips.insert(at, each)
        lines.insert(at, _line(each))
    return _Written(tuple(vips), tuple(lines))


def _line(vip: VirtualIP) -> str:
    return f"        {guard(vip)} dev {guard(vip.interface)}\n"


def guard(value: object) -> object:
    """*value*, checked for the template; raises :class:`UnsafeValue` for anything except one plain word."""
    if type(value) in _MADE or (isinstance(value, str) and _SAFE.fullmatch(value)):
        return value
    raise UnsafeValue("", value, "cannot be written to keepalived.conf: want one word of letters, digits and _.:/+=,-")


def _oversized(model: Model, length: int) -> Refusal | None:
    if length <= MOST_BYTES:
        return None
    message = (
        f"the configuration of group {model.group} has {length:,} bytes for {len(model.instances)} instances, and a "
        f"ConfigMap holds {MOST_BYTES:,}; {REMEDY}"
    )
    return Refusal(Reason.INVALID, message)


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("kavip.vrrp"),
        undefined=StrictUndefined,
        finalize=guard,
        autoescape=False,  # noqa: S701 - not HTML; the guard is stricter
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_HEAD: Final = _templates().get_template("keepalived.conf.j2")
_INSTANCE: Final = _HEAD.environment.get_template("vrrp_instance.j2")
