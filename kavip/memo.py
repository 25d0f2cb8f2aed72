"""
Results of pure functions, kept from one decision to the next.

A plan covers thousands of Services, of which one has changed. Arguments are compared by value, and identical objects
first: that costs nanoseconds, where hashing all of them would cost as much as the call. The Snapshot has one
:class:`Memory` for each group and drops it with the group.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar, TypeVarTuple

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

MOST: Final = 1024
"""Names for which one function's results are kept: twice the instances of the largest group."""


class Memory:
    """The last results of functions, by function and name. Without it, and after any loss, only time is lost."""

    def __init__(self, most: int = MOST) -> None:
        """Keep results for at most *most* names of each function; 0 keeps nothing."""
        self._most = most
        self._results: dict[Callable[..., Any], dict[Hashable, tuple[tuple[Any, ...], Any]]] = {}
        self._states: dict[type, Any] = {}

    def last(self, function: Callable[[*Arguments], R], name: Hashable, *arguments: *Arguments) -> R:
        """
        The result of *function* for *arguments*; the one kept under *name* if its arguments were equal.

        The function must be pure, and nothing may change the arguments afterwards.
        """
        if not self._most:
            return function(*arguments)
        results = self._results.setdefault(function, {})
        before = results.get(name)
        result: R = before[1] if before and before[0] == arguments else function(*arguments)
        if name not in results and len(results) >= self._most:
            del results[next(iter(results))]
        results[name] = arguments, result  # also the new objects: the next comparison is by identity
        return result

    def state(self, kind: type[R]) -> R:
        """The one object of *kind* that is kept here, for calculations that continue from their last result."""
        if not self._most:
            return kind()
        if kind not in self._states:
            self._states[kind] = kind()
        found: R = self._states[kind]
        return found


KEEPS_NOTHING: Final = Memory(most=0)
