"""
The model of a group as the text of ``keepalived.conf``.

All nodes of a group get one text: lines for one node carry keepalived's own marks (``@n1``: only on node n1, ``@^n1``:
on all other nodes). Every value passes :func:`guard` on its way into the template, so that no value can become a second
word, a brace, a comment, a macro or a new line.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from kavip.api.address import MOST_READ, Address
from kavip.api.refusal import Refusal
from kavip.errors import UnsafeValue
from kavip.memo import KEEPS_NOTHING, Change, Memory, common_begin, index_of
from kavip.names import Reason
from kavip.vrrp.compact import MOST_EXPANDED, encode
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.packed import MOST_UNPACKED, pack
from kavip.vrrp.priorities import UNLISTED
from kavip.vrrp.tokens import WORD
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

MOST_BYTES: Final = 1_000_000
"""Most bytes of a text: a ConfigMap holds 1 MiB with all its keys, metadata and the agent's key included."""

LARGE: Final = 1 << 16
"""Bytes of a text from which on the compact notation is worth it."""
REPEATED: Final = 2_000
"""The lines for single nodes that such a text has: about as many bytes. The lines of VIPs stay as they are."""
LONG: Final = 1 << 17
"""Bytes from which on a text is packed: the compact one, if it is compact."""
_SMALLER: Final = 0.75
"""A text leaves a notation below this part of what makes it worth it."""

_SHARE: Final = "instances.mode Shared, "
_REMEDY: Final = "several groups, or a nodeSelector that picks fewer nodes"

HASH_LENGTH: Final = 16

_PLACE: Final = "\0"  # no text has it
_SAFE: Final = re.compile(WORD)


class _Lines(str):
    """Whole lines whose values have passed the guard."""

    __slots__ = ()


_MADE: Final = frozenset({int, Address, VirtualIP, _Lines})  # their text is made by kavip


class Use(Enum):
    """When a text is written in a notation."""

    OFF = auto()
    """Never, whatever agents read."""
    NEVER = auto()
    """Not every agent is known to read it."""
    IF_LARGE = auto()
    UNLESS_SMALL = auto()
    """It is in that notation already."""
    IF_NEEDED = auto()
    """Where a ConfigMap cannot hold it otherwise. An agent that cannot read it keeps what it runs."""


class Notations(NamedTuple):
    """When a text is *compact* (:mod:`kavip.vrrp.compact`), and when *packed* (:mod:`kavip.vrrp.packed`)."""

    compact: Use = Use.OFF
    packed: Use = Use.OFF


