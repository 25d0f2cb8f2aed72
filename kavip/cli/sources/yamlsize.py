"""
How large a YAML document would be, event by event, before anything is built of it.

The loader recurses in C, so depth ends the process; an alias costs nothing until somebody walks what it stands for; of
a key that stands twice the loader silently takes the last.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from kavip.errors import BadFile

DEEPEST: Final = 200  # levels; Kubernetes' own objects stay below 30
ALIASED: Final = 100_000  # nodes that the aliases of one document may repeat


@dataclass(slots=True)
class _Open:
    """A collection that has begun: the nodes in it so far, and the keys where it is a mapping."""

    anchor: str
    keys: set[str] | None
    nodes: int = 1
    awaits_key: bool = True


@dataclass(slots=True)
class Measure:
    """Of the stream *where*: :meth:`add` raises :class:`BadFile` at the first event that is too much."""

    where: str
    document: int = 0
    aliased: int = 0
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)

    def add(self, event: Any) -> None:
        """Look at one *event* of the parser."""
        match event:
            case yaml.DocumentStartEvent():
                self.document, self.aliased, self.anchors = self.document + 1, 0, {}
            case yaml.CollectionStartEvent():
                keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
                self.stack.append(_Open(event.anchor or "", keys))
                if len(self.stack) > DEEPEST:
                    self._refuse(event, f"nested more than {DEEPEST} levels deep")
            case yaml.CollectionEndEvent():
                done = self.stack.pop()
                self._count(done.nodes, anchor=done.anchor)
            case yaml.ScalarEvent():
                self._key(event)
                self._count(1, anchor=event.anchor or "")
            case yaml.AliasEvent():
                self._count(self._repeated(event))

    def _repeated(self, event: yaml.AliasEvent) -> int:
        """The nodes that an alias stands for."""
        if any(each.anchor == event.anchor for each in self.stack):
            self._refuse(event, f"the alias *{event.anchor} stands in what it names")
        nodes = self.anchors.get(event.anchor or "", 1)  # the loader tells of an unknown one
        self.aliased += nodes
        if self.aliased > ALIASED:
            self._refuse(event, f"aliases repeat more than {ALIASED} nodes")
        return nodes

    def _key(self, event: yaml.ScalarEvent) -> None:
        """Remember the key of a mapping."""
        keys = self.stack[-1].keys if self.stack and self.stack[-1].awaits_key else None
        if keys is None:
            return
        if event.value in keys:
            self._refuse(event, f'the key "{event.value}" stands twice in one object')
        keys.add(event.value)

    def _count(self, nodes: int, *, anchor: str = "") -> None:
        """Add *nodes* to the collection that is open, and remember them as those of *anchor*."""
        if anchor:
            self.anchors[anchor] = nodes
        if self.stack:
            self.stack[-1].nodes += nodes
            self.stack[-1].awaits_key = not self.stack[-1].awaits_key

    def _refuse(self, event: Any, problem: str) -> NoReturn:
        raise BadFile(self.where, problem, document=self.document, line=event.start_mark.line + 1)
