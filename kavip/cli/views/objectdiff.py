"""
The difference between one object that the files would make and the one in the cluster.

In a DaemonSet only the fields that kavip itself applied are compared, as the API server records them. Values that the
server or other clients added are no difference. Clear-text passwords of old configurations are never shown.
"""

import difflib
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import yaml

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, Written
from kavip.cli.views.switchover import switched
from kavip.vrrp.compact import Unreadable
from kavip.vrrp.packed import decompressed, in_full

_PASSWORD: Final = re.compile(r"(?<=\bauth_pass)([ \t]+)[^\n]*")
_SUFFIXES: Final = {
    suffix: Decimal(1000) ** power for power, suffix in zip(range(-3, 7), "num kMGTPE", strict=True)
} | {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_WITH_QUANTITIES: Final = ("limits", "requests")
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([a-zA-Z]{0,2})")


def diffs_of(
    body: Mapping[str, Any], found: Written | None, group: KeepalivedGroup | None
) -> Iterator[tuple[str, str]]:
    """The unified diffs from *found* in the cluster to *body*, each with its subject: ``Kind ns/name`` and a key."""
    kind = body["kind"]
    subject = f"{kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
    if kind == names.CONFIG_MAP:
        old, new = _existing_texts(found, group), _texts(body["data"], body.get("binaryData"))
        for name in sorted(old.keys() | new.keys()):
            yield from _unified(f"{subject} {name}", old.get(name, ""), new.get(name, ""))
    elif kind == names.DAEMON_SET:
        yield from _unified(
            subject, _yaml(_applied_by_kavip(found)) if found else "", _yaml(_normalized(_unnamed(body)))
        )


def _existing_texts(found: Written | None, group: KeepalivedGroup | None) -> dict[str, str]:
    """The texts of a ConfigMap in the cluster; a switchover that is pending in it counts as done."""
    if found is None:
        return {}
    texts = switched(group, ConfigMap(data=found.data, binary_data=found.binary_data)) if group else found.data
    is_switched = bool(group) and texts != (found.data or {})
    binary = {
        name: each for name, each in (found.binary_data or {}).items() if not (is_switched and name == names.NEXT_KEY)
    }
    return _texts(texts, binary)


def _texts(data: Mapping[str, str] | None, binary: Mapping[str, str] | None) -> dict[str, str]:
    """The texts of a ConfigMap in full, by key, without passwords; other data is shown as it is."""
    found = dict(data or {})
    for name, encoded in (binary or {}).items():
        text = _decompressed(encoded)
        found[name.removesuffix(".gz") if text is not None else name] = encoded if text is None else text
    return {name: _PASSWORD.sub(r"\1(hidden)", in_full(value)) for name, value in found.items()}


def _decompressed(encoded: str) -> str | None:
    """The text of a gzip in base64; None if it is none, or too long."""
    try:
        found = decompressed(b64decode(encoded, validate=True))
    except ValueError:
        return None
    return None if isinstance(found, Unreadable) else found


def _unified(subject: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    if old != new:
        lines = difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"cluster: {subject}", f"files: {subject}", lineterm=""
        )
        yield subject, "\n".join(lines)


def _yaml(value: object) -> str:
    written: str = yaml.safe_dump(value, sort_keys=True, default_flow_style=False, width=1000)
    return written


def _unnamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """*body* without its kind and name, which never differ."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in ("name", "namespace")}
    return {"metadata": metadata, "spec": body["spec"]}


def _applied_by_kavip(found: Written) -> Any:
    """The fields of *found* that kavip applied."""
    fields = next(
        (
            each.fields
            for each in found.metadata.managed_fields or ()
            if (each.manager, each.operation, each.subresource) == (names.FIELD_MANAGER, "Apply", "")
        ),
        None,
    )
    return _normalized(_part(msgspec.to_builtins(found), fields)) if fields else {}


def _part(value: Any, fields: Mapping[str, Any]) -> Any:
    """The part of *value* that *fields* (``fieldsV1``) names."""
    inner = {name: each for name, each in fields.items() if name != "."}
    if not inner:
        return value
    if isinstance(value, Mapping):
        found = ((name[2:], each) for name, each in sorted(inner.items()) if name.startswith("f:"))
        return {name: _part(value[name], each) for name, each in found if name in value}
    if isinstance(value, list):
        keyed = [(json.loads(name[2:]), each) for name, each in inner.items() if name.startswith("k:")]
        return [
            _part(item, each)
            for item in value
            for keys, each in keyed
            if isinstance(item, Mapping) and keys.items() <= item.items()
        ]
    return value


def _normalized(value: Any) -> Any:
    """*value* with resource quantities in one form: the API server writes 0.5 as 500m."""
    match value:
        case dict():
            return {
                name: _quantities(each) if name in _WITH_QUANTITIES else _normalized(each)
                for name, each in value.items()
            }
        case list():
            return [_normalized(each) for each in value]
    return value


def _quantities(value: Any) -> Any:
    return {name: _quantity(str(each)) for name, each in value.items()} if isinstance(value, dict) else value


def _quantity(text: str) -> str:
    match = _QUANTITY.fullmatch(text)
    factor = _SUFFIXES.get(match[2] or " ") if match else None
    if match is None or factor is None:
        return text
    try:
        return str((Decimal(match[1]) * factor).normalize())
    except InvalidOperation:
        return text
