"""
The other modes of ``certs.mode``: another program writes the certificate into a Secret.

kavip watches the Secret. A valid certificate is served from the next connection on. An invalid one is reported, and the
last valid one is still served. Without any valid one kavip is not ready.

A valid certificate whose CA the API server does not trust yet waits, as long as the API server trusts the served one:
so a renewal never interrupts TLS. With ``provided`` kavip publishes ``caBundle`` itself, from ``ca.crt`` of the Secret,
old and new CA side by side for a while. In the other modes another controller injects it, and kavip only reads it.
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
from kavip.errors import KavipError, Throttled, Unavailable
from kavip.http import tls
from kavip.kube.client import Client
from kavip.names import Reason
from kavip.pki import provided
from kavip.pki.certificates import KeyPair
from kavip.pki.provided import ProvidedCertificate
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import UnknownCAs
from kavip.pki.verification import expiry_error, is_trusted
from kavip.webhook.certs.cabundle import Publisher, read_ca_bundle
from kavip.webhook.certs.selfsigned import (
    PROPAGATION,
    RECONCILE_SECONDS,
    RETRY_SECONDS,
    Clock,
    EmitEvent,
    Wait,
    no_events,
)

log: Final = structlog.get_logger(__name__)


class TrustManager(Protocol):
    """Which CAs the API server trusts, and whether it can come to trust a certificate."""

    @property
    def awaited(self) -> str:
        """What must happen until the API server trusts a valid certificate; "" if the certificate's source does it."""

    def trust_error(self, found: ProvidedCertificate) -> str:
        """Why the API server cannot come to trust *found*; "" if it can."""

    async def ensure(self, found: ProvidedCertificate, served: KeyPair | None) -> Trust:
        """Make the API server trust *found*, if kavip writes ``caBundle``; return what it trusts now."""


@dataclass(frozen=True, slots=True)
class InjectedTrust:
    """Another controller injects ``caBundle`` into the webhook configurations called *name*."""

    client: Client
    name: str

    @property
    def awaited(self) -> str:
        """The other controller is part of the certificate's source."""
        return ""

    def trust_error(self, _found: ProvidedCertificate) -> str:
        """Always acceptable: another controller injects ``caBundle``."""
        return ""

    async def ensure(self, _found: ProvidedCertificate, _served: KeyPair | None) -> Trust:
        """The injected CAs."""
        return Trust(await read_ca_bundle(self.client, self.name))


