"""
The other modes of ``certs.mode``: somebody else makes the certificate, and puts it into a Secret.

The Secret is followed by a watch. A certificate that is good is served from the next connection on; of one that is not,
the reason is told, and the last good one goes on being served. Until there is a first good one kavip is not ready.

A good certificate whose CA the API server does not know yet waits until it does, as long as the one before it is still
trusted: so nobody is cut off, whoever writes ``caBundle``. With ``provided`` that is kavip, from the Secret's
``ca.crt``, old and new side by side for a while; else somebody injects it, and kavip only looks.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog
from cryptography import x509

from kavip import telemetry
from kavip.api.cluster import Secret
from kavip.errors import KavipError, NotFound, Throttled, Unavailable
from kavip.kube.client import Client
from kavip.names import Reason
from kavip.pki import candidate, certificates
from kavip.pki.candidate import Candidate
from kavip.pki.certificates import Pair
from kavip.pki.strangers import Strangers
from kavip.webhook.certs import tls
from kavip.webhook.certs.cabundle import Publisher, trusted
from kavip.webhook.certs.selfsigned import CHECK_EVERY, RETRY_EVERY, SETTLE, Clock, Pause, Tell, silence

log: Final = structlog.get_logger(__name__)


class Trust(Protocol):
    """What the API server trusts, and whether it can come to trust a certificate."""

    def fault(self, found: Candidate) -> str:
        """Why *found* cannot become trusted; "" where it can."""

    async def settle(self, found: Candidate, serving: Pair | None) -> list[x509.Certificate]:
        """See to it that *found* will be trusted, as far as it is ours; what is trusted now."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """Somebody else injects ``caBundle`` into the configurations called *name*."""

    client: Client
    name: str

    def fault(self, _found: Candidate) -> str:
        """Theirs to know."""
        return ""

    async def settle(self, _found: Candidate, _serving: Pair | None) -> list[x509.Certificate]:
        """Look at what they have injected."""
        return certificates.read_bundle(await trusted(self.client, self.name))


class Published:
    """kavip publishes what the Secret says; what was trusted before stays for a while."""

    def __init__(self, publisher: Publisher, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        """Nothing is published yet."""
        self._publisher, self._clock = publisher, clock
        self._strangers = Strangers()

    def fault(self, found: Candidate) -> str:
        """The API server will know no others than those in ``ca.crt``."""
        return candidate.unpublishable(found)

    async def settle(self, found: Candidate, serving: Pair | None) -> list[x509.Certificate]:
        """
        Publish the Secret's authorities, beside what *serving* needs and what came or went a while ago only.

        A replica that sees a change of the Secret late takes nothing away from those that have seen it.
        """
        now, authorities = self._clock(), found.authorities
        published = await self._published()
        needed = [] if serving is None else _lacking(serving, authorities, published)
        others = self._strangers.lingering(published, {*authorities, *needed}, now)
        wanted = [*authorities, *needed, *others]
        await self._publisher.publish(certificates.pem(wanted))
        return wanted

    async def _published(self) -> list[x509.Certificate]:
        try:
            return certificates.read_bundle(await self._publisher.published())
        except NotFound:
            return []


def _lacking(
    serving: Pair, authorities: Sequence[x509.Certificate], others: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """Those *others* without which nobody trusts *serving*."""
    if certificates.vouched(serving, authorities):
        return []
    return [one for one in others if certificates.vouched(serving, [one])]


class Provided:
    """Gives *present* what the Secret called *secret* holds for *host*."""

    def __init__(
        self,
        read: Callable[[], Secret | str],
        *,
        secret: str,
        host: str,
        remedy: str,
        present: Callable[[Pair], None],
        trust: Trust,
        tell: Tell = silence,
        pause: Pause = asyncio.sleep,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """*read* gives the Secret, or says why there is none ("": not known); *remedy*, what to do."""
        self._read, self._secret, self._host, self._remedy = read, secret, host, remedy
        self._present, self._trust, self._tell, self._pause, self._clock = present, trust, tell, pause, clock
        self._serving: Pair | None = None
        self._known: dict[x509.Certificate, datetime] = {}  # what the API server trusts -> since when, as we saw it
        self._was_trusted = False
        self._complaint = ""

    def unready(self) -> str:
        """Say that there is no certificate, or none that the API server accepts; "" when all is well."""
        if self._serving is None:
            return self._complaint or f"Secret {self._secret} is not read yet"
        if ended := certificates.ended(self._serving.certificate, self._clock()):
            return self._complaint or f"Secret {self._secret}: {ended}; {self._remedy}"
        if not self._was_trusted:
            return self._complaint or f"caBundle does not vouch for the certificate yet; {self._remedy}"
        return ""

    async def run(self) -> None:
        """Do what is due, for ever."""
        while True:
            pause = CHECK_EVERY
            try:
                await self.tick()
            except (Unavailable, Throttled) as error:
                self._note(str(error))
                pause = RETRY_EVERY
            except KavipError as error:
                self._complain(str(error))
                pause = RETRY_EVERY
            await self._pause(pause)

    async def tick(self) -> None:
        """Look at the Secret and at what is trusted; a :class:`KavipError` leaves all as it is."""
        secret = self._read()
        if not secret:
            return
        found = secret if isinstance(secret, str) else self._judged(secret)
        if isinstance(found, str):
            self._complain(f"Secret {self._secret}: {found}; {self._remedy}")
            return
        if self._serving is None:
            self._serve(found)
        known, now = await self._trust.settle(found, self._serving), self._clock()
        self._known = {one: self._known.get(one, now) for one in known}
        if found.leaf != self._serving:
            self._succeed(found, now)
        self._was_trusted = self._was_trusted or certificates.vouched(self._serving or found.leaf, known)
        self._complaint = ""

    def _judged(self, secret: Secret) -> Candidate | str:
        found = candidate.judged(secret, self._host, self._clock())
        if isinstance(found, str):
            return found
        fault = self._trust.fault(found)
        if not fault and found.leaf != self._serving:
            fault = tls.complaint(found.leaf)
        return fault or found

    def _succeed(self, found: Candidate, now: datetime) -> None:
        """Serve *found* once API servers have had time to trust it, or where what we serve is worth nothing."""
        settled = [one for one, since in self._known.items() if now - since >= SETTLE]
        if certificates.vouched(found.leaf, settled) or self._is_worthless(now):
            self._serve(found)

    def _is_worthless(self, now: datetime) -> bool:
        serving = self._serving
        return (
            serving is None
            or bool(certificates.ended(serving.certificate, now))
            or not certificates.vouched(serving, self._known)
        )

    def _serve(self, found: Candidate) -> None:
        self._present(found.leaf)
        self._serving = found.leaf
        until = found.leaf.certificate.not_valid_after_utc
        log.info("certificate served", secret=self._secret, until=until.isoformat())
        self._tell(Reason.CERTIFICATE_RENEWED, f"a new certificate is served; it ends at {until:%Y-%m-%dT%H:%M:%SZ}")
        if found.roots:
            last = max(one.not_valid_after_utc for one in found.roots)
            telemetry.CERTIFICATE_EXPIRY.labels("ca").set(last.timestamp())

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:  # once, not at every look
            self._tell(Reason.CERTIFICATE_UNUSABLE, complaint)
        self._note(complaint)

    def _note(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("certificate not settled", error=complaint)
