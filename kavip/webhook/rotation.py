"""
Keeps the webhook's certificates alive: one CA for all replicas, a leaf for each, and the ``caBundle`` that joins them.

The CA stands in a Secret: whoever comes first creates it, whoever notices first renews it, and everybody else takes
what is there. The leaf stays in memory. After a renewal the bundle holds the new CA and the one before it; a replica
publishes the bundle, and only then, when the API servers have had time to read it, serves a leaf of the new CA. So it
is too when somebody deletes the Secret: the new CA is published beside what ``caBundle`` held, because every replica
still serves a leaf of that.
"""

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import structlog

from kavip import names, telemetry
from kavip.api.cluster import Secret
from kavip.errors import AlreadyExists, ApiError, BadInput, Conflict, KavipError, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from kavip.webhook import certs, registration
from kavip.webhook.certs import Pair

CHECK_EVERY: Final = 10.0  # seconds; a process that was paused renews late, but not much
RETRY_EVERY: Final = 2.0
SETTLE: Final = timedelta(seconds=30)  # an API server follows its webhook configurations by a watch: seconds at most
_CERTIFICATE, _KEY, _BUNDLE = "tls.crt", "tls.key", "ca.crt"  # the Secret's keys
_ATTEMPTS: Final = 5
_KEPT: Final = 2  # authorities beside a new one: who deletes the Secret every minute does not grow the bundle for ever

log: Final = structlog.get_logger(__name__)

Clock = Callable[[], datetime]


class Publisher(Protocol):
    """Makes the API server trust a bundle."""

    async def published(self) -> bytes:
        """What the API server trusts now; empty where that is nothing."""

    async def publish(self, bundle: bytes) -> None:
        """See that the webhook configurations carry *bundle*."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What the Secret holds: the CA that signs, and the *bundle* of all that are to be trusted."""

    ca: Pair
    bundle: bytes

    def trusts(self, leaf: Pair) -> bool:
        """Whether a CA of the bundle has signed *leaf*."""
        return any(certs.signed(issuer, leaf.certificate) for issuer in certs.read_bundle(self.bundle))


