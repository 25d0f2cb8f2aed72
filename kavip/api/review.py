"""
``admission.k8s.io/v1``: the AdmissionReview on the wire, and the review that the policy evaluates.

A body is decoded in steps. :func:`decode_request` decodes the envelope, so even a response about a malformed object has
the UID of the request. :func:`decode_objects` then decodes the objects as the kind of the path, and
:func:`decode_user` the user. Each bounds what it decodes, and raises :class:`BadInput`, which never quotes the content
of an object.
"""

from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from kavip import names
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.meta import LabelSelector, Wire
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.rawobject import ABSENT, OverBudget, RawObject, UncheckedUpdate
from kavip.api.scheduling import REQUIRED_TERMS, count_node_selector_terms
from kavip.api.service import Service, ServiceSpec
from kavip.errors import BadInput

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_USER_INFO: Final = 64 * 1024
"""Bytes of ``userInfo``: a user in a thousand groups."""
_NAMES: Final = ("uid", "name", "namespace", "kind.group", "kind.version", "kind.kind")
_MAX_NAME: Final = 1024  # characters of a name in the envelope; the API server allows 253
_MAX_ANNOTATIONS: Final = 256 * 1024  # bytes; the limit of the API server itself
_MAX_ENTRIES: Final = 1024  # twice the limit of any field in the CRDs
_MAX_TERMS: Final = 64  # matchLabels or matchExpressions of a selector; twice the limit of the CRDs
_MAX_NODE_TERMS: Final = 32  # alternatives of a node affinity; each Node is compared with each
_LARGE_TYPES: Final = {list, dict, LabelSelector}
_PORTS: Final = "ports"  # of a Service; their items are counted, and a rule costs no more with many of them

T = TypeVar("T", bound=Service | KeepalivedGroup | VIPPool)


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
    """``request``; *object* and *old_object* stay raw JSON until their kind is known, *user_info* until it matters."""

    uid: str
    operation: Operation
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    user_info: msgspec.Raw = msgspec.Raw()
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


class Review(NamedTuple, Generic[T]):
    """The input of the policy: *subject* is the object to evaluate, for a DELETE the deleted object."""

    operation: Operation
    subject: T
    old: T | None = None  # the object before an UPDATE

    @property
    def lacks_old(self) -> bool:
        """Whether this is an UPDATE whose old object is too large for a decision."""
        return self.operation is Operation.UPDATE and self.old is None

    @property
    def only_ends_deletion(self) -> bool:
        """
        Whether the object is in deletion, and the request changes nothing that kavip reads.

        Such a request deletes the object again, or removes a finalizer, with which ``kubectl apply`` also changes its
        own annotation. It is accepted unseen. Any other edit of an object in deletion is evaluated: kube-proxy and
        kavip serve the object until its last finalizer is removed, and any user who may edit it may add one.
        """
        if not self.subject.metadata.deletion_timestamp:
            return False
        if self.operation is Operation.DELETE:
            return True
        return self.old is not None and _read_parts(self.old) == _read_parts(self.subject)


_READER = msgspec.json.Decoder(ReviewRequest)
_USERS: Final = msgspec.json.Decoder(UserInfo | None)


def decode_request(body: bytes) -> AdmissionRequest:
    """Decode the envelope of a review."""
    try:
        review = _READER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("", KIND, f"cannot be read: {error}") from None
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise BadInput("apiVersion, kind", f"{review.api_version}, {review.kind}", f"want {API_VERSION}, {KIND}")
    request = review.request
    if not request.uid:
        raise BadInput("request.uid", "", "want the UID for the response")
    kind = request.kind
    texts = (request.uid, request.name, request.namespace, kind.group, kind.version, kind.kind)
    if max(map(len, texts)) > _MAX_NAME:
        name, text = next((name, text) for name, text in zip(_NAMES, texts, strict=True) if len(text) > _MAX_NAME)
        raise BadInput(f"request.{name}", f"{len(text):,} characters", f"want at most {_MAX_NAME:,}")
    return request


def decode_user(request: AdmissionRequest) -> UserInfo:
    """Decode the user of *request*; one of more than :data:`MAX_USER_INFO` bytes is refused."""
    raw = bytes(request.user_info)
    if len(raw) > MAX_USER_INFO:
        raise BadInput("request.userInfo", f"{len(raw):,} bytes", f"want at most {MAX_USER_INFO:,}")
    try:
        return (_USERS.decode(raw) if raw else None) or UserInfo()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("request.userInfo", "UserInfo", f"cannot be read: {error}") from None


