"""
The Services that a user names on the command line.
"""

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Self

from kavip.errors import BadInput


@dataclass(frozen=True, slots=True)
class Scope:
    """The Services that a user chose: those with one of *keys*, and in *namespace*; empty is all."""

    keys: tuple[str, ...] = ()
    namespace: str = ""

    @classmethod
    def of(cls, services: Collection[str], namespace: str, default: str = "default") -> Self:
        """*services* (``ns/name``, or a name in *namespace* or *default*), and only those in *namespace*."""
        return cls(tuple(key_of(each, namespace or default) for each in services), namespace)

    def has(self, key: str) -> bool:
        """Whether the Service *key* is one of them."""
        return (not self.keys or key in self.keys) and (not self.namespace or key.startswith(f"{self.namespace}/"))

    def check(self, existing: Collection[str]) -> None:
        """Raise :class:`BadInput` if the user named a Service that is none of *existing*."""
        for key in self.keys:
            check_service(key, existing)


EVERY: Final = Scope()


def key_of(service: str, namespace: str) -> str:
    """The key of *service*: ``ns/name``, or a name in *namespace*."""
    return service if "/" in service else f"{namespace}/{service}"


def check_service(key: str, existing: Collection[str]) -> None:
    """Raise :class:`BadInput` if *existing* has no Service *key*, with the one that is probably meant."""
    if key in existing:
        return
    name = key.rpartition("/")[2]
    same_name = sorted(each for each in existing if each.rpartition("/")[2] == name)
    meant = next(iter([*same_name, *get_close_matches(key, sorted(existing), 1)]), "")
    raise BadInput("SERVICE", key, f"no such Service; did you mean {meant}?" if meant else "no such Service")
