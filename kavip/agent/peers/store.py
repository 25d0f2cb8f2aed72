"""
The last nodes of a static group, on disk: they count while the API server is away, over restarts and reboots.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kavip.agent.keepalived.rundir import replace_file
from kavip.agent.peers.membership import Nodes, Record
from kavip.api.address import Address, read_address
from kavip.api.meta import Wire

FILE: Final = "nodes.json"
_LARGEST: Final = 1 << 20


class _Stored(Wire, frozen=True):
    nodes: dict[str, tuple[str, ...]] | None = None
    seen: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    has_left: bool = False
    accepted: dict[str, tuple[str, ...]] | None = None


def load(folder: Path) -> Record:
    """The record in *folder*; a damaged or missing one is empty. Blocks."""
    try:
        with (folder / FILE).open("rb") as file:
            stored = msgspec.json.decode(file.read(_LARGEST), type=_Stored)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Record()
    return Record(
        _addresses(stored.nodes) if stored.nodes is not None else None,
        frozenset(stored.seen),
        frozenset(stored.gone),
        stored.has_left,
        {name: frozenset(each) for name, each in _addresses(stored.accepted or {}).items()},
    )


def save(folder: Path, record: Record) -> None:
    """Replace the record in *folder*. Blocks; raises OSError."""
    stored = _Stored(
        nodes=_texts(record.nodes) if record.nodes is not None else None,
        seen=tuple(sorted(record.seen)),
        gone=tuple(sorted(record.gone)),
        has_left=record.has_left,
        accepted=_texts({name: tuple(sorted(each)) for name, each in record.accepted.items()}),
    )
    replace_file(folder / FILE, msgspec.json.encode(stored, order="sorted"))


def _texts(nodes: Nodes) -> dict[str, tuple[str, ...]]:
    return {name: tuple(map(str, addresses)) for name, addresses in nodes.items()}


def _addresses(nodes: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[Address, ...]]:
    return {name: tuple(filter(None, map(read_address, addresses))) for name, addresses in nodes.items()}