def decode_objects(request: AdmissionRequest, kind: type[T]) -> Review[T]:
    """
    Decode the objects of *request* as *kind*; an object without a namespace gets that of the request.

    Of a DELETE only metadata is read. An old object that is too large for a decision counts as absent; for a new one
    :class:`OverBudget` is raised, or :class:`UncheckedUpdate` if spec, labels and annotations are those of the old one.
    """
    raw_new, raw_old = bytes(request.object), bytes(request.old_object)
    if request.operation is Operation.DELETE and raw_new in ABSENT and raw_old not in ABSENT:
        return Review(request.operation, _located(RawObject(raw_old, kind).identity(), request.namespace))
    try:
        new = _object(raw_new, kind, request.namespace)
    except OverBudget as error:
        if raw_old in ABSENT or RawObject(raw_new, kind).judged() != RawObject(raw_old, kind).judged():
            raise
        raise UncheckedUpdate(error.field, error.value, error.remedy) from None
    try:
        old = _object(raw_old, kind, request.namespace)
    except OverBudget:
        if new is None:
            raise
        old = None
    subject = new or old
    if subject is None:
        raise BadInput("request.object", None, "want the object to review")
    return Review(request.operation, subject, old if new else None)


def encode_response(response: AdmissionResponse) -> bytes:
    """The body for *response*."""
    return msgspec.json.encode(ReviewResponse(api_version=API_VERSION, kind=KIND, response=response))


def _read_parts(found: Service | KeepalivedGroup | VIPPool) -> object:
    """What kavip reads of an object that users write: spec, labels, and the annotations under kavip's prefixes."""
    every = found.metadata.annotations or {}
    annotations = {key: value for key, value in every.items() if key.startswith(names.ANNOTATION_PREFIXES)}
    return found.spec, found.metadata.labels or {}, annotations


def _check_size(found: Service | KeepalivedGroup | VIPPool) -> None:
    """Refuse an absurdly large object: its evaluation would delay other reviews. API servers refuse most of them."""
    annotations, spec = found.metadata.annotations, found.spec
    if annotations and (size := sum(map(len, annotations)) + sum(map(len, annotations.values()))) > _MAX_ANNOTATIONS:
        raise OverBudget("metadata.annotations", size, f"want at most {_MAX_ANNOTATIONS} bytes")
    for name, path in _LARGE_FIELDS[type(spec)]:
        value = getattr(spec, name)
        if not value:
            continue
        if isinstance(value, LabelSelector):
            _check_terms(f"{path}.matchLabels", len(value.match_labels or ()), _MAX_TERMS)
            _check_terms(f"{path}.matchExpressions", len(value.match_expressions or ()), _MAX_TERMS)
        elif len(value) > _MAX_ENTRIES:
            raise OverBudget(path, len(value), f"want at most {_MAX_ENTRIES} entries")
    if isinstance(found, KeepalivedGroup):
        _check_terms(f"spec.affinity.{REQUIRED_TERMS}", count_node_selector_terms(found.spec), _MAX_NODE_TERMS)


def _can_be_large(info: msgspec.structs.FieldInfo) -> bool:
    """Whether a field holds a list, an object or a selector whose size is checked."""
    found = {get_origin(each) or each for each in (info.type, *get_args(info.type))}
    return info.name != _PORTS and not found.isdisjoint(_LARGE_TYPES)


_LARGE_FIELDS: Final = {
    kind: [(info.name, f"spec.{info.encode_name}") for info in msgspec.structs.fields(kind) if _can_be_large(info)]
    for kind in (ServiceSpec, GroupSpec, PoolSpec)
}
"""By kind of spec, the attribute and the path of each of these fields."""


def _check_terms(field: str, count: int, most: int) -> None:
    if count > most:
        raise OverBudget(field, f"{count:,} terms", f"want at most {most}")


def _object(raw: bytes, kind: type[T], namespace: str) -> T | None:
    if raw in ABSENT:
        return None
    source = RawObject(raw, kind)
    found = source.decode()
    if not source.is_small or kind is not Service:  # a small Service cannot exceed any of these limits
        _check_size(found)
    return _located(found, namespace)


def _located(found: T, namespace: str) -> T:
    """*found*, in *namespace* if it names none."""
    if not namespace or found.metadata.namespace:
        return found
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace=namespace))
