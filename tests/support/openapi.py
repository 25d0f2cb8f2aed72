"""Compares an OpenAPI schema with a Struct, field by field, and reads other properties of schemas."""

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

PLAIN = {"string": str, "boolean": bool, "integer": int}

ABSENT: tuple[object, ...] = (None, "", False, 0, [])
"""Defaults that need not stand in the schema: absent there is the same."""


def compare(schema: dict[str, Any], hint: Any, path: str) -> Iterator[str]:
    """The differences between *schema* and the type *hint*, one line each."""
    hint = _required(hint)
    if _is_json(hint):
        return  # passed on unread: the API server validates it
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield from _compare_fields(schema, hint, path)
    elif typing.get_origin(hint) is list:
        yield from _expect(path, schema.get("type"), "array")
        yield from compare(schema.get("items", {}), typing.get_args(hint)[0], f"{path}[]")
    elif typing.get_origin(hint) is dict:
        yield from _expect(path, schema.get("type"), "object")
        yield from compare(schema.get("additionalProperties", {}), typing.get_args(hint)[1], f"{path}{{}}")
    else:
        yield from _expect(path, PLAIN.get(schema.get("type", "")), hint)


def _compare_fields(schema: dict[str, Any], struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    yield from _expect(path, schema.get("type"), "object")
    hints = typing.get_type_hints(struct)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    properties = schema.get("properties", {})
    yield from (f"{path}.{name}: only in the schema" for name in properties.keys() - fields.keys())
    yield from (f"{path}.{name}: only in {struct.__name__}" for name in fields.keys() - properties.keys())
    for name in properties.keys() & fields.keys():
        field, inner = fields[name], properties[name]
        yield from compare(inner, hints[field.name], f"{path}.{name}")
        yield from _compare_default(inner, field, f"{path}.{name}")
        must = name in schema.get("required", ())
        if field.required and not must:
            yield f"{path}.{name}: {struct.__name__} cannot do without it, the schema can"


def _compare_default(schema: dict[str, Any], field: msgspec.structs.FieldInfo, path: str) -> Iterator[str]:
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    if isinstance(schema.get("default"), str | int):
        yield from _expect(f"{path} default", schema["default"], default)
    elif default is not msgspec.NODEFAULT and not isinstance(default, msgspec.Struct) and default not in ABSENT:
        yield f"{path}: default {default!r} only in the Struct"


def _expect(path: str, found: object, wanted: object) -> Iterator[str]:
    if found != wanted:
        yield f"{path}: {found!r} in the schema, {wanted!r} in the Struct"


def annotation(struct: type[msgspec.Struct], name: str) -> Any:
    """The type of the field *name* of *struct*."""
    return typing.get_type_hints(struct)[name]


def _required(hint: Any) -> Any:
    """*hint* without None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [each for each in typing.get_args(hint) if each is not type(None)]
    return hint


def _is_json(hint: Any) -> bool:
    return typing.get_origin(hint) is dict and typing.get_args(hint)[1] is Any


def unbounded(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The paths of strings and lists without a limit, except maps of strings: their keys cannot have one."""
    kind = schema.get("type")
    if kind == "string" and not {"maxLength", "enum"} & schema.keys():
        yield path
    if kind == "array":
        if "maxItems" not in schema:
            yield path
        yield from unbounded(schema["items"], f"{path}[]")
    for name, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, f"{path}.{name}")


def validations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The CEL rules of a schema, at every depth."""
    yield from schema.get("x-kubernetes-validations", ())
    for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from validations(inner)


def bare(schema: Any, *less: str) -> Any:
    """*schema* without descriptions, and without the keywords *less*."""
    if isinstance(schema, list):
        return [bare(each, *less) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: bare(value, *less)
        for key, value in schema.items()
        if key not in less and (key != "description" or not isinstance(value, str))
    }