IN_FULL: Final = Notations()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    The ConfigMap for which a text is rendered.

    *agent_bytes*: the bytes in the agent's key that belong to the text.
    """

    notations: Notations = IN_FULL
    agent_bytes: int = 0


PLAIN: Final = Target()


class LimitKind(StrEnum):
    """What is limited: the bytes in a ConfigMap, or those of the text that agents make of them."""

    CONFIG_MAP = "configMap"
    UNPACKED = "unpacked"
    IN_FULL = "inFull"


class Limit(NamedTuple):
    """A limit of the size of a text: the bytes that it has *used*, of at *most* so many."""

    used: int
    most: int
    kind: LimitKind

    @property
    def part(self) -> float:
        """The part that is used; above 1 the text is too large."""
        return self.used / self.most


@dataclass(frozen=True, slots=True)
class Config:
    """
    A rendered configuration; *hash* identifies it everywhere.

    *parts*: its head and its instances, in full. *content*: the text as a ConfigMap for *target* has it, before it is
    packed if *is_packed*. *oversized* is set if none can hold it.
    """

    parts: tuple[str, ...]
    hash: str
    content: str
    target: Target = PLAIN
    is_packed: bool = False
    oversized: Refusal | None = None

    @property
    def text(self) -> str:
        """The text in full, which is joined from the parts: megabytes that few need."""
        return "".join(self.parts)

    @property
    def size_in_full(self) -> int:
        """The bytes of the text in full."""
        return _size_of(self.parts)

    @property
    def size(self) -> int:
        """Its bytes in a ConfigMap."""
        return len(pack(self.content) if self.is_packed else self.content) + self.target.agent_bytes

    @property
    def nearest(self) -> "Limit":
        """The limit that it reaches first as it grows."""
        limits = [Limit(self.size, MOST_BYTES, LimitKind.CONFIG_MAP)]
        if self.is_packed:
            limits.append(Limit(len(self.content), MOST_UNPACKED, LimitKind.UNPACKED))
        return max(*limits, Limit(self.size_in_full, MOST_EXPANDED, LimitKind.IN_FULL), key=lambda each: each.part)

    @property
    def excess(self) -> float:
        """How many times it is as large as it may be."""
        return self.nearest.part

    @property
    def need(self) -> str:
        """What it needs, and what there is, in words."""
        if self.size > MOST_BYTES:
            return f"{self.size:,} bytes, and a ConfigMap holds {MOST_BYTES:,}"
        if self.is_packed and len(self.content) > MOST_UNPACKED:
            return f"{len(self.content):,} bytes unpacked, and an agent reads {MOST_UNPACKED:,}"
        return f"{self.size_in_full:,} bytes in full, and an agent reads {MOST_EXPANDED:,}"


def render(model: Model, target: Target = PLAIN, *, memory: Memory = KEEPS_NOTHING) -> Config:
    """
    The configuration of *model*.

    Raises :class:`UnsafeValue` for a value that the text cannot hold. Only objects that bypassed every check have one.
    """
    blocks = [(each.name, memory.last(_block, each.name, each, memory)) for each in model.instances]
    parts = [("", memory.same("head", _HEAD.render(model=model, track_dir=TRACK_DIR))), *blocks]
    texts = tuple(part for _, part in parts)
    content = encode(parts, memory) if _is_compact(model, _size_of(texts), target) else ""
    content = content or "".join(texts)
    found = Config(texts, _hash_of(texts, memory), content, target, _is_packed(content, target))
    if found.is_packed:
        pack(found.content, memory)  # all who pack this text now get this result
    return replace(found, oversized=_oversized(model, found)) if found.excess > 1 else found


@dataclass(slots=True)
class _LastHash:
    """The *parts* of the text that was hashed last, and its SHA-256 up to the end of each."""

    parts: list[str] = field(default_factory=list)
    hashes: list["hashlib._Hash"] = field(default_factory=list)


def _hash_of(parts: Sequence[str], memory: Memory) -> str:
    """The hash of the text in *parts*: the last one, continued from the first part that is another object now."""
    last = memory.state(_LastHash)
    same = common_begin(parts, last.parts)
    del last.parts[same:], last.hashes[same:]
    found = last.hashes[-1].copy() if same else hashlib.sha256()
    for part in parts[same:]:
        found.update(part.encode())
        last.parts.append(part)
        last.hashes.append(found.copy())
    return found.hexdigest()[:HASH_LENGTH]


def _size_of(parts: Iterable[str]) -> int:
    return sum(map(len, parts))


def _is_compact(model: Model, size: int, target: Target) -> bool:
    use = target.notations.compact
    is_needed = size + target.agent_bytes > MOST_BYTES
    return _is_used(use, is_needed, lambda part: is_large(model, size, part=part))


def _is_packed(content: str, target: Target) -> bool:
    is_needed = len(content) + target.agent_bytes > MOST_BYTES
    return _is_used(target.notations.packed, is_needed, lambda part: len(content) > LONG * part)


def _is_used(use: Use, is_needed: bool, is_worth: Callable[[float], bool]) -> bool:
    match use:
        case Use.IF_LARGE:
            return is_worth(1.0)
        case Use.UNLESS_SMALL:
            return is_needed or is_worth(_SMALLER)
        case Use.IF_NEEDED:
            return is_needed
    return False


def is_large(model: Model, size: int, *, part: float = 1.0) -> bool:
    """Whether *size*, that of the text of *model*, exceeds this *part* of what makes the compact notation worth it."""
    repeated = sum(len(each.priorities) + len(each.sources) + len(each.peers) for each in model.instances[1:])
    return size > LARGE * part and repeated > REPEATED * part


def _block(instance: Instance, memory: Memory) -> str:
    if not (instance.has_own_anchor and instance.excluded):
        return _rendered(instance, "".join(map(_line, instance.excluded)))
    frame = replace(instance, excluded=(instance.anchor,), services=())  # of thousands of VIPs few change
    before, after = memory.last(_frame, instance.name, frame)
    return "".join([before, *memory.follow(_written, _written_after, instance.name, instance.excluded).lines, after])


def _frame(instance: Instance) -> tuple[str, str]:
    """The lines of *instance* before its list of VIPs, and those after it."""
    before, _, after = _rendered(instance, _PLACE).partition(_PLACE)
    return before, after


def _rendered(instance: Instance, excluded: str) -> str:
    return _INSTANCE.render(instance=instance, unlisted=UNLISTED, excluded=_Lines(excluded))


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


@lru_cache(MOST_READ)  # most stay the same from one text to the next
def _line(vip: VirtualIP) -> str:
    return f"        {guard(vip)} dev {guard(vip.interface)}\n"


def guard(value: object) -> object:
    """*value*, checked for the template; raises :class:`UnsafeValue` for anything except one plain word."""
    if type(value) in _MADE or (isinstance(value, str) and _SAFE.fullmatch(value)):
        return value
    raise UnsafeValue("", value, "cannot be written to keepalived.conf: want one word of letters, digits and _.:/+=,-")


def remedy(model: Model) -> str:
    """What makes the text of *model* smaller, in words."""
    is_shared = any(each.has_own_anchor for each in model.instances)
    return f"use {'' if is_shared else _SHARE}{_REMEDY}"


def _oversized(model: Model, config: Config) -> Refusal:
    count = len(model.instances)
    message = f"the configuration of group {model.group} with {count} instances has {config.need}; {remedy(model)}"
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
