"""
Objects from files of YAML or JSON, for the offline commands.

The files of a folder are read in the order of their names; kinds that kavip does not use are skipped. What cannot be
read is a :class:`BadFile` with the file, the document and the line.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec

from kavip import names
from kavip.api.cluster import Infrastructure, Namespace, Network, Node, ServiceCIDR
from kavip.api.fieldvalidation import field_problems
from kavip.api.group import KeepalivedGroup
from kavip.api.naming import NAME_REMEDY, is_name
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.api.text import one_line, printable
from kavip.api.typeproblem import short, type_problem
from kavip.api.workload import ConfigMap
from kavip.api.yamldocuments import Document, read
from kavip.errors import BadFile, BadFiles, BadInput
from kavip.reconcile.observed.templates import is_template
from kavip.snapshot import KINDS, Object

T = TypeVar("T")

_LARGEST: Final = 64 * 1024 * 1024  # bytes; a List of 10,000 Services with all their managedFields is half of it
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_TYPES: Final[dict[tuple[str, str], tuple[type[Object], str]]] = {
    ("", names.SERVICE): (Service, "v1"),
    (names.REDHATCOP_GROUP, names.KEEPALIVED_GROUP): (KeepalivedGroup, f"{names.REDHATCOP_GROUP}/{names.VERSION}"),
    (names.KAVIP_GROUP, names.VIP_POOL): (VIPPool, f"{names.KAVIP_GROUP}/{names.VERSION}"),
    ("", names.NODE): (Node, "v1"),
    ("", names.NAMESPACE): (Namespace, "v1"),
    ("config.openshift.io", names.NETWORK): (Network, "config.openshift.io/v1"),
    ("config.openshift.io", names.INFRASTRUCTURE): (Infrastructure, "config.openshift.io/v1"),
    ("discovery.k8s.io", names.ENDPOINT_SLICE): (EndpointSlice, "discovery.k8s.io/v1"),
    ("networking.k8s.io", names.SERVICE_CIDR): (ServiceCIDR, "networking.k8s.io/v1"),
}
_TYPE: Final = frozenset(("apiVersion", "kind"))
_NAMESPACED: Final = (Service, KeepalivedGroup, EndpointSlice)


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object and its place in a file."""

    object: Object
    file: str
    document: int
    line: int

    @property
    def key(self) -> tuple[str, str]:
        """Its kind, and its ``ns/name`` or name."""
        return KINDS[type(self.object)], self.object.metadata.key

    def __str__(self) -> str:
        """The place, as compilers and editors write it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class FileContents:
    """The objects that could be read, and the errors of the others. *templates*: ConfigMaps that groups may name."""

    found: tuple[FileObject, ...]
    unread: tuple[BadFile, ...] = ()
    templates: tuple[ConfigMap, ...] = ()


def load(paths: Iterable[Path]) -> list[Object]:
    """
    The objects in *paths*: files, folders, or ``-``, standard input.

    Raises :class:`BadFile`, or :class:`BadFiles` if several things cannot be read.
    """
    return load_with_templates(paths)[0]


def load_with_templates(paths: Iterable[Path]) -> tuple[list[Object], tuple[ConfigMap, ...]]:
    """The same, and the ConfigMaps with templates."""
    contents = read_all(paths)
    if len(contents.unread) > 1:
        raise BadFiles(contents.unread)
    if contents.unread:
        raise contents.unread[0]
    return [each.object for each in contents.found], contents.templates


def read_all(paths: Iterable[Path]) -> FileContents:
    """
    The objects in *paths* with their places. A file that is given twice is read once; an object may occur once.

    An error does not hide other objects or errors. Where there is no object of any kind, that is an error too, because
    the path is wrong.
    """
    paths = tuple(paths)
    places: dict[tuple[str, str], FileObject] = {}
    nameless, unread, templates, count = list[FileObject](), list[BadFile](), list[ConfigMap](), 0
    for each in _each(paths):
        if isinstance(each, BadFile):
            unread.append(each)
            continue
        count += 1
        if isinstance(each, ConfigMap):
            templates.append(each)
            continue
        if each is None:
            continue
        if not each.object.metadata.name:  # the API server gives it one
            nameless.append(each)
        elif (first := places.setdefault(each.key, each)) is not each:
            problem = f"{' '.join(each.key)} is already in {first}; keep one of them"
            unread.append(BadFile(each.file, problem, document=each.document, line=each.line))
    if not count and not unread:
        unread.append(no_objects(paths))
    return FileContents((*places.values(), *nameless), tuple(unread), tuple(templates))


def no_objects(paths: Iterable[Path]) -> BadFile:
    """The error for *paths* in which there is no object of any kind."""
    return BadFile(", ".join(map(_shown, paths)), "no objects: want manifests of Kubernetes")


def _each(paths: Iterable[Path]) -> Iterator[FileObject | ConfigMap | BadFile | None]:
    """The objects and errors in *paths*, in order; None for a kind that kavip does not use."""
    files: dict[Path, None] = {}
    for path in paths:
        try:
            files.update(dict.fromkeys(files_in(path)))
        except BadFile as error:
            yield error
    for file in files:
        try:
            yield from _objects(*text_of(file))
        except BadFile as error:
            yield error


def files_in(path: Path) -> list[Path]:
    """*path*, or the manifests below a folder, sorted; raises :class:`BadFile`."""
    if not path.is_dir():
        return [path]
    try:
        found = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and not each.is_dir())
    except OSError as error:
        raise BadFile(_shown(path), f"cannot be read: {error.strerror}") from None
    if not found:
        raise BadFile(_shown(path), f"no objects: the folder holds no file that ends in {', '.join(_SUFFIXES)}")
    return found


def _shown(path: Path) -> str:
    """The name of *path* in messages; a line break in it begins no line."""
    return "standard input" if str(path) == "-" else printable(str(path))


def text_of(file: Path) -> tuple[str, str]:
    """The name of *file* in messages, and its text; raises :class:`BadFile`."""
    where = _shown(file)
    try:
        if str(file) == "-":
            data = _bounded(sys.stdin.buffer)
        else:
            with file.open("rb") as stream:
                data = _bounded(stream)
    except OSError as error:
        raise BadFile(where, f"cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise BadFile(where, f"larger than {_LARGEST // 1024**2} MiB; split it")
    try:
        return where, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(where, "not UTF-8", line=data.count(b"\n", 0, error.start) + 1) from None


def _bounded(stream: IO[bytes]) -> bytes:
    """All of *stream*, but at most one byte more than the limit: a device has no end."""
    return stream.read(_LARGEST + 1)


def _objects(where: str, text: str) -> Iterator[FileObject | ConfigMap | BadFile | None]:
    for document in read(where, text):
        for path, content in flattened(document.content):
            if isinstance(content, dict) and not (
                _TYPE.issubset(content) or "metadata" in content or _is_list(content)
            ):
                continue  # no object is meant: such as the values of a chart, its Chart.yaml, or a kustomization
            if (template := _template(content)) is not None:
                yield template
                continue
            try:
                found = read_object(where, document, path, content)
            except BadFile as error:
                yield error
            else:
                yield FileObject(found, where, document.number, document.line(path)) if found else None


def flattened(content: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """
    *content* with its path, or each item of a list (``v1 List``, ``ServiceList``).

    The items of a ``ServiceList`` need no type: the API server writes none.
    """
    if not (_is_list(content) and isinstance(content["items"], list | None)):
        yield path, content
        return
    kind = content["kind"].removesuffix("List")
    known = {"apiVersion": content.get("apiVersion"), "kind": kind} if kind else {}
    for index, each in enumerate(content["items"] or ()):
        yield from flattened({**known, **each} if isinstance(each, dict) else each, f"{path}.items[{index}]")


def _is_list(content: Any) -> bool:
    return isinstance(content, dict) and str(content.get("kind", "")).endswith("List") and "items" in content


def _template(content: Any) -> ConfigMap | None:
    """The ConfigMap *content*, if groups may name it."""
    if not isinstance(content, dict) or (content.get("apiVersion"), content.get("kind")) != ("v1", names.CONFIG_MAP):
        return None
    try:
        found = msgspec.convert(content, ConfigMap)
    except msgspec.ValidationError:
        return None
    if not is_template(found):
        return None
    namespace = found.metadata.namespace or "default"
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace=namespace))


def read_object(where: str, document: Document, path: str, content: Any) -> Object | None:
    """The object *content*, at *path* in *document*; None for a kind that kavip does not use."""

    def bad(problem: str, at: str = "") -> BadFile:
        return BadFile(where, one_line(problem), document=document.number, line=document.line(f"{path}{at}"))

    if _is_list(content):
        raise bad("items: want a list", ".items")
    version, name = _type_of(content)
    kind, wanted = _TYPES.get((version.rpartition("/")[0], name), (None, ""))
    if kind is None and not (version and name):
        raise bad("not a Kubernetes object: want apiVersion, kind and metadata")
    if kind is None:
        return None
    if version != wanted:
        raise bad(f'{name}: apiVersion "{short(version)}" is not served; want "{wanted}"', ".apiVersion")
    subject = f"{name}{_named(content, kind)}"
    found = converted(kind, content, where, document, path=path, subject=subject)
    for field, text in (("name", found.metadata.name), ("namespace", found.metadata.namespace)):
        if text and not is_name(text):
            raise bad(f"{name}: {BadInput(f'metadata.{field}', text, NAME_REMEDY)}", f".metadata.{field}")
    for field, problem in field_problems(content, kind):
        raise bad(f"{subject}: {field}: {problem}", f".{field}")
    if isinstance(found, _NAMESPACED) and not found.metadata.namespace:
        found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace="default"))
    return found


def converted(kind: type[T], content: Any, where: str, document: Document, *, path: str, subject: str) -> T:
    """*content*, at *path* in *document*, as a *kind*; raises :class:`BadFile` about *subject* for a wrong type."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem = type_problem(error, content, document, path)
        line = document.line(path, problem.keys)
        raise BadFile(where, f"{subject}: {problem.message}", document=document.number, line=line) from None


def _type_of(content: Any) -> tuple[str, str]:
    """The apiVersion and the kind of *content*, "" where it has none."""
    found = (content.get(key) if isinstance(content, dict) else None for key in ("apiVersion", "kind"))
    version, kind = (each if isinstance(each, str) else "" for each in found)
    return version, kind


def _named(content: dict[Any, Any], kind: type[Object]) -> str:
    """The key of the object *content* after a blank; "" if it has no proper name."""
    metadata = content.get("metadata")
    given = (metadata.get(each) if isinstance(metadata, dict) else None for each in ("namespace", "name"))
    namespace, name = (each if isinstance(each, str) and is_name(each) else "" for each in given)
    if issubclass(kind, _NAMESPACED):
        namespace = namespace or "default"
        return f" {namespace}/{name}" if name else ""
    return f" {name}" if name else ""
