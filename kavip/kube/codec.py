"""
JSON to values, one object at a time, so that a malformed object affects no other. No I/O.

Error messages are those of msgspec: they have the type and the path, never the value.

Decoders recurse, and fail after about a thousand levels. Some fields accept any JSON (a group's ``affinity``), so one
such object could make a list or a watch of all objects unreadable. Then parts below :data:`MAX_DEPTH` are cut out, and
only the objects that lost a part count as malformed.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from kavip.api.meta import Identity, Wire, field
from kavip.api.text import one_line
from kavip.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from kavip.kube.resources import Resource, T

_Any = TypeVar("_Any")
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

MAX_DEPTH: Final = 100
"""Levels of nesting; no object of Kubernetes has half as many."""
CUT_MARK: Final = b'"nested too deeply"'
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """A watch event: *object* was added or modified."""

    object: T


@dataclass(frozen=True, slots=True)
class Deleted:
    """A watch event: the object with *key* was deleted."""

    key: str
    version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A watch event: all events up to *version* have been sent."""

    version: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object that cannot be decoded: its *key*, if known, and the *error* in one line."""

    key: str
    version: str
    error: str


WatchEvent = Changed[T] | Deleted | Bookmark | Malformed


class _Named(Struct):
    metadata: Identity = Identity()


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    next_page: str = field(name="continue", default="")


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


class _Version(Wire, frozen=True):
    git_version: str = ""


def decode(resource: Resource[T], raw: bytes | Raw) -> T | Malformed:
    """Decode one object."""
    try:
        return _decoder(resource.type).decode(raw)
    except _DECODE_ERRORS as error:
        identity = _identity(raw)
        return Malformed(identity.key, identity.resource_version, _one_line(error))


def open_page(resource: Resource[T], raw: bytes) -> "Page[T]":
    """Read the envelope of a page of a list; anything else is :class:`Unavailable`: probably the page of a proxy."""
    envelope, decode_object = _envelope(_List, raw, f"the list of {resource.plural}")
    if not envelope.metadata.resource_version:  # otherwise ``{}`` would be an empty list, and delete everything
        raise _not_kubernetes(f"the list of {resource.plural}", "no metadata.resourceVersion")
    return Page(
        envelope.metadata.resource_version, envelope.metadata.next_page, resource, envelope.items or [], decode_object
    )


def decode_event(resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Decode one line of a watch; an ERROR event is raised as an exception."""
    frame, decode_object = _envelope(_Frame, line, f"the watch of {resource.plural}")
    if frame.type == "ERROR":
        raise error_of(0, bytes(frame.object))
    if frame.type in ("BOOKMARK", "DELETED"):
        identity = _identity(frame.object)
        version = identity.resource_version
        return Bookmark(version) if frame.type == "BOOKMARK" else Deleted(identity.key, version)
    value = decode_object(resource, frame.object)
    return value if isinstance(value, Malformed) else Changed(value)


_BY_CODE: Final[dict[int, type[ApiError]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    429: Throttled,
}
_MISTYPED: Final = "failed to create typed patch object"
"""
How the API server begins its refusal of a server-side apply with an unknown field or a value of another type. Its code
is 500, as that of a failure that ends by itself, so nothing but the message tells them apart.
"""


def error_of(code: int, body: bytes, *, phrase: str = "", retry_after: str = "") -> ApiError:
    """The error for a Status in *body*; *code* 0 means the code of the Status. Any other body is not quoted."""
    try:
        status = _decoder(_Status).decode(body)
    except _DECODE_ERRORS:
        status = _Status()
    code = code or status.code or 500
    kind = _BY_CODE.get(code, Rejected if 400 <= code < 500 else Unavailable)
    if status.message.startswith(_MISTYPED):
        kind = Rejected
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    wait = float(retry_after) if retry_after.isdecimal() else (status.details or _Details()).retry_after_seconds
    return kind(code, status.reason or phrase or "Unknown", _clipped(status.message) or phrase, retry_after=wait)


def decode_version(raw: bytes) -> str:
    """The ``gitVersion`` of an API server; "" if it does not say it."""
    try:
        return _decoder(_Version).decode(raw).git_version
    except _DECODE_ERRORS as error:
        raise _not_kubernetes("the version", _one_line(error)) from error


def encode(body: Any) -> bytes:
    """*body* as JSON."""
    return msgspec.json.encode(body)


class _Decode(Protocol):
    def __call__(self, resource: Resource[T], raw: Raw, /) -> T | Malformed: ...


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list: its *version*, the token of the *next_page*, or "", and its objects, not decoded yet."""

    version: str
    next_page: str
    _resource: Resource[T]
    _items: list[Raw]
    _decode: _Decode

    def decode(self) -> tuple[list[T], list[Malformed]]:
        """The objects, and those that are malformed."""
        items: list[T] = []
        malformed: list[Malformed] = []
        for each in self._items:
            value = self._decode(self._resource, each)
            if isinstance(value, Malformed):
                malformed.append(value)
            else:
                items.append(value)
        return items, malformed


def _envelope(kind: type[_Any], raw: bytes, what: str) -> tuple[_Any, _Decode]:
    """The envelope of the objects in *raw*, and the function that decodes those."""
    try:
        return _decoder(kind).decode(raw), decode
    except RecursionError:
        raw = cut_deep_parts(raw)
    except _DECODE_ERRORS as error:
        raise _not_kubernetes(what, _one_line(error)) from error
    try:
        return _decoder(kind).decode(raw), _decode_cut
    except _DECODE_ERRORS as error:
        raise _not_kubernetes(what, _one_line(error)) from error


def _decode_cut(resource: Resource[T], raw: Raw) -> T | Malformed:
    """Decode an object of an envelope whose deep parts were cut out; an object that lost a part is malformed."""
    if CUT_MARK in bytes(raw):
        identity = _identity(raw)
        return Malformed(identity.key, identity.resource_version, f"nested more than {MAX_DEPTH} levels deep")
    return decode(resource, raw)


def cut_deep_parts(raw: bytes) -> bytes:
    """Replace what is nested deeper than :data:`MAX_DEPTH` by :data:`CUT_MARK`; one pass without recursion."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(raw):
        match raw[token.start() : token.start() + 1]:
            case b"{" | b"[":
                depth += 1
                if depth == MAX_DEPTH + 1:
                    kept += (raw[begin : token.start()], CUT_MARK)
            case b"}" | b"]":
                if depth == MAX_DEPTH + 1:
                    begin = token.end()
                depth -= 1
    return b"".join((*kept, raw[begin:]))


def _identity(raw: bytes | Raw) -> Identity:
    try:
        return _decoder(_Named).decode(raw).metadata
    except _DECODE_ERRORS:
        return Identity()


_DECODERS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}


def _decoder(kind: type[_Any]) -> msgspec.json.Decoder[_Any]:
    """The decoder of *kind*, created once: that costs as much as decoding a hundred objects."""
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]


def _not_kubernetes(what: str, why: str) -> Unavailable:
    return Unavailable(0, "Garbled", f"{what} is not a response of an API server: {why}")


def _one_line(error: Exception) -> str:
    return _clipped(str(error)) or type(error).__name__


def _clipped(text: str) -> str:
    """One printable line of at most 500 characters: messages of the API server can quote whole objects."""
    line = one_line(text)
    return line if len(line) <= 500 else line[:497] + "..."
