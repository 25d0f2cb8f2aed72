"""
The CA injector of the controller: copies the trust bundle of the webhook from its ConfigMap into ``caBundle``.

It is for a webhook whose account cannot write the webhook configurations (:class:`.cabundle.CABundleConfigMap`). It
runs on the leader, after a change and every :data:`RECONCILE_SECONDS`. A ConfigMap that is missing or malformed changes
nothing. A CA that the ConfigMap neither has nor had stays for a while: it may belong to replicas that inject
``caBundle`` themselves, which an upgrade or a rollback replaces.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog
from cryptography import x509

from kavip import names
from kavip.api.event import Note, ObjectReference
from kavip.errors import BadInput, KavipError, LeaseLost
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import CA_CONFIGMAPS
from kavip.names import Reason
from kavip.pki import cabundleconfigmap
from kavip.pki.trustbundle import UnknownCAs
from kavip.settings import Settings
from kavip.webhook.certs.cabundle import Publisher
from kavip.webhook.certs.selfsigned import RECONCILE_SECONDS, RETRY_SECONDS, Clock, EmitEvent, Wait
from kavip.webhook.certs.source import publisher_of
from kavip.webhook.certs.watch import CertificateWatch

REPORTER: Final = f"{names.KAVIP_GROUP}/controller"

log: Final = structlog.get_logger(__name__)


class CAInjector:
    """Publishes the CAs in the data that *read* returns by *publisher*."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, str] | None],
        publisher: Publisher,
        *,
        key: str,
        emit_event: EmitEvent,
        wait: Wait = asyncio.sleep,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        """*read* returns the data of the ConfigMap *key*; None if there is no ConfigMap, or none is known yet."""
        self._read, self._publisher, self._key = read, publisher, key
        self._emit_event, self._wait, self._clock = emit_event, wait, clock
        self._unknown_cas, self._problem, self._was_registered = UnknownCAs(), "", True

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            seconds = RECONCILE_SECONDS
            try:
                if not await self.reconcile():
                    seconds = RETRY_SECONDS
                self._problem = ""
            except LeaseLost:
                pass  # the term ends
            except BadInput as error:
                self._report(f"ConfigMap {self._key}: {error}", Reason.CERTIFICATE_UNUSABLE)
            except KavipError as error:
                self._report(str(error))
                seconds = RETRY_SECONDS
            await self._wait(seconds)

    async def reconcile(self) -> bool:
        """
        Inject what the ConfigMap has; raises :class:`BadInput` if it has anything but CAs.

        Returns whether it is done: webhooks that kavip registers may have to wait.
        """
        if (data := self._read()) is None:
            return True
        cas = cabundleconfigmap.decode(data.get(names.CA_BUNDLE_KEY, ""))
        known = {*cas, *cabundleconfigmap.decode_dropped(data)}

        before: set[x509.Certificate] = set()

        def merged(published: Sequence[x509.Certificate]) -> list[x509.Certificate]:
            before.update(published)
            others = self._unknown_cas.retained(published, known, self._clock())
            return cabundleconfigmap.fitting([*cas, *others])

        trust = await self._publisher.publish(merged)
        if {*trust.cas} != before:
            log.info("caBundle injected", authorities=len(trust.cas))
        if self._was_registered and not trust.is_registered:
            log.info("webhooks not registered yet", awaited=self._publisher.awaited)
        self._was_registered = trust.is_registered
        return trust.is_registered

    def _report(self, problem: str, reason: Reason | None = None) -> None:
        """Log a new problem, and emit an Event for *reason*."""
        if problem == self._problem:
            return
        self._problem = problem
        log.warning("caBundle not injected", error=problem)
        if reason:
            self._emit_event(reason, problem)


async def inject(client: Client, settings: Settings) -> None:
    """Watch the ConfigMap and the webhook configurations, and inject, until cancelled; *client* is the leader's."""
    key = f"{settings.namespace}/{names.CA_CONFIGMAP_NAME}"
    watch = CertificateWatch(client, CA_CONFIGMAPS, key, configuration=settings.webhook_configuration)
    events = Events(client, reporter=REPORTER, instance=settings.replica)

    def read() -> Mapping[str, str] | None:
        found = watch.source()
        return None if isinstance(found, str) else found.data or {}

    def emit_event(reason: Reason, text: str) -> None:
        about = ObjectReference(
            api_version="v1", kind=names.CONFIG_MAP, namespace=settings.namespace, name=names.CA_CONFIGMAP_NAME
        )
        events.emit(Note(about, reason, text, action="InjectCABundle", severity="Warning"))

    injector = CAInjector(read, publisher_of(client, settings), key=key, emit_event=emit_event, wait=watch.wait)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run(), name="CA injector watch")
        tasks.create_task(events.run(), name="CA injector events")
        tasks.create_task(injector.run(), name="CA injector")
