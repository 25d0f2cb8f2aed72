"""
``certs.mode: self``: a dynamic authority. All replicas share one CA; each issues a leaf for itself.

The CA is in a Secret. The first replica creates it, the first replica that finds it due renews it, and the others read
it. The leaf stays in memory. A renewal never interrupts TLS:

1. The Secret has the new CA and the previous ones; a replica publishes all of them.
2. ``caBundle`` has them, at once or when the controller has injected them. After :data:`PROPAGATION`, when the API
   servers have read the bundle, the replica serves a leaf of the new CA and confirms that on the Secret.
3. When all replicas have confirmed, the previous CAs are removed.

A deleted Secret is handled in the same way: the new CA is injected beside the CAs of ``caBundle``, because every
replica still serves a leaf of one of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from cryptography import x509

from kavip import names, telemetry
from kavip.errors import AlreadyExists, ApiError, Conflict, KavipError, NotFound, Throttled, Unavailable
from kavip.kube.client import Client
from kavip.kube.resources import SECRETS
from kavip.names import Reason
from kavip.pki import ca
from kavip.pki.ca import SharedCA
from kavip.pki.certificates import KeyPair, is_due, new_leaf
from kavip.pki.trustbundle import UnknownCAs, unexpired
from kavip.pki.verification import expiry_error
from kavip.webhook.certs.cabundle import Publisher

RECONCILE_SECONDS: Final = 10.0  # short, because a process that was suspended renews late
RETRY_SECONDS: Final = 2.0
PROPAGATION: Final = timedelta(seconds=30)  # API servers watch their webhook configurations: they need seconds at most
_ATTEMPTS: Final = 5

log: Final = structlog.get_logger(__name__)

Clock = Callable[[], datetime]
Wait = Callable[[float], Awaitable[None]]
"""Waits for so many seconds, or until an object has changed."""
EmitEvent = Callable[[Reason, str], None]
"""Emits an Event about the Secret."""


def no_events(_reason: Reason, _text: str) -> None:
    """Emit no Event."""


async def no_replicas() -> frozenset[str]:
    """No replica is known: outside a cluster there is no Service."""
    return frozenset()


class DynamicAuthority:
    """Serves a leaf for *hosts* by *serve* whenever one is due, and publishes its CAs by *publisher*."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        hosts: Sequence[str],
        serve: Callable[[KeyPair], None],
        publisher: Publisher,
        replica: str = "",
        replicas: Callable[[], Awaitable[Iterable[str]]] = no_replicas,
        emit_event: EmitEvent = no_events,
        wait: Wait = asyncio.sleep,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """*replica* is the name of this one; *replicas* returns the names of all that the Service may reach."""
        self._client, self._secret, self._hosts = client, f"{namespace}/{names.CA_SECRET_NAME}", tuple(hosts)
        self._serve, self._publisher, self._clock, self._wait = serve, publisher, clock, wait
        self._replica, self._replicas, self._emit_event = replica, replicas, emit_event
        self._leaf: KeyPair | None = None
        self._trusted: frozenset[x509.Certificate] = frozenset()  # the CAs of the Secret, once caBundle has all of them
        self._trusted_since = datetime.max.replace(tzinfo=UTC)
        self._was_trusted = False
        self._known_cas, self._unknown_cas = set[x509.Certificate](), UnknownCAs()
        self._problem = ""

    def unready(self) -> str:
        """Why the API server cannot trust this replica; "" if it can."""
        why = f": {self._problem}" if self._problem else ""
        if not self._was_trusted:
            awaited = f": {self._publisher.awaited}" if self._publisher.awaited else ""
            return f"caBundle not published yet{why or awaited}"
        if self._leaf is not None and (error := expiry_error(self._leaf.certificate, self._clock())):
            return f"{error}{why}"
        return ""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            try:
                await self.reconcile()
                self._problem, seconds = "", RECONCILE_SECONDS
            except KavipError as error:
                self._report(error)
                seconds = RETRY_SECONDS
            await self._wait(seconds)

    async def reconcile(self) -> None:
        """Do what is due now; a :class:`KavipError` leaves the last leaf in place."""
        shared = await self._ensure_ca()
        if self._leaf is None:
            self._issue_leaf(shared)
        await self._publish(shared)
        if self._leaf_is_due(shared):
            self._issue_leaf(shared)
        if shared.previous and self._leaf is not None and shared.has_issued(self._leaf):
            await self._drop_previous(await self._confirm(shared), self._leaf)

    def _report(self, error: KavipError) -> None:
        """Log a new problem, and emit an Event unless it passes by itself."""
        if self._problem == str(error):
            return
        self._problem = str(error)
        log.warning("certificate reconcile failed", error=self._problem)
        if not isinstance(error, Unavailable | Throttled):
            self._emit_event(Reason.CERTIFICATE_UNUSABLE, self._problem)

    # --- the leaf and the bundle ----------------------------------------------------------------------------------
    def _leaf_is_due(self, shared: SharedCA) -> bool:
        """Whether to issue a leaf: one is due, and API servers have had time to trust the CA that would issue it."""
        leaf, now = self._leaf, self._clock()
        if leaf is None or expiry_error(leaf.certificate, now):
            return True
        if shared.has_issued(leaf):
            return is_due(leaf.certificate, now)
        if not shared.trusts(leaf):
            return bool(self._trusted)  # another program has replaced the Secret; the bundle has only the new CA
        return bool(self._trusted) and now - self._trusted_since >= PROPAGATION

    def _issue_leaf(self, shared: SharedCA) -> None:
        self._leaf = new_leaf(shared.ca, self._hosts, self._clock())
        self._serve(self._leaf)
        log.info("leaf issued", until=self._leaf.certificate.not_valid_after_utc.isoformat())

    async def _publish(self, shared: SharedCA) -> None:
        now = self._clock()
        self._known_cas.update(shared.trusted)
        own = unexpired(shared.trusted, now)
        trust = await self._publisher.publish(
            lambda published: [*own, *self._unknown_cas.retained(published, self._known_cas, now)]
        )
        if not {*own} <= {*trust.cas}:  # the controller has yet to inject them
            if self._trusted:
                log.info("new CA waits for its injection", awaited=self._publisher.awaited)
            self._trusted = frozenset()
        elif self._trusted != {*own}:
            self._trusted, self._trusted_since, self._was_trusted = frozenset(own), now, True
            log.info("caBundle published", authorities=len(own))

    async def _confirm(self, shared: SharedCA) -> SharedCA:
        """Confirm on the Secret that this replica serves a leaf of the issuing CA; return the Secret's content."""
        if not self._replica or ca.confirmation_key(self._replica) in shared.confirmed:
            return shared
        patch = ca.confirmation_patch(shared, self._replica)
        secret = await self._client.patch(SECRETS, self._secret, patch, field_manager=names.CA_FIELD_MANAGER)
        log.info("new CA confirmed", replica=self._replica)
        return ca.read_secret(secret, self._clock()) or shared

    async def _drop_previous(self, shared: SharedCA, leaf: KeyPair) -> None:
        """Remove the previous CAs once no replica serves a leaf of one."""
        now = self._clock()
        if not shared.has_issued(leaf) or not shared.can_drop_previous(await self._replicas(), now):
            return
        try:
            await self._client.patch(SECRETS, self._secret, ca.drop_previous_patch(shared, now))
        except Conflict:
            return  # another replica has changed the Secret; the next reconcile reads it
        log.info("previous CAs removed", authorities=len(shared.previous))
        text = "every replica serves a certificate of the new CA; the previous CA is no longer trusted"
        self._emit_event(Reason.CERTIFICATE_RENEWED, text)
        await self._publish(SharedCA(shared.ca))

    # --- the CA Secret --------------------------------------------------------------------------------------------
    async def _ensure_ca(self) -> SharedCA:
        for _ in range(_ATTEMPTS):
            try:
                shared = await self._read_or_renew_ca()
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: read what it wrote
            telemetry.CERTIFICATE_EXPIRY.labels("ca").set(shared.ca.certificate.not_valid_after_utc.timestamp())
            return shared
        raise ApiError(409, "Conflict", f"Secret {self._secret} changed {_ATTEMPTS} times while it was being renewed")

    async def _read_or_renew_ca(self) -> SharedCA:
        now = self._clock()
        try:
            secret = await self._client.get(SECRETS, self._secret)
        except NotFound:
            new = ca.renewed(await self._publisher.published(), now)
            await self._client.create(SECRETS, self._secret, ca.secret_body(new, now))
            self._announce("CA created", "the Secret did not exist")
            return new
        found = ca.read_secret(secret, now)
        if found is not None and not found.is_due(now):
            return found
        new = ca.renewed(await self._publisher.published() if found is None else found.trusted, now)
        await self._client.patch(SECRETS, self._secret, ca.renewal_patch(new, secret, now))
        if found is None:
            why = "the Secret had no usable CA"
        else:
            why = "requested by annotation" if found.rotation_requested else "two thirds of its lifetime were over"
        self._announce("CA renewed", why)
        return new

    def _announce(self, event: str, why: str) -> None:
        log.info(event, secret=self._secret, why=why)
        self._emit_event(Reason.CERTIFICATE_RENEWED, f"{event}: {why}")
