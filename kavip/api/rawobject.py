"""
An object of a review as raw JSON: its parts, and how many items each has, before anything is decoded.

Decoding costs time by item, and msgspec checks lengths only afterwards. So items are counted in the bytes. A part of
the object that no decision reads, such as ``managedFields``, is neither counted nor decoded.
"""

from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.pool import PoolStatus, VIPPool
from kavip.api.service import Ingress, LoadBalancer, Service, ServiceStatus
from kavip.errors import BadInput

T = TypeVar("T", bound=Service | KeepalivedGroup | VIPPool)

ABSENT: Final = (b"", b"null")
MAX_ITEMS: Final = 32_768
"""Items of spec, labels and annotations together: a Service with six thousand ports, or any group or pool."""
FEW_ITEMS: Final = 512
FEW_BYTES: Final = 64 * 1024
"""The most items and bytes of a whole object that is decoded at once."""
_SLICE: Final = 64 * 1024
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SKIPPED_STATUS: Final[dict[type, tuple[int, Any]]] = {
    # kavip writes at most 32 addresses, so a status with so many entries is another controller's
    Service: (2048, ServiceStatus(load_balancer=LoadBalancer(ingress=[Ingress(hostname="too-many.invalid")]))),
    KeepalivedGroup: (32_768, GroupStatus()),  # only warnings depend on it
    VIPPool: (0, PoolStatus()),  # the cache has it
}
"""By kind: the most items of a status that is decoded, and what takes the place of a larger one."""


class OverBudget(BadInput):
    """An object that is too large for a decision."""


class UncheckedUpdate(OverBudget):
    """Such an object in an UPDATE that changes neither spec, labels nor annotations."""


class _Parts(Struct):
    metadata: Raw = Raw(b"{}")
    spec: Raw = Raw()
    status: Raw = Raw()


class _Metadata(Struct, rename="camel"):
    """The metadata that a review reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = Raw()
    annotations: Raw = Raw()


_PARTS: Final = msgspec.json.Decoder(_Parts)
_METADATA: Final = msgspec.json.Decoder(_Metadata)
_ANY: Final = msgspec.json.Decoder()
_TEXTS: Final = msgspec.json.Decoder(dict[str, str] | None)


class RawObject(Generic[T]):
    """The raw JSON of an object of *kind*. Methods raise :class:`BadInput` if it is malformed; it quotes no value."""

    def __init__(self, raw: bytes, kind: type[T]) -> None:
        """*raw* is one JSON object."""
        self._raw, self._kind = raw, kind
        self.is_small = len(raw) <= FEW_BYTES and not has_more_items(raw, than=FEW_ITEMS)

    def decode(self) -> T:
        """The object, a status with too many items replaced; raises :class:`OverBudget` above :data:`MAX_ITEMS`."""
        if self.is_small:
            small: T = _read(_DECODERS[self._kind], self._raw, self._kind)
            return small
        parts, metadata = self._parts
        judged = (parts.spec, metadata.labels, metadata.annotations)
        if has_more_items(*map(bytes, judged), than=MAX_ITEMS):
            raise OverBudget("", f"more than {MAX_ITEMS:,} items", "want fewer in spec, labels and annotations")
        read = self._metadata(metadata)
        most, replacement = _SKIPPED_STATUS[self._kind]
        fields: dict[str, Any] = {info.name: info.type for info in msgspec.structs.fields(self._kind)}
        spec = _read(_DECODERS[fields["spec"]], bytes(parts.spec) or b"{}", self._kind, ".spec")
        status = replacement
        if not has_more_items(bytes(parts.status), than=most):
            status = _read(_DECODERS[fields["status"]], bytes(parts.status) or b"{}", self._kind, ".status")
        found: T = self._kind(metadata=read, spec=spec, status=status)
        return found

    def identity(self) -> T:
        """The object with no more than its name and, unless there are too many, its annotations."""
        _, metadata = self._parts
        read = Metadata(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            deletion_timestamp=metadata.deletion_timestamp,
        )
        if not has_more_items(bytes(metadata.annotations), than=MAX_ITEMS):
            read = msgspec.structs.replace(read, annotations=self._texts(metadata.annotations, "annotations"))
        found: T = self._kind(metadata=read)
        return found

    def judged(self) -> tuple[bytes, ...]:
        """The raw spec, labels and annotations; an UPDATE that leaves them equal needs no decision."""
        parts, metadata = self._parts
        found = map(bytes, (parts.spec, metadata.labels, metadata.annotations))
        return tuple(b"" if part in ABSENT else part for part in found)

    def document(self) -> dict[str, Any]:
        """The spec and the annotations as plain JSON values, for a patch."""
        parts, metadata = self._parts
        found: dict[str, Any] = {"metadata": {}}
        for place, name, raw in ((found["metadata"], "annotations", metadata.annotations), (found, "spec", parts.spec)):
            if bytes(raw):
                place[name] = _read(_ANY, raw, self._kind, f".{name}")
        return found

    @cached_property
    def _parts(self) -> tuple[_Parts, _Metadata]:
        parts = _read(_PARTS, self._raw, self._kind)
        return parts, _read(_METADATA, parts.metadata, self._kind, ".metadata")

    def _metadata(self, found: _Metadata) -> Metadata:
        return Metadata(
            name=found.name,
            namespace=found.namespace,
            uid=found.uid,
            generation=found.generation,
            creation_timestamp=found.creation_timestamp,
            deletion_timestamp=found.deletion_timestamp,
            labels=self._texts(found.labels, "labels"),
            annotations=self._texts(found.annotations, "annotations"),
        )

    def _texts(self, raw: Raw, name: str) -> dict[str, str] | None:
        return _read(_TEXTS, raw, self._kind, f".metadata.{name}") if bytes(raw) else None


def has_more_items(*parts: bytes, than: int) -> bool:
    """
    Whether *parts* of JSON may have more than so many values; it looks no further than that.

    Each value but the first of an object or array follows a comma, and each first one an opening bracket. Those in
    strings count as well.
    """
    count = 0
    for part in parts:
        for start in range(0, len(part), _SLICE):
            end = start + _SLICE
            count += part.count(b",", start, end) + part.count(b"{", start, end) + part.count(b"[", start, end)
            if count > than:
                return True
    return False


V = TypeVar("V")


def _read(decoder: "msgspec.json.Decoder[V]", raw: bytes | Raw, kind: type, where: str = "") -> V:
    try:
        return decoder.decode(raw)
    except _DECODE_ERRORS as error:
        text = str(error)
        if where:
            text = text.replace("`$", f"`${where}", 1) if "`$" in text else f"{text} - at `${where}`"
        raise BadInput("", kind.__name__, f"cannot be read: {text}") from None


_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind)
    for whole in (Service, KeepalivedGroup, VIPPool)
    for kind in (whole, *(info.type for info in msgspec.structs.fields(whole)))
}
