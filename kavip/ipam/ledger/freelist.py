"""
The lowest free address of one pool and family.

A cursor moves once over the ranges; addresses that are freed behind it go to a heap. The next free address costs O(log
n), whatever the size of the pool and however full it is. Memory grows with the addresses taken, not with the pool.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from kavip.ipam.ranges import Range, count_buggy


class FreeList:
    """
    The addresses of *spans* (sorted, disjoint, of one family), each free or taken.

    With *avoid_buggy*, IPv4 addresses that end in .0 or .255 do not count.
    """

    __slots__ = ("_avoid", "_cursor", "_freed", "_queued", "_span", "_spans", "_taken", "total")

    def __init__(self, spans: Sequence[Range], *, avoid_buggy: bool) -> None:
        """Start with all addresses free."""
        self._spans, self._avoid = spans, avoid_buggy and bool(spans) and spans[0].family == 4
        self.total = sum(span.size - (count_buggy(span) if avoid_buggy else 0) for span in spans)
        self._taken: set[int] = set()
        self._freed: list[int] = []  # a heap of values behind the cursor; some may be taken again
        self._queued: set[int] = set()  # the values in the heap, each once
        self._span = 0
        self._cursor = spans[0].first if spans else 0

    @property
    def available(self) -> int:
        """How many addresses are free."""
        return self.total - len(self._taken)

    def take(self, value: int) -> None:
        """Mark *value*, which is in the ranges, as taken."""
        self._taken.add(value)

    def free(self, value: int) -> None:
        """Mark *value*, which is in the ranges, as free."""
        if value in self._taken:
            self._taken.remove(value)
            if self._is_behind(value) and value not in self._queued:
                self._queued.add(value)
                heappush(self._freed, value)

    def lowest_of(self, number: int) -> list[int]:
        """The *number* lowest free values, or all of them if there are fewer; nothing is taken afterwards."""
        if number == 1:
            value = self.lowest()
            return [] if value is None else [value]
        found: list[int] = []
        while len(found) < number and (value := self.lowest()) is not None:
            found.append(value)
            self.take(value)
        for value in found:
            self.free(value)
        return found

    def lowest(self) -> int | None:
        """The lowest free value; None if all are taken."""
        while self._freed:
            if self._freed[0] not in self._taken:
                return self._freed[0]
            self._queued.remove(heappop(self._freed))
        return self._advance()

    def _is_behind(self, value: int) -> bool:
        return self._span == len(self._spans) or value < self._cursor

    def _advance(self) -> int | None:
        """Move the cursor to the next free value; the moves change no answer."""
        while self._span < len(self._spans):
            last = self._spans[self._span].last
            while self._cursor <= last:
                if self._cursor not in self._taken and not (self._avoid and self._cursor & 255 in (0, 255)):
                    return self._cursor
                self._cursor += 1
            self._span += 1
            if self._span < len(self._spans):
                self._cursor = self._spans[self._span].first
        return None
