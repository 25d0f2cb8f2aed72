"""
The fields of an object that its type does not have.

msgspec skips such fields, as Kubernetes clients must. The API server refuses them, so files must not have them.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from msgspec import inspect


def unknown_fields(content: Any, kind: type, *, path: str) -> Iterator[tuple[str, str]]:
    """The fields of *content* at *path* that *kind* does not have, each with its path and a similar field or ""."""
    return _unknown_in(content, _shape(kind), path)


@cache
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _unknown_in(content: Any, shape: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    match shape, content:
        case inspect.UnionType(types=types), _:
            for each in types:
                yield from _unknown_in(content, each, path)
        case inspect.ListType(item_type=item), list():
            for index, each in enumerate(content):
                yield from _unknown_in(each, item, f"{path}[{index}]")
        case inspect.StructType(fields=fields), dict():
            known = {each.encode_name: each.type for each in fields}
            for key, value in content.items():
                if key in known:
                    yield from _unknown_in(value, known[key], f"{path}.{key}")
                else:
                    yield f"{path}.{key}", next(iter(get_close_matches(str(key)[:80], known, n=1)), "")
