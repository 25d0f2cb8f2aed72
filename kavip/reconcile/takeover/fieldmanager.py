"""
How server-side apply takes over the fields of an object that another program created.

A field stays in an object until all its managers give it up. A removed program gives up none. Therefore its fields of
``spec`` become kavip's, as ``kubectl`` does with fields from before server-side apply. The next apply then removes
those that kavip does not set. Fields outside ``spec`` stay with their manager.
"""

from collections.abc import Iterable
from typing import Any, Final

from kavip.api.meta import Passthrough

_SPEC: Final = "f:spec"


def take_over_spec(entries: Iterable[Passthrough], *, manager: str) -> list[Passthrough]:
    """*entries* of ``managedFields``, with all fields of ``spec`` moved to server-side apply by *manager*."""
    result: list[Passthrough] = []
    moved: dict[str, Any] = {}
    own: Passthrough = {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1"}
    for entry in entries:
        fields = dict(entry.get("fieldsV1") or {})
        is_own = (entry.get("manager"), entry.get("operation")) == (manager, "Apply")
        if entry.get("subresource") or not (is_own or _SPEC in fields):
            result.append(entry)
            continue
        moved = _joined(moved, fields if is_own else {_SPEC: fields.pop(_SPEC)})
        own = {**own, "apiVersion": entry.get("apiVersion"), "time": entry.get("time")}
        if not is_own and fields:
            result.append({**entry, "fieldsV1": fields})
    return [*result, {**own, "fieldsV1": moved}] if moved else result


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The union of two sets of fields."""
    return {
        name: _joined(one.get(name, {}), other.get(name, {}))
        for name in (*one, *(each for each in other if each not in one))
    }
