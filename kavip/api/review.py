"""
``admission.k8s.io/v1``: what the API server asks, what it is answered, and the question as the policy reads it.

A body is read in two steps. :func:`read` takes the envelope, so that even an answer about a broken object can carry
the request's UID; :func:`question` then reads the objects as the kind that the path stands for. Both raise
:class:`BadInput`, which never quotes what was in an object.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Wire
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.errors import BadInput

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_LARGE: Final = 64 * 1024  # bytes; nothing in an object that is smaller takes long
_MOST_ANNOTATIONS: Final = 256 * 1024  # what the API server itself takes
_MOST_ENTRIES: Final = 1024  # twice what the CRDs allow anywhere
_PORTS: Final = "ports"  # of a Service; they cost nothing
ABSENT: Final = (b"", b"null")  # of a raw field

T = TypeVar("T", Service, KeepalivedGroup, VIPPool)


class Operation(StrEnum):
    """What is being done; kavip registers for the first three."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class Kind(Wire, frozen=True):
    """``request.kind``."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Wire, frozen=True):
    """``request.userInfo``: who asks; decides exemptions, never enters a message."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class AdmissionRequest(Wire, frozen=True):
    """``request``; *object* and *old_object* stay raw until their kind is known."""

    uid: str
    operation: Operation
    kind: Kind = Kind()
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class StatusCause(Wire, frozen=True):
    """``status.details.causes[]``: kubectl prints ``field: message``."""

    reason: str
    message: str
    field: str = ""


class StatusDetails(Wire, frozen=True):
    """``status.details``."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: list[StatusCause] | None = None


class Status(Wire, frozen=True):
    """``metav1.Status`` of a refusal."""

    code: int
    reason: str
    message: str
    status: str
    details: StatusDetails | None = None


class AdmissionResponse(Wire, frozen=True):
    """``response``; *patch* is base64 on the wire, as msgspec writes bytes."""

    uid: str
    allowed: bool
    status: Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class Asked(Wire, frozen=True):
    """An AdmissionReview on its way in."""

    api_version: str
    kind: str
    request: AdmissionRequest


class Answered(Wire, frozen=True):
    """An AdmissionReview on its way out; no defaults, so that nothing is left out."""

    api_version: str
    kind: str
    response: AdmissionResponse


@dataclass(frozen=True, slots=True)
class Review(Generic[T]):
    """One question to the policy: may *subject* be so, or, where the operation is a DELETE, may it go?"""

    operation: Operation
    subject: T
    old: T | None = None  # what an UPDATE starts from
    user: str = ""


_READER = msgspec.json.Decoder(Asked)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Service, KeepalivedGroup, VIPPool)
}


def read(body: bytes) -> AdmissionRequest:
    """Read the envelope of a review."""
    try:
        asked = _READER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("", KIND, f"cannot be read: {error}") from None
    if (asked.api_version, asked.kind) != (API_VERSION, KIND):
        raise BadInput("apiVersion, kind", f"{asked.api_version}, {asked.kind}", f"want {API_VERSION}, {KIND}")
    if not asked.request.uid:
        raise BadInput("request.uid", "", "want the UID that the answer shall carry")
    return asked.request


def question(request: AdmissionRequest, kind: type[T]) -> Review[T]:
    """Read the objects of *request* as *kind*, each with the namespace of the request where it names none."""
    new, old = (_object(raw, kind, request.namespace) for raw in (request.object, request.old_object))
    if new is not None and len(bytes(request.object)) > _LARGE and not new.metadata.deletion_timestamp:
        _bounded(new)
    subject = new or old
    if subject is None:
        raise BadInput("request.object", None, "want the object that is to be judged")
    return Review(request.operation, subject, old if new else None, request.user_info.username)


def answer(response: AdmissionResponse) -> bytes:
    """Write the body that carries *response*."""
    return msgspec.json.encode(Answered(api_version=API_VERSION, kind=KIND, response=response))


def _bounded(found: Service | KeepalivedGroup | VIPPool) -> None:
    """Refuse what nobody means before it costs everybody time: most of it never passes the API server either."""
    size = sum(len(key) + len(value) for key, value in (found.metadata.annotations or {}).items())
    if size > _MOST_ANNOTATIONS:
        raise BadInput("metadata.annotations", size, f"want at most {_MOST_ANNOTATIONS} bytes")
    for info in msgspec.structs.fields(found.spec):
        value = getattr(found.spec, info.name)
        if isinstance(value, list | dict) and len(value) > _MOST_ENTRIES and info.name != _PORTS:
            raise BadInput(f"spec.{info.encode_name}", len(value), f"want at most {_MOST_ENTRIES} entries")


def _object(raw: msgspec.Raw, kind: type[T], namespace: str) -> T | None:
    if bytes(raw) in ABSENT:
        return None
    try:
        found: T = _DECODERS[kind].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("", kind.__name__, f"cannot be read: {error}") from None
    if namespace and not found.metadata.namespace:
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace=namespace))
    return found
