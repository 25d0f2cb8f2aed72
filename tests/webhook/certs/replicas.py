"""
Several replicas in one process with the part of an API server that they share: a Secret, ``caBundle`` and endpoints.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from cryptography import x509

from kavip import names
from kavip.api.cluster import Secret
from kavip.errors import AlreadyExists, Conflict, NotFound
from kavip.kube.client import Client
from kavip.names import Reason
from kavip.pki.certificates import KeyPair
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import encode_pem, parse_bundle
from kavip.pki.verification import has_signed
from kavip.webhook.certs.cabundle import Merge, Publisher
from kavip.webhook.certs.selfsigned import DynamicAuthority

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOSTS = ("kavip-webhook.kavip.svc",)
MINUTE = timedelta(minutes=1)


class OneSecret:
    """A fake API server with one Secret; each call yields to the event loop, so that replicas race."""

    def __init__(self) -> None:
        """No Secret yet."""
        self.secret: Secret | None = None
        self.trusted = b""  # of the webhook configurations
        self.replicas = set[str]()
        self.calls: Counter[str] = Counter()
        self._version = 0

    def publisher_of(self, replica: "Replica") -> Publisher:
        """The publisher of *replica*: itself, without a controller."""
        return replica

    async def run_controller(self, _now: datetime) -> bool:
        """Let the controller work, if there is one; return whether a watch has woken the replica."""
        return False

    async def endpoints(self) -> frozenset[str]:
        """The replicas behind the Service."""
        return frozenset(self.replicas)

    async def get(self, _: object, __: str) -> Secret:
        """Read the Secret."""
        self.calls["get"] += 1
        found = self.secret
        await asyncio.sleep(0)
        if found is None:
            raise NotFound(404, "NotFound", "no Secret")
        return found

    async def create(self, _: object, __: str, body: Mapping[str, Any]) -> Secret:
        """Create the Secret, once."""
        self.calls["create"] += 1
        await asyncio.sleep(0)
        if self.secret is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        return self._store(body)

    async def patch(self, _: object, __: str, body: Mapping[str, Any], *, field_manager: str = "kavip") -> Secret:
        """Merge *body*; if it has a resourceVersion, only into that version."""
        self.calls["patch" if field_manager == "kavip" else "confirm"] += 1
        await asyncio.sleep(0)
        if body["metadata"].get("resourceVersion", str(self._version)) != str(self._version):
            raise Conflict(409, "Conflict", "it has changed")
        return self._store(body)

    def delete(self) -> None:
        """Delete the Secret."""
        self.secret = None

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation, as ``kubectl annotate`` does."""
        self._store({"metadata": {"annotations": {key: value}}})

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the Secret."""
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
    """A replica with its clock, and a record of the leaves and bundles that it served and published."""

    def __init__(self, api: OneSecret, name: str = "", *, now: datetime = NOW) -> None:
        """A replica that has not started; with a *name* it confirms CAs, and is behind the Service."""
        self.api, self.now, self.done = api, now, list[tuple[str, object]]()
        self.events: list[tuple[Reason, str]] = []
        self.name = name
        if name:
            api.replicas.add(name)
        self.publishing: Exception | None = None
        self.publisher = api.publisher_of(self)
        self.authority = DynamicAuthority(
            cast(Client, api),
            namespace="kavip",
            hosts=HOSTS,
            serve=lambda leaf: self.done.append(("leaf", leaf)),
            publisher=self.publisher,
            replica=name,
            replicas=api.endpoints,
            emit_event=lambda reason, text: self.events.append((reason, text)),
            clock=lambda: self.now,
        )

    async def published(self) -> list[x509.Certificate]:
        """What any replica published last."""
        return parse_bundle(self.api.trusted)

    @property
    def awaited(self) -> str:
        """Nothing."""
        return ""

    async def publish(self, merge: Merge) -> Trust:
        """Publish and record a bundle."""
        if self.publishing:
            raise self.publishing
        self.api.trusted = encode_pem(merge(await self.published()))
        self.done.append(("bundle", self.api.trusted))
        return Trust(await self.published())

    async def reconcile(self, after: timedelta = timedelta()) -> list[str]:
        """Let *after* pass, reconcile once, and return the kinds of the recorded actions."""
        self.now += after
        begun = len(self.done)
        await self.authority.reconcile()
        if await self.api.run_controller(self.now):
            await self.authority.reconcile()
        return [what for what, _ in self.done[begun:]]

    async def attempt(self) -> None:
        """One iteration of :meth:`DynamicAuthority.run`."""
        task = asyncio.create_task(self.authority.run())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def leaf(self) -> KeyPair:
        """The served leaf."""
        return cast(KeyPair, [value for what, value in self.done if what == "leaf"][-1])

    @property
    def bundle(self) -> bytes:
        """The published bundle."""
        return cast(bytes, [value for what, value in self.done if what == "bundle"][-1])


def is_trusted(leaf: KeyPair, bundle: bytes) -> bool:
    """Whether a client with *bundle* accepts *leaf*."""
    return any(has_signed(issuer, leaf.certificate) for issuer in parse_bundle(bundle))
