"""
A lease of ``coordination.k8s.io/v1``, as client-go's candidates keep it.

Whether another holder is still alive is judged by how long *this* process has seen its record unchanged, on the
monotonic clock: the times in the record are written for people and never compared. Every write carries the
resourceVersion that was read, so of two candidates one gets a 409, which means: not held.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from kavip.api.lease import Lease, LeaseSpec
from kavip.errors import NotFound
from kavip.kube.client import Client
from kavip.kube.resources import LEASES


class ApiLease:
    """The Lease *key*, wanted by *identity*, which must be this process's own."""

    def __init__(self, client: Client, key: str, *, identity: str, duration: float = 15.0) -> None:
        """*duration* is in seconds; Kubernetes keeps whole ones."""
        self._client, self._key, self._identity = client, key, identity
        self._duration = max(1, round(duration))
        self._seen = LeaseSpec()
        self._since = 0.0
        self._term = ("", 0)

    @property
    def duration(self) -> float:
        """Seconds after which another candidate may take over."""
        return float(self._duration)

    @property
    def holder(self) -> str:
        """Who held the lease when it was last read."""
        return self._seen.holder_identity or ""

    async def try_hold(self) -> bool:
        """Create, take over or renew; False where somebody else holds it, :class:`Conflict` where we were too slow."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            made = await self._client.create(LEASES, self._key, {"spec": self._claim(LeaseSpec())})
            self._term = _term(made.spec)
            return True
        self._observe(found.spec)
        if self.holder not in ("", self._identity) and not self._has_run_out():
            return False
        self._term = _term(await self._write(found, self._claim(found.spec)))
        return True

    async def try_renew(self) -> bool:
        """Renew; False where the record is no longer the one of our term, whoever holds it now."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            return False
        self._observe(found.spec)
        if _term(found.spec) != self._term:
            return False
        await self._write(found, self._claim(found.spec))
        return True

    async def release(self) -> None:
        """Give the lease up if it is ours."""
        try:
            found = await self._client.get(LEASES, self._key)
        except NotFound:
            return
        if found.spec.holder_identity == self._identity:
            await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})

    def _observe(self, spec: LeaseSpec) -> None:
        if spec != self._seen:
            self._seen, self._since = spec, asyncio.get_running_loop().time()

    def _has_run_out(self) -> bool:
        """Whether the record has stood unchanged for as long as its holder asked for."""
        lasts = self._seen.lease_duration_seconds or self._duration
        return asyncio.get_running_loop().time() > self._since + lasts

    def _claim(self, found: LeaseSpec) -> dict[str, Any]:
        """The spec that says that we hold the lease."""
        now = _now()
        claim: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration,
            "renewTime": now,
        }
        if found.holder_identity != self._identity:
            claim |= {"acquireTime": now, "leaseTransitions": self._transitions(found)}
        return claim

    @staticmethod
    def _transitions(found: LeaseSpec) -> int:
        """A new lease has seen no change of holder; any other sees one more now."""
        return 0 if found == LeaseSpec() else (found.lease_transitions or 0) + 1

    async def _write(self, found: Lease, spec: dict[str, Any]) -> LeaseSpec:
        body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
        return (await self._client.patch(LEASES, self._key, body)).spec


def _term(spec: LeaseSpec) -> tuple[str, int]:
    """Who holds the lease, and the how-manieth holder that is."""
    return spec.holder_identity or "", spec.lease_transitions or 0


def _now() -> str:
    """The time of day as ``metav1.MicroTime``, for people to read."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
