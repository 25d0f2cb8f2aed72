"""
The model as the text of ``keepalived.conf``.

One text for all nodes of a group: lines for one node carry keepalived's own marks (``@n1``: only there, ``@^n1``:
everywhere else). Every value passes :func:`guard` on its way into the template; whatever it may be, it cannot become a
second word, a brace, a comment, a macro or a new line.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from kavip.api.address import Address, read_address
from kavip.api.refusal import Refusal
from kavip.errors import UnsafeValue
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.names import Reason
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.priorities import UNLISTED
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

MOST_BYTES: Final = 1_000_000
"""A ConfigMap holds 1 MiB with all its keys; the rest is for metadata and the agent's own key."""

REMEDY: Final = "use instances.mode Shared, several groups, or a nodeSelector that picks fewer nodes"

HASH_LENGTH: Final = 16

_SAFE: Final = re.compile(r"[A-Za-z0-9_.:/+=,-]{1,256}")
_ANCHOR: Final = re.compile(r"^vrrp_instance (\S+) \{$|^    virtual_ipaddress \{\n +([0-9A-Fa-f:.]+)/", re.MULTILINE)


class _Lines(str):
    """Whole lines, of which every value was guarded when they were made."""

    __slots__ = ()


_MADE: Final = frozenset({int, Address, VirtualIP, _Lines})  # kavip makes their text


@dataclass(frozen=True, slots=True)
class Config:
    """
    A rendered configuration; *hash* names it everywhere. *oversized* says that no ConfigMap can hold it.

    *beside*: the bytes for it in the agent's own key.
    """

    text: str
    hash: str
    oversized: Refusal | None = None
    beside: int = 0

    @property
    def size(self) -> int:
        """The bytes that it takes of a ConfigMap."""
        return len(self.text) + self.beside


def render(model: Model, *, beside: int = 0, memory: Memory = KEEPS_NOTHING) -> Config:
    """
    The configuration of *model*; *beside* are the bytes that the ConfigMap holds for it in the agent's own key.

    Raises :class:`UnsafeValue` where a value cannot be written down, which only objects that slipped past every check
    can bring about.
    """
    blocks = (memory.last(_block, each.name, each) for each in model.instances)
    text = "".join([_HEAD.render(model=model, track_dir=TRACK_DIR), *blocks])
    return Config(
        text, hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH], _oversized(model, len(text) + beside), beside
    )


def _block(instance: Instance) -> str:
    return _INSTANCE.render(instance=instance, unlisted=UNLISTED, lines=_lines)


def _lines(vips: Iterable[VirtualIP]) -> _Lines:
    return _Lines("".join(map(_line, vips)))


@lru_cache(1 << 14)  # a Shared instance has hundreds, of which one is another
def _line(vip: VirtualIP) -> str:
    return f"        {guard(vip)} dev {guard(vip.interface)}\n"


def guard(value: object) -> object:
    """Let *value* into the template; raises :class:`UnsafeValue` for anything but one plain word."""
    if type(value) in _MADE or (isinstance(value, str) and _SAFE.fullmatch(value)):
        return value
    raise UnsafeValue("", value, "cannot stand in keepalived.conf: want one word of letters, digits and _.:/+=,-")


def anchors_of(text: str) -> Mapping[str, Address]:
    """The address that each instance of an earlier *text* advertises: what runs now; other texts have none."""
    found: dict[str, Address] = {}
    name = ""
    for match in _ANCHOR.finditer(text):
        if match[1]:
            name = match[1]
        elif (address := read_address(match[2])) is not None:
            found[name] = address
    return found


def _oversized(model: Model, length: int) -> Refusal | None:
    if length <= MOST_BYTES:
        return None
    size = f"{length:,} bytes for {len(model.instances)} instances, of which a ConfigMap holds {MOST_BYTES:,}"
    return Refusal(Reason.INVALID, f"the configuration of group {model.group} has {size}; {REMEDY}")


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("kavip.vrrp"),
        undefined=StrictUndefined,
        finalize=guard,
        autoescape=False,  # noqa: S701 - not HTML; the guard is far stricter
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_HEAD: Final = _templates().get_template("keepalived.conf.j2")
_INSTANCE: Final = _HEAD.environment.get_template("vrrp_instance.j2")