class PublishedTrust:
    """kavip publishes ``ca.crt`` of the Secret; CAs that were trusted before stay for a while."""

    def __init__(self, publisher: Publisher, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        """Publish by *publisher*."""
        self._publisher, self._clock = publisher, clock
        self._unknown_cas = UnknownCAs()

    @property
    def awaited(self) -> str:
        """What the publisher waits for."""
        return self._publisher.awaited

    def trust_error(self, found: ProvidedCertificate) -> str:
        """The API server will trust the CAs of ``ca.crt`` only."""
        return provided.trust_error(found)

    async def ensure(self, found: ProvidedCertificate, served: KeyPair | None) -> Trust:
        """
        Publish the CAs of the Secret, those that *served* needs, and unknown ones that were seen a short time ago.

        So a replica that sees a change of the Secret late removes nothing that the other replicas need.
        """
        now, cas = self._clock(), found.cas

        def merged(published: Sequence[x509.Certificate]) -> list[x509.Certificate]:
            needed = [] if served is None else _needed_cas(served, cas, published)
            return [*cas, *needed, *self._unknown_cas.retained(published, {*cas, *needed}, now)]

        return await self._publisher.publish(merged)


def _needed_cas(
    served: KeyPair, cas: Sequence[x509.Certificate], published: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """The *published* CAs by which clients trust *served*, if *cas* are not enough."""
    if is_trusted(served, cas):
        return []
    return [each for each in published if is_trusted(served, [each])]


class ProvidedCertificates:
    """Serves the certificate for *host* in the Secret called *secret* by *serve*."""

    def __init__(
        self,
        read: Callable[[], Secret | str],
        *,
        secret: str,
        host: str,
        remedy: str,
        serve: Callable[[KeyPair], None],
        trust: TrustManager,
        emit_event: EmitEvent = no_events,
        wait: Wait = asyncio.sleep,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """*read* returns the Secret, or why there is none, or "" while that is unknown; *remedy*: what to do then."""
        self._read, self._secret, self._host, self._remedy = read, secret, host, remedy
        self._serve, self._trust, self._emit_event, self._wait, self._clock = serve, trust, emit_event, wait, clock
        self._served: KeyPair | None = None
        self._trusted_since: dict[x509.Certificate, datetime] = {}  # the CAs that the API server trusts
        self._was_trusted = self._is_accepted = False
        self._problem = ""

    def unready(self) -> str:
        """Why no certificate is served, or why the API server does not accept it; "" if it does."""
        if self._served is None:
            return self._problem or f"Secret {self._secret} is not read yet"
        if error := expiry_error(self._served.certificate, self._clock()):
            return self._problem or f"Secret {self._secret}: {error}; {self._remedy}"
        if not self._is_accepted:
            awaited = self._trust.awaited or self._remedy
            return self._problem or f"caBundle does not trust the certificate yet; {awaited}"
        return ""

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            seconds = RECONCILE_SECONDS
            try:
                await self.reconcile()
            except (Unavailable, Throttled) as error:
                self._log_problem(str(error))
                seconds = RETRY_SECONDS
            except KavipError as error:
                self._report(str(error))
                seconds = RETRY_SECONDS
            await self._wait(seconds)

    async def reconcile(self) -> None:
        """Read the Secret, ensure trust, and serve a new certificate; a :class:`KavipError` changes nothing."""
        secret = self._read()
        if not secret:
            return
        found = secret if isinstance(secret, str) else self._validate(secret)
        if isinstance(found, str):
            self._report(f"Secret {self._secret}: {found}; {self._remedy}")
            return
        if self._served is None:
            self._start_serving(found)
        trust, now = await self._trust.ensure(found, self._served), self._clock()
        self._trusted_since = {each: self._trusted_since.get(each, now) for each in trust.cas}
        if found.leaf != self._served and self._can_replace(found, now):
            self._start_serving(found)
        leaf = self._served or found.leaf
        self._was_trusted = self._was_trusted or is_trusted(leaf, trust.cas)
        self._is_accepted = self._was_trusted or trust.accepts(leaf)
        self._problem = ""

    def _validate(self, secret: Secret) -> ProvidedCertificate | str:
        found = provided.read_secret(secret, self._host, self._clock())
        if isinstance(found, str):
            return found
        error = self._trust.trust_error(found)
        if not error and found.leaf != self._served:
            error = tls.openssl_error(found.leaf)
        return error or found

    def _can_replace(self, found: ProvidedCertificate, now: datetime) -> bool:
        """Whether API servers have had time to trust *found*, or do not accept the served certificate anyway."""
        settled = [each for each, since in self._trusted_since.items() if now - since >= PROPAGATION]
        served = self._served
        return (
            served is None
            or is_trusted(found.leaf, settled)
            or bool(expiry_error(served.certificate, now))
            or not is_trusted(served, self._trusted_since)
        )

    def _start_serving(self, found: ProvidedCertificate) -> None:
        self._serve(found.leaf)
        self._served = found.leaf
        until = found.leaf.certificate.not_valid_after_utc
        log.info("certificate served", secret=self._secret, until=until.isoformat())
        text = f"a new certificate is served; it expires at {until:%Y-%m-%dT%H:%M:%SZ}"
        self._emit_event(Reason.CERTIFICATE_RENEWED, text)
        if found.issuers:
            last = max(each.not_valid_after_utc for each in found.issuers)
            telemetry.CERTIFICATE_EXPIRY.labels("ca").set(last.timestamp())

    def _report(self, problem: str) -> None:
        """Emit an Event for a new problem, and log it."""
        if problem != self._problem:
            self._emit_event(Reason.CERTIFICATE_UNUSABLE, problem)
        self._log_problem(problem)

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("certificate reconcile failed", error=problem)
