"""Fields that a wire type does not have: msgspec passes them over, the API server refuses them."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any

from msgspec import inspect


def strange(content: Any, kind: type, *, path: str) -> Iterator[tuple[str, str]]:
    """The fields of *content*, which stands at *path*, that *kind* does not have: path, and the field that is meant."""
    return _strange(content, _shape(kind), path)


@cache
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _strange(content: Any, shape: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    match shape, content:
        case inspect.UnionType(types=types), _:
            for each in types:
                yield from _strange(content, each, path)
        case inspect.ListType(item_type=item), list():
            for index, each in enumerate(content):
                yield from _strange(each, item, f"{path}[{index}]")
        case inspect.StructType(fields=fields), dict():
            known = {each.encode_name: each.type for each in fields}
            for key, value in content.items():
                if key in known:
                    yield from _strange(value, known[key], f"{path}.{key}")
                else:
                    yield f"{path}.{key}", next(iter(get_close_matches(str(key), known, n=1)), "")
