"""
What a pure function made last, by name: made again only where its arguments are others.

A plan concerns thousands of Services, of which one has changed. Arguments are compared by value, and what is the same
object is the same value at once: that costs nanoseconds, where a hash over all of it would cost what is to be saved.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Final, TypeVar

_KEPT: Final[list[dict[Hashable, tuple[tuple[Any, ...], Any]]]] = []

F = TypeVar("F", bound=Callable[..., Any])


def last(most: int) -> Callable[[F], F]:
    """
    Remember for each first argument, the name, what the function made last; for *most* names.

    The name must be among what the function depends on, or not matter to it; the other arguments must not change.
    """

    def remember(function: F) -> F:
        found: dict[Hashable, tuple[tuple[Any, ...], Any]] = {}
        _KEPT.append(found)

        @wraps(function)
        def remembering(name: Hashable, *arguments: Any) -> Any:
            before = found.get(name)
            made = before[1] if before and before[0] == arguments else function(name, *arguments)
            if name not in found and len(found) >= most:
                del found[next(iter(found))]
            found[name] = arguments, made  # these objects, with which the next are compared
            return made

        return remembering  # type: ignore[return-value]  # the same signature

    return remember


def forget() -> None:
    """Make everything anew from now on: nothing but the time that it takes may differ."""
    for found in _KEPT:
        found.clear()
