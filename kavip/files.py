"""
Objects from files of YAML or JSON, for the offline commands.

Files of a folder are read in the order of their names; kinds that kavip does not read are passed over. What cannot be
read is a :class:`BadInput` that names the file, the document and the field.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kavip import names
from kavip.api.cluster import Namespace, Network, Node
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.snapshot import Object

_DEEPEST: Final = 200  # levels; Kubernetes' own objects stay below 30
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_TYPES: Final[dict[tuple[str, str], type[Object]]] = {
    ("", names.SERVICE): Service,
    (names.REDHATCOP_GROUP, names.KEEPALIVED_GROUP): KeepalivedGroup,
    (names.KAVIP_GROUP, names.VIP_POOL): VIPPool,
    ("", names.NODE): Node,
    ("", names.NAMESPACE): Namespace,
    ("config.openshift.io", names.NETWORK): Network,
}
_NAMESPACED: Final = (Service, KeepalivedGroup)


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load(paths: Iterable[Path]) -> list[Object]:
    """The objects in *paths*: files, folders, or ``-`` for standard input."""
    return [found for path in paths for where, text in _texts(path) for found in _objects(where, text)]


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        yield "standard input", sys.stdin.read()
        return
    files = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES) if path.is_dir() else [path]
    for file in files:
        try:
            yield str(file), file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
            raise BadInput("file", str(file), f"cannot be read: {why}") from None


def _objects(where: str, text: str) -> Iterator[Object]:
    try:
        _measure(where, text)
        documents = list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise BadInput("file", where, f"is not YAML: {' '.join(str(error).split())}") from None
    for number, document in enumerate(documents, start=1):
        for each in _flat(document):
            if (found := _object(f"{where}, document {number}", each)) is not None:
                yield found


def _measure(where: str, text: str) -> None:
    """Refuse what is nested so deeply that the loader, which recurses in C, would take the process down with it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
        if depth > _DEEPEST:
            raise BadInput("file", where, f"is nested more than {_DEEPEST} levels deep")


def _flat(document: Any) -> Iterator[Any]:
    """*document*, or the items of a List."""
    if isinstance(document, dict) and document.get("kind") == "List":
        yield from document.get("items") or ()
    elif document is not None:
        yield document


def _object(where: str, document: Any) -> Object | None:
    if not isinstance(document, dict):
        raise BadInput(where, document, "want a Kubernetes object")
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    kind = _TYPES.get((group, str(document.get("kind", ""))))
    if kind is None:
        return None
    try:
        found = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        name = (document.get("metadata") or {}).get("name", "")
        raise BadInput(f"{where}, {document['kind']}", name, str(error)) from None
    if isinstance(found, _NAMESPACED) and not found.metadata.namespace:
        found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace="default"))
    return found
