"""
``admission.k8s.io/v1``: the AdmissionReview on the wire, and the review that the policy evaluates.

A body is decoded in two steps. :func:`decode_request` decodes the envelope, so even a response about a malformed object
has the UID of the request. :func:`decode_objects` then decodes the objects as the kind of the path. Both raise
:class:`BadInput`, which never quotes the content of an object.
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
_LARGE: Final = 64 * 1024  # bytes; a smaller object is always evaluated quickly
_MAX_ANNOTATIONS: Final = 256 * 1024  # bytes; the limit of the API server itself
_MAX_ENTRIES: Final = 1024  # twice the limit of any field in the CRDs
_PORTS: Final = "ports"  # the ports of a Service cost no time
ABSENT: Final = (b"", b"null")  # the raw JSON of an absent field

T = TypeVar("T", Service, KeepalivedGroup, VIPPool)


class Operation(StrEnum):
    """The operation; kavip registers for the first three."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class GroupVersionKind(Wire, frozen=True):
    """``request.kind``."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(Wire, frozen=True):
    """``request.userInfo``: decides exemptions; never part of a message."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class AdmissionRequest(Wire, frozen=True):
    """``request``; *object* and *old_object* stay raw JSON until their kind is known."""

    uid: str
    operation: Operation
    kind: GroupVersionKind = GroupVersionKind()
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


class ReviewRequest(Wire, frozen=True):
    """An AdmissionReview that the API server sends."""

    api_version: str
    kind: str
    request: AdmissionRequest


class ReviewResponse(Wire, frozen=True):
    """An AdmissionReview that kavip sends; without defaults, because msgspec omits a field with its default value."""

    api_version: str
    kind: str
    response: AdmissionResponse


@dataclass(frozen=True, slots=True)
class Review(Generic[T]):
    """The input of the policy: *subject* is the object to evaluate, for a DELETE the deleted object."""

    operation: Operation
    subject: T
    old: T | None = None  # the object before an UPDATE


_READER = msgspec.json.Decoder(ReviewRequest)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Service, KeepalivedGroup, VIPPool)
}


def decode_request(body: bytes) -> AdmissionRequest:
    """Decode the envelope of a review."""
    try:
        review = _READER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("", KIND, f"cannot be read: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise BadInput("apiVersion, kind", f"{review.api_version}, {review.kind}", f"want {API_VERSION}, {KIND}")
    if not review.request.uid:
        raise BadInput("request.uid", "", "want the UID for the response")
    return review.request


def decode_objects(request: AdmissionRequest, kind: type[T]) -> Review[T]:
    """Decode the objects of *request* as *kind*; an object without a namespace gets that of the request."""
    new, old = (_object(raw, kind, request.namespace) for raw in (request.object, request.old_object))
    if new is not None and len(bytes(request.object)) > _LARGE and not new.metadata.deletion_timestamp:
        _check_size(new)
    subject = new or old
    if subject is None:
        raise BadInput("request.object", None, "want the object to review")
    return Review(request.operation, subject, old if new else None)


def encode_response(response: AdmissionResponse) -> bytes:
    """The body for *response*."""
    return msgspec.json.encode(ReviewResponse(api_version=API_VERSION, kind=KIND, response=response))


def _check_size(found: Service | KeepalivedGroup | VIPPool) -> None:
    """Refuse an absurdly large object: its evaluation would delay other reviews. API servers refuse most of them."""
    size = sum(len(key) + len(value) for key, value in (found.metadata.annotations or {}).items())
    if size > _MAX_ANNOTATIONS:
        raise BadInput("metadata.annotations", size, f"want at most {_MAX_ANNOTATIONS} bytes")
    for info in msgspec.structs.fields(found.spec):
        value = getattr(found.spec, info.name)
        if isinstance(value, list | dict) and len(value) > _MAX_ENTRIES and info.name != _PORTS:
            raise BadInput(f"spec.{info.encode_name}", len(value), f"want at most {_MAX_ENTRIES} entries")


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
