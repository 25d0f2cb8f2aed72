"""
``certs.mode: self``: one CA for all replicas, a leaf for each, and the ``caBundle`` that joins them.

The CA stands in a Secret: whoever comes first creates it, whoever notices first renews it, and everybody else takes
what is there. The leaf stays in memory. After a renewal the bundle holds the new CA and those before it; a replica
publishes the bundle, and only then, when the API servers have had time to read it, serves a leaf of the new CA, and
confirms that on the Secret. When all have, the old CA goes. So it is too when somebody deletes the Secret: the new CA
is published beside what ``caBundle`` held, because every replica still serves a leaf of that.
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
from kavip.pki import ca, certificates
from kavip.pki.ca import Authority
from kavip.pki.certificates import Pair
from kavip.pki.strangers import Strangers
from kavip.webhook.certs.cabundle import Publisher

CHECK_EVERY: Final = 10.0  # seconds; a process that was paused renews late, but not much
RETRY_EVERY: Final = 2.0
SETTLE: Final = timedelta(seconds=30)  # an API server follows its webhook configurations by a watch: seconds at most
_ATTEMPTS: Final = 5

log: Final = structlog.get_logger(__name__)

Clock = Callable[[], datetime]
Pause = Callable[[float], Awaitable[None]]
"""Waits so many seconds, or until there is something to see."""
Tell = Callable[[Reason, str], None]
"""Makes an Event about the Secret."""


def silence(_reason: Reason, _text: str) -> None:
    """Tell nobody."""


async def nobody() -> frozenset[str]:
    """No replica is known to stand behind a Service: none is, outside a cluster."""
    return frozenset()


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
        replica: str = "",
        standing: Callable[[], Awaitable[Iterable[str]]] = nobody,
        tell: Tell = silence,
        pause: Pause = asyncio.sleep,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """*replica* is our name among those that are *standing* behind the Service. :meth:`run` begins."""
        self._client, self._secret, self._hosts = client, f"{namespace}/{names.CA_SECRET_NAME}", tuple(hosts)
        self._present, self._publisher, self._clock, self._pause = present, publisher, clock, pause
        self._replica, self._standing, self._tell = replica, standing, tell
        self._leaf: Pair | None = None
        self._published: tuple[bytes, datetime] = (b"", datetime.min.replace(tzinfo=UTC))
        self._ours, self._strangers = set[x509.Certificate](), Strangers()
        self._complaint = ""

    def unready(self) -> str:
        """Say that the API server cannot trust us yet, or no longer; "" when all is well."""
        why = f": {self._complaint}" if self._complaint else ""
        if not self._published[0]:
            return f"caBundle not published yet{why}"
        if self._leaf is not None and (ended := certificates.ended(self._leaf.certificate, self._clock())):
            return f"{ended}{why}"
        return ""

    async def run(self) -> None:
        """Do what is due, for ever."""
        while True:
            try:
                await self.tick()
                self._complaint, pause = "", CHECK_EVERY
            except KavipError as error:
                self._complain(error)
                pause = RETRY_EVERY
            await self._pause(pause)

    async def tick(self) -> None:
        """Do what is due now; a :class:`KavipError` leaves the last good leaf in place."""
        found = await self._authority()
        if self._leaf is None or not found.trusts(self._leaf):
            self._renew(found)
        await self._publish(found)
        if self._leaf_is_due(found):
            self._renew(found)
        await self._conclude(found)

    def _complain(self, error: KavipError) -> None:
        if self._complaint == str(error):  # once, not at every attempt
            return
        self._complaint = str(error)
        log.warning("certificates not settled", error=self._complaint)
        if not isinstance(error, Unavailable | Throttled):
            self._tell(Reason.CERTIFICATE_UNUSABLE, self._complaint)

    # --- the leaf and the bundle ----------------------------------------------------------------------------------
    def _leaf_is_due(self, found: Authority) -> bool:
        now = self._clock()
        if self._leaf is None or certificates.due(self._leaf.certificate, now):
            return True
        _, since = self._published
        return not found.has_signed(self._leaf) and now - since >= SETTLE

    def _renew(self, found: Authority) -> None:
        self._leaf = certificates.new_leaf(found.ca, self._hosts, self._clock())
        self._present(self._leaf)
        log.info("leaf renewed", until=self._leaf.certificate.not_valid_after_utc.isoformat())

    async def _publish(self, found: Authority) -> None:
        now = self._clock()
        self._ours.update(found.trusted)
        others = self._strangers.lingering(await self._trusted(), self._ours, now)
        bundle = found.bundle(now)
        await self._publisher.publish(bundle + certificates.pem(others))
        if self._published[0] != bundle:
            self._published = bundle, now
            log.info("caBundle published", authorities=len(certificates.read_bundle(bundle)))

    async def _conclude(self, found: Authority) -> None:
        """Confirm that we serve a leaf of the CA; once every replica does, trust none before it."""
        if not found.before or self._leaf is None or not found.has_signed(self._leaf):
            return
        now = self._clock()
        if self._replica and ca.note(self._replica) not in found.confirmed:
            change = ca.confirming(found, self._replica)
            secret = await self._client.patch(SECRETS, self._secret, change, field_manager=names.CA_FIELD_MANAGER)
            found = ca.read(secret, now) or found
            log.info("new CA confirmed", replica=self._replica)
        if not found.has_signed(self._leaf) or not found.outlives(await self._standing(), now):
            return
        try:
            await self._client.patch(SECRETS, self._secret, ca.concluding(found, now))
        except Conflict:
            return  # somebody has confirmed, or concluded, meanwhile: seen at the next look
        log.info("old CA withdrawn", authorities=len(found.before))
        self._tell(
            Reason.CERTIFICATE_RENEWED,
            "every replica serves a certificate of the new CA; the old one is trusted no longer",
        )
        await self._publish(Authority(found.ca))

    # --- the CA Secret --------------------------------------------------------------------------------------------
    async def _authority(self) -> Authority:
        for _ in range(_ATTEMPTS):
            try:
                found = await self._found_or_made()
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: take what it has written
            telemetry.CERTIFICATE_EXPIRY.labels("ca").set(found.ca.certificate.not_valid_after_utc.timestamp())
            return found
        raise ApiError(409, "Conflict", f"Secret {self._secret} changed {_ATTEMPTS} times while it was being renewed")

    async def _found_or_made(self) -> Authority:
        now = self._clock()
        try:
            secret = await self._client.get(SECRETS, self._secret)
        except NotFound:
            new = ca.renewed(await self._trusted(), now)
            await self._client.create(SECRETS, self._secret, ca.made(new, now))
            self._say("CA created", "there was no Secret")
            return new
        found = ca.read(secret, now)
        if found is not None and not found.is_due(now):
            return found
        new = ca.renewed(await self._trusted() if found is None else found.trusted, now)
        await self._client.patch(SECRETS, self._secret, ca.replacing(new, secret, now))
        if found is None:
            self._say("CA renewed", "the Secret held none that can be used")
        else:
            self._say("CA renewed", "asked for by annotation" if found.asked else "two thirds of its life were over")
        return new

    def _say(self, what: str, why: str) -> None:
        log.info(what, secret=self._secret, why=why)
        self._tell(Reason.CERTIFICATE_RENEWED, f"{what}: {why}")

    async def _trusted(self) -> Sequence[x509.Certificate]:
        """What the API server trusts now: replicas serve leaves of that, though the Secret has lost it."""
        try:
            return certificates.read_bundle(await self._publisher.published())
        except NotFound:  # no configuration: nobody asks yet
            return ()
