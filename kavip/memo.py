"""
Results of pure functions, kept from one decision to the next.

A plan covers thousands of Services, of which one has changed. Arguments are compared by value, and identical objects
first: that costs nanoseconds, where hashing all of them would cost as much as the call. The Snapshot has one
:class:`Memory` for each group and drops it with the group. What the plans of a group do not use any more, because an
instance has gone, is dropped after a few plans.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps
from itertools import compress, count
from operator import is_not, not_
from typing import Any, Final, Generic, NamedTuple, TypeVar, TypeVarTuple

R = TypeVar("R")
Item = TypeVar("Item")
Arguments = TypeVarTuple("Arguments")

MOST: Final = 1024
"""Names for which one function's results are kept: twice the instances of the largest group."""

TURNS: Final = 16
"""Turns after which results that are not used any more are dropped, or twice as many."""

_FEW: Final = 8
"""Changes, or one item in as many, up to which a result is updated; each change costs more than one item at once."""


class Change(NamedTuple, Generic[Item]):
    """The objects that have left a sequence and those that have come, both in their order."""

    left: tuple[Item, ...]
    come: tuple[Item, ...]


def change_of(before: tuple[Item, ...], after: tuple[Item, ...]) -> Change[Item]:
    """
    What differs between *before* and *after*, which mostly have the same objects in the same order.

    They are compared by identity, in loops that Python itself runs.
    """
    first = common_begin(before, after)
    last = _common(reversed(before), reversed(after), min(len(before), len(after)) - first)
    left, come = before[first : len(before) - last], after[first : len(after) - last]
    if not (left and come):
        return Change(left, come)
    kept = set(map(id, left)).intersection(map(id, come))
    return Change(*(tuple(compress(some, map(not_, map(kept.__contains__, map(id, some))))) for some in (left, come)))


def common_begin(one: Sequence[object], other: Sequence[object]) -> int:
    """How many objects both begin with."""
    return _common(one, other, min(len(one), len(other)))


def _common(one: Iterable[object], other: Iterable[object], most: int) -> int:
    """How many objects both begin with, at *most*."""
    return min(most, next(compress(count(), map(is_not, one, other)), most))


def index_of(ordered: Sequence[Any], item: object) -> int:
    """The index of *item* in what is *ordered*; raises :class:`ValueError` if it is not there."""
    at = bisect_left(ordered, item)
    if at == len(ordered) or ordered[at] != item:
        raise ValueError(f"{item} is not there")
    return at


def _itself(value: R) -> R:
    return value


Results = dict[Callable[..., Any], dict[Hashable, tuple[tuple[Any, ...], Any]]]
"""Arguments and results by function and name."""


class Memory:
    """The last results of functions, by function and name. Without it, and after any loss, only time is lost."""

    def __init__(self, most: int = MOST) -> None:
        """Keep results for at most *most* names of each function, in each of two generations; 0 keeps nothing."""
        self._most = most
        self._results: Results = {}
        self._older: Results = {}  # not used since the generation began
        self._states: dict[type, Any] = {}
        self._older_states: dict[type, Any] = {}
        self._turns = 0
        self._parts: dict[str, Memory] = {}

    def begin_turn(self) -> None:
        """Begin a decision that uses all results that are still of use. After several turns a generation begins."""
        self._turns += 1
        if self._turns % TURNS == 0:
            self._older, self._results = self._results, {}
            self._older_states, self._states = self._states, {}
        for part in self._parts.values():
            part.begin_turn()

    def last(self, function: Callable[[*Arguments], R], name: Hashable, *arguments: *Arguments) -> R:
        """
        The result of *function* for *arguments*; the one kept under *name* if its arguments were equal.

        The function must be pure, and nothing may change the arguments afterwards.
        """
        if not self._most:
            return function(*arguments)
        before = self._results.get(function, {}).get(name) or self._older.get(function, {}).pop(name, None)
        result: R = before[1] if before and before[0] == arguments else function(*arguments)
        self._keep(function, name, arguments, result)
        return result

    def same(self, name: Hashable, value: R) -> R:
        """*value*, or the one of the last call if that is equal: results that depend on it are found by identity."""
        return self.last(_itself, name, value)

    def follow(
        self,
        function: Callable[[tuple[Item, ...], *Arguments], R],
        update: Callable[[R, Change[Item], *Arguments], R],
        name: Hashable,
        items: tuple[Item, ...],
        *arguments: *Arguments,
    ) -> R:
        """
        The same as :meth:`last` for *function* of *items* and *arguments*.

        If only a few *items* differ from those of the last call, *update* makes the result from the last one and the
        change. The results must be equal. After an error of *update* the next call uses *function*.
        """
        if not self._most:
            return function(items, *arguments)
        before = self._results.get(function, {}).pop(name, None) or self._older.get(function, {}).pop(name, None)
        result: R
        if before is None or before[0][1:] != arguments:
            result = function(items, *arguments)
        elif before[0][0] is items:
            result = before[1]
        else:
            change = change_of(before[0][0], items)
            is_small = len(change.left) + len(change.come) <= max(_FEW, len(items) // _FEW)
            result = update(before[1], change, *arguments) if is_small else function(items, *arguments)
        self._keep(function, name, (items, *arguments), result)
        return result

    def _keep(self, function: Callable[..., Any], name: Hashable, arguments: tuple[Any, ...], result: object) -> None:
        results = self._results.setdefault(function, {})
        if name not in results and len(results) >= self._most:
            del results[next(iter(results))]
        results[name] = arguments, result  # also the new objects: the next comparison is by identity

    def part(self, name: str) -> "Memory":
        """The memory of a second use of the same functions and names, which would replace the results of the first."""
        return self._parts.setdefault(name, Memory(self._most)) if self._most else self

    def state(self, kind: type[R]) -> R:
        """The one object of *kind* that is kept here, for calculations that continue from their last result."""
        if not self._most:
            return kind()
        if kind not in self._states:
            self._states[kind] = self._older_states.pop(kind, None) or kind()
        found: R = self._states[kind]
        return found


KEEPS_NOTHING: Final = Memory(most=0)


class Recent(Generic[R]):
    """
    The results for the long texts that were used last.

    Texts are compared, and not hashed as a cache of functools does it: most differ in length or at their begin, and the
    one that is looked for is often the same object.
    """

    def __init__(self, most: int) -> None:
        """Keep the results for the *most* texts that were used last."""
        self._most = most
        self._found: tuple[tuple[str, R], ...] = ()  # replaced as a whole: threads may share it

    def get(self, text: str) -> R | None:
        """The result for *text*; None if it is not kept."""
        found = self._found
        for each in found:
            if each[0] is text:
                break
        else:
            for each in found:
                if each[0] == text:
                    break
            else:
                return None
        if each is not found[0]:
            self._found = (each, *(other for other in found if other is not each))
        return each[1]

    def keep(self, text: str, result: R) -> R:
        """Keep the *result* for *text*, and return it."""
        self._found = ((text, result), *self._found)[: self._most]
        return result


def recent(most: int) -> Callable[[Callable[[str], R]], Callable[[str], R]]:
    """A decorator for a function of a long text, which is never None: its results are kept in :class:`Recent`."""

    def decorate(function: Callable[[str], R]) -> Callable[[str], R]:
        results = Recent[R](most)

        @wraps(function)
        def find(text: str) -> R:
            result = results.get(text)
            return results.keep(text, function(text)) if result is None else result

        return find

    return decorate
