"""Patches of status as an API server applies them."""

from collections.abc import Mapping
from typing import Any


def merged(old: Any, patch: Any) -> Any:
    """The result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def strategic(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a strategic merge patch of a Service's status: conditions by type, the rest as a merge patch."""
    rest = {key: value for key, value in patch.items() if key != "conditions"}
    conditions = {each["type"]: each for each in old.get("conditions") or ()}
    for each in patch.get("conditions") or ():
        if each.get("$patch") == "delete":
            conditions.pop(each["type"], None)
        else:
            conditions[each["type"]] = {**conditions.get(each["type"], {}), **each}
    return {**merged(old, rest), "conditions": list(conditions.values()) or None}
