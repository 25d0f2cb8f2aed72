"""Replicas of kavip in one process, and as much of an API server as they share."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from kavip import names
from kavip.api.cluster import Secret
from kavip.errors import AlreadyExists, Conflict, NotFound
from kavip.kube.client import Client
from kavip.names import Reason
from kavip.pki import certificates
from kavip.pki.certificates import Pair
from kavip.webhook.certs.selfsigned import Rotation

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOSTS = ("kavip-webhook.kavip.svc",)
MINUTE = timedelta(minutes=1)


class OneSecret:
    """As much of an API server as one Secret needs: it hesitates, so that replicas meet."""

    def __init__(self) -> None:
        """No Secret yet."""
        self.secret: Secret | None = None
        self.trusted = b""  # caBundle
        self.standing = set[str]()
        self.calls: Counter[str] = Counter()
        self._version = 0

    async def endpoints(self) -> frozenset[str]:
        """Who stands behind the Service."""
        return frozenset(self.standing)

    async def get(self, _: object, __: str) -> Secret:
        """Read it."""
        self.calls["get"] += 1
        found = self.secret
        await asyncio.sleep(0)
        if found is None:
            raise NotFound(404, "NotFound", "no Secret")
        return found

    async def create(self, _: object, __: str, body: Mapping[str, Any]) -> Secret:
        """Create it, once."""
        self.calls["create"] += 1
        await asyncio.sleep(0)
        if self.secret is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        return self._store(body)

    async def patch(self, _: object, __: str, body: Mapping[str, Any], *, field_manager: str = "kavip") -> Secret:
        """Merge; where the body names a version, only into that one."""
        self.calls["patch" if field_manager == "kavip" else "confirm"] += 1
        await asyncio.sleep(0)
        if body["metadata"].get("resourceVersion", str(self._version)) != str(self._version):
            raise Conflict(409, "Conflict", "it has changed")
        return self._store(body)

    def lose(self) -> None:
        """As ``kubectl delete`` does."""
        self.secret = None

    def annotate(self, key: str, value: str) -> None:
        """As ``kubectl annotate`` does."""
        self._store({"metadata": {"annotations": {key: value}}})

    @property
    def annotations(self) -> dict[str, str]:
        """Those of the Secret."""
        return (self.secret.metadata.annotations or {}) if self.secret else {}

    def _store(self, body: Mapping[str, Any]) -> Secret:
        self._version += 1
        before = (self.secret.data if self.secret else None) or {}
        notes = {**self.annotations, **body.get("metadata", {}).get("annotations", {})}
        metadata = {
            "name": names.CA_SECRET_NAME,
            "namespace": "kavip",
            "resourceVersion": str(self._version),
            "annotations": {key: value for key, value in notes.items() if value is not None},
        }
        data = {key: value for key, value in {**before, **body.get("data", {})}.items() if value is not None}
        self.secret = msgspec.convert({"metadata": metadata, "data": data}, Secret)
        return self.secret


class Replica:
    """One kavip: its clock, what it serves, what it has published, in the order of doing."""

    def __init__(self, api: OneSecret, name: str = "", *, now: datetime = NOW) -> None:
        """A replica that has not started yet; with a *name* it confirms, and stands behind the Service."""
        self.api, self.now, self.done = api, now, list[tuple[str, object]]()
        self.told: list[tuple[Reason, str]] = []
        self.name = name
        if name:
            api.standing.add(name)
        self.publishing: Exception | None = None
        self.rotation = Rotation(
            cast(Client, api),
            namespace="kavip",
            hosts=HOSTS,
            present=lambda leaf: self.done.append(("leaf", leaf)),
            publisher=self,
            replica=name,
            standing=api.endpoints,
            tell=lambda reason, text: self.told.append((reason, text)),
            clock=lambda: self.now,
        )

    async def published(self) -> bytes:
        """What any replica has published last."""
        if isinstance(self.publishing, NotFound):
            raise self.publishing
        return self.api.trusted

    async def publish(self, bundle: bytes) -> None:
        """Take note of *bundle*."""
        if self.publishing:
            raise self.publishing
        self.api.trusted = bundle
        self.done.append(("bundle", bundle))

    async def tick(self, after: timedelta = timedelta()) -> list[str]:
        """Let *after* pass, do what is due, and say what new leaves were presented in between publications."""
        self.now += after
        begun = len(self.done)
        await self.rotation.tick()
        return [what for what, _ in self.done[begun:]]

    async def attempt(self) -> None:
        """One round of :meth:`Rotation.run`."""
        task = asyncio.create_task(self.rotation.run())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def leaf(self) -> Pair:
        """What it serves."""
        return cast(Pair, [value for what, value in self.done if what == "leaf"][-1])

    @property
    def bundle(self) -> bytes:
        """What it has published."""
        return cast(bytes, [value for what, value in self.done if what == "bundle"][-1])


def trusted(leaf: Pair, bundle: bytes) -> bool:
    """Whether a client with *bundle* accepts *leaf*."""
    return any(certificates.signed(issuer, leaf.certificate) for issuer in certificates.read_bundle(bundle))
