"""
Strategic merge patches of Kubernetes objects, as ``kubectl patch --type=strategic`` applies them.

A patch merges maps key by key. A list merges by the value of a key if the :class:`Schema` names one, and otherwise
replaces the old list. ``null`` removes a key. Directives are keys that begin with ``$``: ``$patch``, ``$retainKeys``,
``$setElementOrder/LIST`` and ``$deleteFromPrimitiveList/LIST``.

The functions follow ``k8s.io/apimachinery/pkg/util/strategicpatch`` case by case, and a test compares the results with
the real kubectl. No library does this in Python.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from kavip.errors import BadInput

DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_REMOVE: Final = "$deleteFromPrimitiveList/"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """
    How the fields of a map merge.

    *children*: the schemas of fields, or of the items of lists. *keys*: the lists of maps that merge, each with the
    field that identifies an item. *sets*: the lists of words that merge. All other fields are plain.
    """

    children: Mapping[str, "Schema"] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    sets: frozenset[str] = frozenset()

    def child(self, name: str) -> "Schema":
        """The schema of the field *name*."""
        return self.children.get(name, _PLAIN)


_PLAIN: Final = Schema()


def merge(original: Mapping[str, Any], patch: Mapping[str, Any], schema: Schema, *, path: str = "") -> Json:
    """*original* after *patch*, as a new object; raises :class:`BadInput` at *path* for a malformed patch."""
    return _merge_maps(deepcopy(dict(original)), deepcopy(dict(patch)), schema, path)


# --- maps; both arguments are changed ---------------------------------------------------------------------------------
def _merge_maps(original: Json, patch: Json, schema: Schema, path: str) -> Json:
    match patch.pop(DIRECTIVE, None):
        case "replace":
            return patch
        case "delete":
            return {}
        case other if other is not None:
            raise BadInput(_at(path, DIRECTIVE), other, "want replace or delete")
    _retain_keys(original, patch, path)
    _set_orders(original, patch, schema, path)
    for name in sorted(patch):
        value, removes = patch[name], name.startswith(_REMOVE)
        target = name.removeprefix(_REMOVE)
        if value is None:
            original.pop(target, None)
        elif target not in original or type(original[target]) is not type(value):
            if not removes:
                _put(original, target, value)
        elif isinstance(value, dict):
            original[target] = _merge_maps(original[target], value, schema.child(target), _at(path, target))
        elif isinstance(value, list) and removes:
            original[target] = [each for each in original[target] if not _has(value, each)]
        elif isinstance(value, list):
            original[target] = _merge_lists(original[target], value, schema, target, path)
        else:
            original[target] = value
    return original


def _retain_keys(original: Json, patch: Json, path: str) -> None:
    """Carry out ``$retainKeys``: *original* keeps only these keys."""
    if _RETAIN not in patch:
        return
    kept = patch.pop(_RETAIN)
    wanted = {name for name, value in patch.items() if value is not None and not name.startswith((_ORDER, _REMOVE))}
    if not isinstance(kept, list) or not wanted.issubset(each for each in kept if isinstance(each, str)):
        raise BadInput(_at(path, _RETAIN), kept, "want a list with every key of this map")
    for name in [each for each in original if each not in kept]:
        del original[name]


def _set_orders(original: Json, patch: Json, schema: Schema, path: str) -> None:
    """Carry out each ``$setElementOrder/LIST``, with the patch of that list."""
    for directive in sorted(name for name in patch if name.startswith(_ORDER)):
        order, name = patch.pop(directive), directive.removeprefix(_ORDER)
        old, given = original.get(name, []), patch.get(name, [])
        if not all(isinstance(each, list) for each in (order, old, given)):
            raise BadInput(_at(path, directive), order, "want lists")
        identity = _identity(schema.keys.get(name, ""), _at(path, name))
        _check_order(given, order, identity, _at(path, directive))
        if name in original and name in patch:
            merged = _merge_lists(old, given, schema, name, path)
        elif name in original or name in patch:
            merged = [*old, *_without_directives(given)]
        else:
            continue
        _check_items((*old, *given), _at(path, name))
        original[name] = _in_order(merged, order, old, identity)
        patch.pop(name, None)


def _check_order(given: Iterable[Any], order: Sequence[Any], identity: "_Identity", path: str) -> None:
    """Check that *order* has the items of *given*, in their order."""
    rest = iter([identity(each) for each in order])
    for item in given if order else ():
        if not _is_directed(item) and not _has(rest, identity(item)):  # an iterator: it goes on behind the item
            raise BadInput(path, order, "want every item of the patch's list, in its order")


def _put(original: Json, name: str, value: Any) -> None:
    """Set what *original* lacks or has with another type."""
    if _is_directed(value):
        original.pop(name, None)
    else:
        original[name] = _without_directives(_without_null(value))


def _without_null(value: Any) -> Any:
    """*value* without the keys that have no value."""
    if isinstance(value, dict):
        return {name: _without_null(each) for name, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _without_directives(value: Any) -> Any:
    """*value* without the maps that have a directive."""
    if isinstance(value, dict):
        return {name: _without_directives(each) for name, each in value.items() if not _is_directed(each)}
    return [_without_directives(each) for each in value if not _is_directed(each)] if isinstance(value, list) else value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


# --- lists ------------------------------------------------------------------------------------------------------------
_Identity = Callable[[Any], Any]
"""What tells the items of a list apart."""


def _merge_lists(original: list[Any], patch: list[Any], schema: Schema, name: str, path: str) -> list[Any]:
    key, path = schema.keys.get(name, ""), _at(path, name)
    if not key and name not in schema.sets:
        return patch
    if not original and not patch:
        return original
    _check_items((*original, *patch), path)
    identity = _identity(key, path)
    if not key:
        return _in_order(_unique([*original, *patch]), patch, original, identity)
    original, patch = _direct(original, patch, identity, path)
    merged = list(original)
    for item in patch:
        place = _place([identity(each) for each in merged], identity(item))
        if place == len(merged):
            merged.append(item)
        else:
            merged[place] = _merge_maps(merged[place], item, schema.child(name), f"{path}[{identity(item)}]")
    return _in_order(merged, patch, original, identity)


def _direct(
    original: list[Json], patch: Iterable[Json], identity: _Identity, path: str
) -> tuple[list[Json], list[Json]]:
    """Both lists after the items of *patch* that have a directive."""
    plain: list[Json] = []
    is_replaced = False
    for item in patch:
        if not _is_directed(item):
            plain.append(item)
        elif item[DIRECTIVE] == "delete":
            original = [each for each in original if not _same(identity(each), identity(item))]
        elif item[DIRECTIVE] == "replace":
            is_replaced = True
        else:
            raise BadInput(_at(path, DIRECTIVE), item[DIRECTIVE], "want delete or replace")
    return (plain, []) if is_replaced else (original, plain)


def _in_order(merged: Iterable[Any], patch: Iterable[Any], original: Iterable[Any], identity: _Identity) -> list[Any]:
    """*merged*, with the items of *patch* in its order, and the others among them as in *original*."""
    first, before = [identity(each) for each in patch], [identity(each) for each in original]
    given, others = list[Any](), list[Any]()
    for each in merged:
        (given if _has(first, identity(each)) else others).append(each)
    given.sort(key=lambda each: _place(first, identity(each)))
    others.sort(key=lambda each: _place(before, identity(each)))
    found: list[Any] = []
    while given and others:
        other, one = _place(before, identity(others[0])), _place(before, identity(given[0]))
        found.append(others.pop(0) if other < one < len(before) else given.pop(0))
    return [*found, *others, *given]


def _unique(items: list[Any]) -> list[Any]:
    """*items* once each; as in kubectl, the last one takes the place of a duplicate."""
    found = list(items)
    for place in range(len(found)):
        other = place + 1
        while other < len(found):
            if _same(found[place], found[other]):
                found[other] = found[-1]
                found.pop()
            else:
                other += 1
    return found


def _check_items(items: Iterable[Any], path: str) -> None:
    """Check that *items* have one type."""
    kinds = {type(each) for each in items}
    if len(kinds) != 1 or kinds & {list, type(None)}:
        raise BadInput(path, sorted(each.__name__ for each in kinds), "want items of one type, which is no list")


def _identity(key: str, path: str) -> _Identity:
    """What tells items apart: the value of *key*, or the item itself without a key."""

    def of_map(item: Any) -> Any:
        if not isinstance(item, dict) or key not in item:
            raise BadInput(path, item, f"want {key} in each item")
        return item[key]

    return of_map if key else lambda item: item


def _has(items: Iterable[Any], value: Any) -> bool:
    return any(_same(each, value) for each in items)


def _place(items: Sequence[Any], value: Any) -> int:
    """The place of *value* in *items*, or behind them."""
    return next((place for place, each in enumerate(items) if _same(each, value)), len(items))


def _same(one: Any, other: Any) -> bool:
    """Whether both are equal, and of one type: 1 is not true."""
    return type(one) is type(other) and bool(one == other)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
