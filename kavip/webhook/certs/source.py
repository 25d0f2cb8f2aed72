"""How the webhook comes to its certificate: as ``certs_mode`` says."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import urlsplit

from kavip import names
from kavip.admission import registration
from kavip.api.event import Note, ObjectReference
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import ENDPOINT_SLICES
from kavip.names import Reason
from kavip.pki.certificates import Pair
from kavip.settings import Settings
from kavip.webhook.certs.cabundle import Injected, Publisher, Registered
from kavip.webhook.certs.provided import Awaited, Provided, Published, Trust
from kavip.webhook.certs.selfsigned import Rotation, Tell, nobody
from kavip.webhook.certs.watch import Lookout

REPORTER: Final = f"{names.KAVIP_GROUP}/webhook"
REMEDIES: Final = {
    "provided": "write tls.crt, tls.key and ca.crt for {host} into it",
    "cert-manager": "ask cert-manager: kubectl describe certificate kavip-webhook --namespace {namespace}",
    "service-ca": "ask OpenShift: kubectl describe service {service} --namespace {namespace}",
}


class Work(Protocol):
    """What keeps the certificate."""

    def unready(self) -> str:
        """Why no API server would accept it; "" when all is well."""

    async def run(self) -> None:
        """Keep it, for ever."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """What has to run, and what to ask."""

    work: Work
    lookout: Lookout
    events: Events


def keeper(client: Client, settings: Settings, present: Callable[[Pair], None]) -> Keeper:
    """The keeper that *settings* ask for; *present* takes each certificate."""
    mode = settings.certs_mode
    secret = f"{settings.namespace}/{names.CA_SECRET_NAME if mode == 'self' else settings.certs_secret}"
    lookout = Lookout(client, secret=secret, configuration=settings.webhook_configuration)
    events = Events(client, reporter=REPORTER, instance=settings.replica)
    tell = _told(events, secret)
    hosts = _hosts(settings)
    work: Work
    if mode == "self":
        work = Rotation(
            client,
            namespace=settings.namespace,
            hosts=hosts,
            present=present,
            publisher=_publisher(client, settings),
            replica=settings.replica,
            standing=nobody if settings.webhook_url else _standing(client, settings),
            tell=tell,
            pause=lookout.pause,
        )
    else:
        trust: Trust = Awaited(client, settings.webhook_configuration)
        if mode == "provided":
            trust = Published(_publisher(client, settings))
        named = {"host": hosts[0], "namespace": settings.namespace, "service": settings.webhook_service}
        work = Provided(
            lookout.secret,
            secret=secret,
            host=hosts[0],
            remedy=REMEDIES[mode].format_map(named),
            present=present,
            trust=trust,
            tell=tell,
            pause=lookout.pause,
        )
    return Keeper(work, lookout, events)


def _publisher(client: Client, settings: Settings) -> Publisher:
    if not settings.webhook_url:
        return Injected(client, settings.webhook_configuration)
    reached = registration.URLClientConfig(settings.webhook_url)
    options = registration.RegistrationOptions(external_ips=settings.external_ips_scope)
    return Registered(client, settings.webhook_configuration, reached, settings.namespace, options)


def _hosts(settings: Settings) -> Sequence[str]:
    """The names that the certificate is for; the API server uses the first."""
    if settings.webhook_url:
        return [urlsplit(settings.webhook_url).hostname or ""]
    service = f"{settings.webhook_service}.{settings.namespace}.svc"
    return [service, f"{service}.cluster.local"]


def _standing(client: Client, settings: Settings) -> Callable[[], Awaitable[frozenset[str]]]:
    """Who stands behind the webhook's Service, ready or not: those that end may still be asked."""

    async def asked() -> frozenset[str]:
        label = f"{names.SERVICE_NAME_LABEL}={settings.webhook_service}"
        slices, _ = await client.list(ENDPOINT_SLICES, namespace=settings.namespace, labels=label)
        return frozenset(endpoint.target_ref.name for each in slices for endpoint in each.endpoints or ())

    return asked


def _told(events: Events, secret: str) -> Tell:
    namespace, _, name = secret.partition("/")
    about = ObjectReference(api_version="v1", kind=names.SECRET, namespace=namespace, name=name)

    def tell(reason: Reason, text: str) -> None:
        note = Note(about, reason, text, action="ServeCertificate")
        events.emit(replace(note, severity="Warning") if reason is Reason.CERTIFICATE_UNUSABLE else note)

    return tell
