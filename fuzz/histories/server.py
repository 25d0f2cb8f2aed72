"""
A fake API server for IPAM: objects with resourceVersions, conditional status patches, and a log of changes.

Users change objects by :meth:`Server.put` and :meth:`Server.drop`; controllers only by :meth:`Server.patch_status`.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from kavip import names
from kavip.api.address import Address
from kavip.api.service import Service
from kavip.errors import Conflict, NotFound
from kavip.snapshot import KINDS, Object
from tests.support import patches


class Change(NamedTuple):
    """An event of a watch: *new* is the object *key* since *version*; None if it was deleted."""

    version: int
    key: str
    new: Object | None


@dataclass(frozen=True, slots=True)
class Write:
    """A successful status write of a Service by the replica *by*."""

    by: str
    before: Service
    after: Service

    @property
    def taken(self) -> frozenset[Address]:
        """The addresses that the write removed."""
        return frozenset(self.before.ingress_addresses) - frozenset(self.after.ingress_addresses)

    @property
    def added(self) -> frozenset[Address]:
        """The addresses that the write added."""
        return frozenset(self.after.ingress_addresses) - frozenset(self.before.ingress_addresses)


class Server:
    """The stored objects, and a log of their changes."""

    def __init__(self) -> None:
        """Start without objects."""
        self.version = 100
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS.values()}
        self.changes: dict[str, list[Change]] = {kind: [] for kind in KINDS.values()}
        self.writes: list[Write] = []
        self.needless: list[str] = []
        self._made = 0

    @property
    def services(self) -> dict[str, Service]:
        """The Services by key."""
        return self.objects[names.SERVICE]  # type: ignore[return-value]  # a dict of one of the kinds

    def put(self, obj: Any) -> None:
        """Create *obj* as a user, or replace all except its status; a change of the spec raises the generation."""
        kind, key = KINDS[type(obj)], obj.metadata.key
        old: Any = self.objects[kind].get(key)
        meta = obj.metadata
        if old is None:
            self._made += 1
            meta = msgspec.structs.replace(meta, uid=f"uid-{self._made}", generation=1)
        else:
            generation = old.metadata.generation + (not hasattr(obj, "spec") or old.spec != obj.spec)
            meta = msgspec.structs.replace(
                meta,
                uid=old.metadata.uid,
                creation_timestamp=old.metadata.creation_timestamp,
                deletion_timestamp=old.metadata.deletion_timestamp,
                generation=generation,
            )
            if hasattr(obj, "status") and not isinstance(obj, _STATUS_IS_GIVEN):
                obj = msgspec.structs.replace(obj, status=old.status)
        self._store(kind, msgspec.structs.replace(obj, metadata=meta))

    def overwrite(self, service: Service) -> None:
        """Replace *service* with its status, as another controller."""
        self._store(names.SERVICE, service)

    def drop(self, kind: str, key: str) -> None:
        """Delete an object as a user; one with finalizers stays until they are removed."""
        found = self.objects[kind][key]
        if found.metadata.finalizers:
            meta = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-06-01T00:00:00Z")
            self._store(kind, msgspec.structs.replace(found, metadata=meta))
            return
        del self.objects[kind][key]
        self.version += 1
        self.changes[kind].append(Change(self.version, key, None))

    def patch_status(self, by: str, kind: str, key: str, body: Mapping[str, Any]) -> Object:
        """Apply a status patch of *by* if its resourceVersion is current."""
        found: Any = self.objects[kind].get(key)
        if found is None:
            raise NotFound(404, "NotFound", key)
        if found.metadata.resource_version != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", key)
        join = patches.strategic if kind == names.SERVICE else patches.merged
        status = msgspec.convert(join(msgspec.to_builtins(found.status), body["status"]), type(found.status))
        if status == found.status:
            self.needless.append(f"{by} writes to {kind} {key} what it already contains: {body}")
            stored: Object = found
            return stored
        new = self._store(kind, msgspec.structs.replace(found, status=status))
        if isinstance(new, Service):
            self.writes.append(Write(by, found, new))
        return new

    def after(self, kind: str, version: int) -> int:
        """The number of the first change of *kind* after *version*."""
        return bisect_right(self.changes[kind], version, key=lambda change: change.version)

    def _store(self, kind: str, obj: Any) -> Object:
        self.version += 1
        stored: Object = msgspec.structs.replace(
            obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        )
        self.objects[kind][stored.metadata.key] = stored
        self.changes[kind].append(Change(self.version, stored.metadata.key, stored))
        return stored


_STATUS_IS_GIVEN = next(kind for kind, name in KINDS.items() if name == names.NODE)  # by kubelet: spec and status
