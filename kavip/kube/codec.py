"""
Bytes to values, one object at a time, so that a malformed object spoils nothing but itself.

What is wrong is told in msgspec's words, which name type and path and never the value. No I/O.
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from kavip.api.meta import Wire, field
from kavip.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from kavip.kube.depth import LEVELS, MARK, flattened
from kavip.kube.resources import Resource, T

_Any = TypeVar("_Any")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that it cannot make sense of."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A watch says that *object* is there, in this state."""

    object: T


@dataclass(frozen=True, slots=True)
class Deleted:
    """A watch says that the object with *key* is gone."""

    key: str
    version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A watch says that nothing is missing up to *version*."""

    version: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that cannot be read: its *key* as far as it is known, and *why* in one line."""

    key: str
    version: str
    why: str


Event = Seen[T] | Deleted | Bookmark | Malformed


class _Identity(Wire, frozen=True):
    """Enough of a malformed object to name it."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Head(Struct):
    metadata: _Identity = _Identity()


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    rest: str = field(name="continue", default="")


class _List(Struct):
    metadata: _ListMeta = _ListMeta()
    items: list[Raw] | None = None


class _Frame(Struct):
    type: str = ""
    object: Raw = Raw()


class _Details(Wire, frozen=True):
    retry_after_seconds: float | None = None


class _Status(Wire, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list: what could be read, what could not, and where the *rest* begins ("": that was all)."""

    items: list[T]
    malformed: list[Malformed]
    version: str
    rest: str


def read(resource: Resource[T], raw: bytes | Raw) -> T | Malformed:
    """Read one object, or tell what is wrong with it."""
    try:
        return _decoder(resource.type).decode(raw)
    except _UNREADABLE as error:
        identity = _identity(raw)
        return Malformed(identity.key, identity.resource_version, _line(error))


def read_page(resource: Resource[T], raw: bytes) -> Page[T]:
    """A page of a list. An answer that is no list at all is :class:`Unavailable`: a proxy's page, most likely."""
    envelope, reader = _envelope(_List, raw, f"the list of {resource.plural}")
    if not envelope.metadata.resource_version:  # ``{}`` would read as a list of nothing: everything deleted
        raise _garbled(f"the list of {resource.plural}", "no metadata.resourceVersion")
    items: list[T] = []
    malformed: list[Malformed] = []
    for each in envelope.items or ():
        value = reader(resource, each)
        if isinstance(value, Malformed):
            malformed.append(value)
        else:
            items.append(value)
    return Page(items, malformed, envelope.metadata.resource_version, envelope.metadata.rest)


def read_event(resource: Resource[T], line: bytes) -> Event[T]:
    """One line of a watch; an ERROR event is raised."""
    frame, reader = _envelope(_Frame, line, f"the watch of {resource.plural}")
    if frame.type == "ERROR":
        raise error_of(0, bytes(frame.object))
    if frame.type in ("BOOKMARK", "DELETED"):
        identity = _identity(frame.object)
        version = identity.resource_version
        return Bookmark(version) if frame.type == "BOOKMARK" else Deleted(identity.key, version)
    value = reader(resource, frame.object)
    return value if isinstance(value, Malformed) else Seen(value)


_BY_CODE: Final[dict[int, type[ApiError]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def error_of(code: int, body: bytes, *, phrase: str = "", retry_after: str = "") -> ApiError:
    """The error that a Status in *body* means; *code* 0 takes the Status's own. Any other body is not quoted."""
    try:
        status = _decoder(_Status).decode(body)
    except _UNREADABLE:
        status = _Status()
    code = code or status.code or 500
    kind = _BY_CODE.get(code, Refused if 400 <= code < 500 else Unavailable)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    wait = float(retry_after) if retry_after.isdecimal() else (status.details or _Details()).retry_after_seconds
    return kind(code, status.reason or phrase or "Unknown", _clipped(status.message) or phrase, retry_after=wait)


def encode(body: Any) -> bytes:
    """*body* as JSON."""
    return msgspec.json.encode(body)


class _Reader(Protocol):
    def __call__(self, resource: Resource[T], raw: Raw, /) -> T | Malformed: ...


def _envelope(kind: type[_Any], raw: bytes, what: str) -> tuple[_Any, _Reader]:
    """What is round the objects in *raw*, and how to read those."""
    try:
        return _decoder(kind).decode(raw), read
    except RecursionError:
        raw = flattened(raw)
    except _UNREADABLE as error:
        raise _garbled(what, _line(error)) from error
    try:
        return _decoder(kind).decode(raw), _read_flattened
    except _UNREADABLE as error:
        raise _garbled(what, _line(error)) from error


def _read_flattened(resource: Resource[T], raw: Raw) -> T | Malformed:
    """Read an object of an envelope that had to be flattened: one that has lost something by it is not to be had."""
    if MARK in bytes(raw):
        identity = _identity(raw)
        return Malformed(identity.key, identity.resource_version, f"nested more than {LEVELS} levels deep")
    return read(resource, raw)


def _identity(raw: bytes | Raw) -> _Identity:
    try:
        return _decoder(_Head).decode(raw).metadata
    except _UNREADABLE:
        return _Identity()


_DECODERS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}


def _decoder(kind: type[_Any]) -> msgspec.json.Decoder[_Any]:
    """The decoder of *kind*: making one costs as much as decoding a hundred objects."""
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]


def _garbled(what: str, why: str) -> Unavailable:
    return Unavailable(0, "Garbled", f"{what} is not what the API server sends: {why}")


def _line(error: Exception) -> str:
    return _clipped(str(error)) or type(error).__name__


def _clipped(text: str) -> str:
    """One line of at most 500 characters: messages of the API server may quote whole objects."""
    line = " ".join(text.split())
    return line if len(line) <= 500 else line[:497] + "..."
