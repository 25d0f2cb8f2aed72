"""
The bytes that large request bodies hold together: a budget in fair shares. It reads nothing and awaits nothing.

A body is charged with its size as its bytes arrive. What was charged is returned when the body ends, in whatever way.
If the budget is used up, the senders have equal shares, as of the connections (:mod:`kavip.http.shares`), in bytes: a
sender that holds less than the largest one displaces the oldest body of that one. A sender displaces no body of its
own, and none of a sender that then holds no more than itself. So no two senders displace each other's bodies in turn.
Bodies of verified senders count for no share: they displace others, and are never displaced.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from kavip.errors import KavipError
from kavip.http.shares import Path, prefixes


class BudgetExceeded(KavipError):
    """There is no room for a body, or its room was given to another one."""


class HeldBody:
    """What one body holds of *budget*; a context manager that returns it. *end* is called if it is displaced."""

    __slots__ = ("_budget", "end", "is_displaced", "path", "size")

    def __init__(self, budget: "BodyBudget", path: Path | None, end: Callable[[], None]) -> None:
        """*path* is that of the sender, None if it is verified."""
        self._budget, self.path, self.end = budget, path, end
        self.size = 0
        self.is_displaced = False

    def grow(self, size: int) -> None:
        """Hold *size* bytes, which is no less than before; raises :class:`BudgetExceeded`."""
        if self.is_displaced:
            raise BudgetExceeded
        self._budget.charge(self, size - self.size)

    def release(self) -> None:
        """Return everything; a second call changes nothing."""
        self._budget.release(self)

    def __enter__(self) -> "HeldBody":
        """Hold nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release, also after an exception."""
        self.release()


class BodyBudget:
    """*size* bytes; *left* of them are not held."""

    def __init__(self, size: int) -> None:
        """Start with the whole budget."""
        self.size = self.left = size
        self._held: defaultdict[Path, dict[HeldBody, None]] = defaultdict(dict)  # of each sender, oldest first
        self._sizes = Counter[Path]()  # of each branch

    def body(self, path: Path | None, end: Callable[[], None] = lambda: None) -> HeldBody:
        """A body that holds nothing yet, of the sender *path*, or of a verified one."""
        return HeldBody(self, path, end)

    def charge(self, body: HeldBody, count: int) -> None:
        """Let *body* hold *count* bytes more; others end if there is no room."""
        while count > self.left:
            largest = self._largest()
            if largest is None or not self._gives_way(largest, body.path, count):
                raise BudgetExceeded
            oldest = next(iter(self._held[largest]))
            self.release(oldest)
            oldest.is_displaced = True
            oldest.end()
        self._add(body, count)

    def release(self, body: HeldBody) -> None:
        """Return all that *body* holds."""
        self._add(body, -body.size)

    def _add(self, body: HeldBody, count: int) -> None:
        body.size += count
        self.left -= count
        if body.path is None:
            return
        for prefix in prefixes(body.path):
            self._sizes[prefix] += count
            if not self._sizes[prefix]:
                del self._sizes[prefix]
        bodies = self._held[body.path]
        if body.size:
            bodies[body] = None
        else:
            bodies.pop(body, None)
        if not bodies:
            del self._held[body.path]

    def _largest(self) -> Path | None:
        """The sender with the most bytes, of the kind with the most."""
        return max(self._held, key=lambda path: [self._sizes[each] for each in prefixes(path)], default=None)

    def _gives_way(self, largest: Path, new: Path | None, count: int) -> bool:
        """Whether the branch of *largest* is larger than that of *new* with *count* bytes more, where the two part."""
        if new is None:
            return True
        pairs = zip(prefixes(largest), prefixes(new), strict=True)
        return next((self._sizes[one] > self._sizes[other] + count for one, other in pairs if one != other), False)
