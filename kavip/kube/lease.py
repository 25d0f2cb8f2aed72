"""
A lock in a Lease of ``coordination.k8s.io/v1``, compatible with client-go.

A holder counts as dead when *this* process has seen its record unchanged for the lease duration, on the monotonic
clock: the times in the record are for people and are never compared. Every write has the resourceVersion that was read,
so one of two candidates gets a 409, which means: not held.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from kavip.api.lease import Lease, LeaseSpec
from kavip.errors import NotFound
from kavip.kube.client import Client
from kavip.kube.resources import LEASES


class LeaseLock:
    """The Lease *key* as a lock for the candidate *identity*, which must be unique to this process."""

    def __init__(
        self,
        client: Client,
        key: str,
        *,
        identity: str,
        duration: float = 15.0,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """*duration* is in seconds; Kubernetes stores whole seconds. *annotations* are set with each renewal."""
        self._client, self._key, self._identity, self._annotations = client, key, identity, annotations
        self._found: Mapping[str, str] = {}
        self._duration = max(1, round(duration))
        self._record = LeaseSpec()
        self._record_since = 0.0
        self._term = ("", 0)

    @property
    def duration(self) -> float:
        """Seconds after which another candidate may acquire the lease."""
        return float(self._duration)

    @property
    def holder(self) -> str:
        """The holder identity when the lease was last read."""
        return self._record.holder_identity or ""

    def recorded(self, annotation: str) -> str:
        """The *annotation* that the Lease had when it was last acquired; "" without one."""
        return self._found.get(annotation, "")

    async def try_acquire(self) -> bool:
        """Create, acquire or renew; False if another candidate holds it; raises :class:`Conflict` after a lost race."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            created = await self._client.create(LEASES, self._key, {"spec": self._holding(LeaseSpec())})
            self._term, self._found = _term(created.spec), {}
            return True
        self._observe(found.spec)
        if self.holder not in ("", self._identity) and not self._has_expired():
            return False
        self._term = _term(await self._write(found, self._holding(found.spec)))
        self._found = found.metadata.annotations or {}
        return True

    async def try_renew(self) -> bool:
        """Renew; False if the record is not that of the current term, whatever the holder."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            return False
        self._observe(found.spec)
        if _term(found.spec) != self._term:
            return False
        await self._write(found, self._holding(found.spec), annotations=self._annotations())
        return True

    async def release(self) -> None:
        """Release the lease if this candidate holds it."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            return
        if found.spec.holder_identity == self._identity:
            await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})

    def _observe(self, spec: LeaseSpec) -> None:
        if spec != self._record:
            self._record, self._record_since = spec, asyncio.get_running_loop().time()

    def _has_expired(self) -> bool:
        """Whether the record has been unchanged for the duration that its holder asked for."""
        duration = self._record.lease_duration_seconds or self._duration
        return asyncio.get_running_loop().time() > self._record_since + duration

    def _holding(self, found: LeaseSpec) -> dict[str, Any]:
        """The spec with this candidate as the holder."""
        now = _now()
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration,
            "renewTime": now,
        }
        if found.holder_identity != self._identity:
            transitions = 0 if found == LeaseSpec() else (found.lease_transitions or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        return spec

    async def _write(
        self, found: Lease, spec: dict[str, Any], *, annotations: Mapping[str, str] | None = None
    ) -> LeaseSpec:
        metadata: dict[str, Any] = {"resourceVersion": found.metadata.resource_version}
        if annotations:
            metadata["annotations"] = dict(annotations)
        body = {"metadata": metadata, "spec": spec}
        return (await self._client.patch(LEASES, self._key, body)).spec


def _term(spec: LeaseSpec) -> tuple[str, int]:
    """The holder identity and transition count; together they identify a term."""
    return spec.holder_identity or "", spec.lease_transitions or 0


def _now() -> str:
    """The current time as ``metav1.MicroTime``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
