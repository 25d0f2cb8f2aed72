"""
The difference between two JSON values as a JSON merge patch (RFC 7386): only what changed is sent.

Lists are replaced whole, as merge patches do; what is gone is null.
"""

from collections.abc import Mapping
from typing import Any, Final

from kavip.reconcile.plan import Json

_ABSENT: Final = object()


def merge_patch(old: Json, new: Json) -> dict[str, Any]:
    """The patch that makes *new* of *old*; empty if they are equal."""
    patch: dict[str, Any] = dict.fromkeys(sorted(old.keys() - new.keys()))
    changed = {key: value for key, value in new.items() if old.get(key, _ABSENT) != value}
    for key, value in sorted(changed.items()):
        before = old.get(key)
        patch[key] = merge_patch(before, value) if isinstance(value, Mapping) and isinstance(before, Mapping) else value
    return patch


def patched(old: Json, patch: Json) -> dict[str, Any]:
    """*old* after *patch*, as the API server does it."""
    result = {key: value for key, value in old.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            before = old.get(key)
            result[key] = patched(before if isinstance(before, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result
