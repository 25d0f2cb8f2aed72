"""
The rows of the sections of the page, and their names in JSON. Rows of a section are sorted by their *id*.

Texts from users and nodes are printable, on one line, and cut.
"""

from enum import StrEnum
from typing import Final

import msgspec

from kavip.api.text import one_line

LONGEST: Final = 600
"""Characters of a text in a row; the page of a Service and ``kavip explain`` show all of it."""


class Level(StrEnum):
    """How much a row matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row; *id* is unique in its section."""

    id: str
    level: Level = Level.OK


class ProblemRow(Row, frozen=True, kw_only=True):
    """One thing that is wrong with an object; *service*: its page says more. *command* says more, or mends it."""

    kind: str
    name: str
    reason: str
    message: str
    since: str = ""
    service: str = ""
    command: str = ""


class GroupRow(Row, frozen=True, kw_only=True):
    """A KeepalivedGroup; *desired* nodes, *ready* pods, and *current* nodes with the newest configuration."""

    group: str
    mode: str
    interface: str
    desired: int
    ready: int
    current: int
    state: str
    message: str


class MemberRow(Row, frozen=True, kw_only=True):
    """
    A node in a group, with the number of VIPs that it holds.

    *agent*: ``Answers``, ``Silent``, ``Unknown`` if it was not asked; *problems*: what it reports. *ready*: whether the
    node is; None: unknown.
    """

    group: str
    node: str
    ready: bool | None
    cordoned: bool
    drained: bool
    virtual_ips: int
    agent: str
    problems: tuple[str, ...] = ()


class VirtualIPRow(Row, frozen=True, kw_only=True):
    """
    A VIP, or a Service that has none yet.

    *since*: when *node* became its master, by the clock of the node. *successor*: the node that takes it over if *node*
    fails or is drained; "": none, or unknown.
    """

    address: str
    service: str
    group: str
    pool: str
    node: str
    state: str
    message: str
    since: str = ""
    successor: str = ""


class SpanRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    Consecutive addresses of a pool with one *use*: ``Assigned``, ``Cooling``, ``Reserved``, ``Excluded``, ``Free``.

    *size*: their number, as text, because JavaScript cannot count a /64. *holder*: the Services that have it.
    """

    first: str
    last: str
    size: str
    use: str
    holder: str = ""


class PoolRow(Row, frozen=True, kw_only=True):
    """A VIPPool. *counts*: addresses by use, as text; *spans*: its addresses in order, without *omitted* ones."""

    pool: str
    priority: int
    auto_assign: bool
    interface: str
    state: str
    message: str
    counts: dict[str, str]
    spans: tuple[SpanRow, ...]
    omitted: int = 0


class TimelineRow(Row, frozen=True, kw_only=True):
    """A change *at* a time (RFC 3339) of the object *kind* *name*."""

    at: str
    kind: str
    name: str
    reason: str
    text: str


class NoteRow(Row, frozen=True, kw_only=True):
    """What the reader must know of the picture, such as what the user may not read."""

    text: str


def shown(text: str) -> str:
    """*text* as rows hold it."""
    line = one_line(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
