"""
Who owns the fields of an object that another program made, and how server-side apply comes to own them.

What somebody else has written stays in an object until its owner gives it up, and a program that is gone gives up
nothing. So its claims on ``spec`` become kavip's, as ``kubectl`` does with what it wrote before it knew server-side
apply; the next apply then removes what kavip does not want. Claims on anything else stay.
"""

from collections.abc import Iterable
from typing import Any, Final

from kavip.api.meta import ManagedMetadata, Passthrough, Wire

_SPEC: Final = "f:spec"


class Managed(Wire, frozen=True):
    """Any object, as far as it says who owns its fields."""

    metadata: ManagedMetadata = ManagedMetadata()


def inherited(entries: Iterable[Passthrough], *, by: str) -> list[Passthrough]:
    """*entries* of ``managedFields``, with all claims on ``spec`` as those of server-side apply *by* a manager."""
    result: list[Passthrough] = []
    claimed: dict[str, Any] = {}
    mine: Passthrough = {"manager": by, "operation": "Apply", "fieldsType": "FieldsV1"}
    for entry in entries:
        fields = dict(entry.get("fieldsV1") or {})
        is_mine = (entry.get("manager"), entry.get("operation")) == (by, "Apply")
        if entry.get("subresource") or not (is_mine or _SPEC in fields):
            result.append(entry)
            continue
        claimed = _joined(claimed, fields if is_mine else {_SPEC: fields.pop(_SPEC)})
        mine = {**mine, "apiVersion": entry.get("apiVersion"), "time": entry.get("time")}
        if not is_mine and fields:
            result.append({**entry, "fieldsV1": fields})
    return [*result, {**mine, "fieldsV1": claimed}] if claimed else result


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two sets of fields as one."""
    return {
        name: _joined(one.get(name, {}), other.get(name, {}))
        for name in (*one, *(each for each in other if each not in one))
    }