class Rotation:
    """Gives *present* a leaf for *hosts* whenever one is due, and keeps *publisher* informed of the bundle."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        hosts: Sequence[str],
        present: Callable[[Pair], None],
        publisher: Publisher,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """Nothing is done before :meth:`run` or :meth:`tick`."""
        self._client, self._secret, self._hosts = client, f"{namespace}/{names.CA_SECRET_NAME}", tuple(hosts)
        self._present, self._publisher, self._clock = present, publisher, clock
        self._leaf: Pair | None = None
        self._published: tuple[bytes, datetime] = (b"", datetime.min.replace(tzinfo=UTC))

    def unready(self) -> str:
        """Say that the API server cannot trust us yet; "" once the bundle is published."""
        return "" if self._published[0] else "caBundle not published yet"

    async def run(self) -> None:
        """Do what is due, for ever."""
        complaint = ""
        while True:
            try:
                await self.tick()
                complaint, pause = "", CHECK_EVERY
            except KavipError as error:
                if complaint != str(error):  # once, not at every attempt
                    complaint = str(error)
                    log.warning("certificates not settled", error=complaint)
                pause = RETRY_EVERY
            await asyncio.sleep(pause)

    async def tick(self) -> None:
        """Do what is due now; a :class:`KavipError` leaves the last good leaf in place."""
        authority = await self._authority()
        if self._leaf is None or not authority.trusts(self._leaf):
            self._renew(authority)
        await self._publish(authority)
        if self._due(authority):
            self._renew(authority)

    def _due(self, authority: Authority) -> bool:
        now = self._clock()
        if self._leaf is None or certs.due(self._leaf.certificate, now):
            return True
        _, since = self._published
        return not certs.signed(authority.ca.certificate, self._leaf.certificate) and now - since >= SETTLE

    def _renew(self, authority: Authority) -> None:
        self._leaf = certs.new_leaf(authority.ca, self._hosts, self._clock())
        self._present(self._leaf)
        log.info("leaf renewed", until=self._leaf.certificate.not_valid_after_utc.isoformat())

    async def _publish(self, authority: Authority) -> None:
        await self._publisher.publish(authority.bundle)
        if self._published[0] != authority.bundle:
            self._published = authority.bundle, self._clock()
            log.info("caBundle published", authorities=len(certs.read_bundle(authority.bundle)))

    # --- the CA Secret --------------------------------------------------------------------------------------------
    async def _authority(self) -> Authority:
        for _ in range(_ATTEMPTS):
            try:
                return await self._found_or_made()
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: take what it has written
        raise ApiError(409, "Conflict", f"Secret {self._secret} changed {_ATTEMPTS} times while it was being renewed")

    async def _found_or_made(self) -> Authority:
        now = self._clock()
        try:
            secret = await self._client.get(SECRETS, self._secret)
        except NotFound:
            made = await self._new_authority(None)
            body = {"type": "kubernetes.io/tls", **_body(made)}
            await self._client.create(SECRETS, self._secret, body)
            log.info("CA created", secret=self._secret)
            return _measured(made)
        found = _read(secret, now)
        if found is not None and not certs.due(found.ca.certificate, now):
            return _measured(found)
        made = await self._new_authority(found)
        stale = {"resourceVersion": secret.metadata.resource_version}
        await self._client.patch(SECRETS, self._secret, {"metadata": stale, **_body(made)})
        log.info("CA renewed", secret=self._secret, why="due" if found else "the Secret held none that can be used")
        return _measured(made)

    async def _new_authority(self, before: Authority | None) -> Authority:
        """A new CA, beside the one *before*; where that is lost, beside what is trusted now."""
        now = self._clock()
        if before is not None:
            old = [before.ca.certificate]
        else:
            try:
                old = certs.read_bundle(await self._publisher.published())[:_KEPT]
            except NotFound:  # no configuration: nobody asks yet
                old = []
        ca = certs.new_ca(now)
        return Authority(ca, certs.bundle([ca.certificate, *old], now))


@dataclass(frozen=True, slots=True)
class Injected:
    """Writes ``caBundle`` into the configurations called *name*, which the chart has installed."""

    client: Client
    name: str

    async def published(self) -> bytes:
        """What the first webhook carries; all carry the same."""
        return await _carried(self.client, self.name)

    async def publish(self, bundle: bytes) -> None:
        """Apply the one field, where it differs, under a field manager of its own: ``helm upgrade`` keeps it."""
        text = b64encode(bundle).decode()
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            found = (await self.client.get(resource, self.name)).webhooks or ()
            if all(webhook.client_config.ca_bundle == text for webhook in found):
                continue
            body = {"webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in found]}
            await self.client.apply(resource, self.name, body, field_manager=names.CA_FIELD_MANAGER, force=True)


@dataclass(frozen=True, slots=True)
class Registered:
    """Writes the configurations whole: kavip runs outside the cluster, and is reached at a URL."""

    client: Client
    name: str
    reached: registration.ByURL
    namespace: str
    manner: registration.Manner = registration.USUAL

    async def published(self) -> bytes:
        """What the first webhook carries; all carry the same."""
        return await _carried(self.client, self.name)

    async def publish(self, bundle: bytes) -> None:
        """Apply both configurations; to a server that has them already, that is no write."""
        text = b64encode(bundle).decode()
        wanted = registration.configurations(
            self.name, self.reached, namespace=self.namespace, ca_bundle=text, manner=self.manner
        )
        for resource, body in zip((MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), wanted, strict=True):
            await self.client.apply(resource, self.name, body, force=True)


async def _carried(client: Client, name: str) -> bytes:
    """The bundle in the validating configuration called *name*."""
    webhooks = (await client.get(VALIDATING_WEBHOOKS, name)).webhooks or ()
    try:
        return b64decode(webhooks[0].client_config.ca_bundle if webhooks else "")
    except NotBase64:
        return b""


def _read(secret: Secret, now: datetime) -> Authority | None:
    """What *secret* holds; None where it cannot be used."""
    try:
        data = {name: b64decode(text, validate=True) for name, text in (secret.data or {}).items()}
        ca = Pair.load(data.get(_CERTIFICATE, b""), data.get(_KEY, b""))
    except (NotBase64, BadInput):
        return None
    # The CA stands first whatever the bundle says: a leaf that nobody trusts would cut kavip off.
    return Authority(ca, certs.bundle([ca.certificate, *certs.read_bundle(data.get(_BUNDLE, b""))], now))


def _body(authority: Authority) -> dict[str, Any]:
    data = {
        _CERTIFICATE: authority.ca.certificate_pem,
        _KEY: authority.ca.key_pem,
        _BUNDLE: authority.bundle,
    }
    return {"data": {name: b64encode(value).decode() for name, value in data.items()}}


def _measured(authority: Authority) -> Authority:
    telemetry.CERTIFICATE_EXPIRY.labels("ca").set(authority.ca.certificate.not_valid_after_utc.timestamp())
    return authority
