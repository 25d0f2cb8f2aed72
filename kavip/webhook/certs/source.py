"""The certificate source for the ``certs_mode`` of the settings."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import urlsplit

from kavip import names
from kavip.admission import registration
from kavip.api.cluster import Secret
from kavip.api.event import Note, ObjectReference
from kavip.api.slice import EndpointSlice
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.resources import ENDPOINT_SLICES, SECRETS
from kavip.names import Reason
from kavip.pki.certificates import KeyPair
from kavip.settings import Settings
from kavip.webhook.certs import olm
from kavip.webhook.certs.cabundle import (
    CABundleConfigMap,
    CABundleInjector,
    Publisher,
    installed_trust,
    registered_trust,
)
from kavip.webhook.certs.provided import InjectedTrust, ProvidedCertificates, PublishedTrust, TrustManager
from kavip.webhook.certs.registrar import ReadSlices, ServiceEndpoints, WebhookRegistrar
from kavip.webhook.certs.selfsigned import DynamicAuthority, EmitEvent, no_replicas
from kavip.webhook.certs.watch import CertificateWatch

REPORTER: Final = f"{names.KAVIP_GROUP}/webhook"
REMEDIES: Final = {
    "provided": "write tls.crt, tls.key and ca.crt for {host} into it",
    "cert-manager": "ask cert-manager: kubectl describe certificate kavip-webhook --namespace {namespace}",
    "service-ca": "ask OpenShift: kubectl describe service {service} --namespace {namespace}",
}


class CertificateManager(Protocol):
    """Keeps a valid certificate served."""

    def unready(self) -> str:
        """Why the API server would not accept the served certificate; "" if it would."""

    async def run(self) -> None:
        """Reconcile until cancelled."""


@dataclass(frozen=True, slots=True)
class CertificateSource:
    """A certificate manager with the watch that wakes it and the Events that it emits; all three must run."""

    manager: CertificateManager
    watch: CertificateWatch[Secret]
    events: Events


def certificate_source(
    client: Client, settings: Settings, serve: Callable[[KeyPair], None], *, publishes: bool = True
) -> CertificateSource:
    """
    The source for *settings*; *serve* receives each new certificate.

    It *publishes* ``caBundle`` itself, or hands the bundle to the controller (:func:`hands_over`).
    """
    mode = settings.certs_mode
    secret = f"{settings.namespace}/{names.CA_SECRET_NAME if mode == 'self' else settings.certs_secret}"
    watch = CertificateWatch(client, SECRETS, secret, configuration=settings.webhook_configuration)
    publisher = publisher_of(client, settings) if publishes else _handover(client, settings)
    events = Events(client, reporter=REPORTER, instance=settings.replica)
    emit_event, hosts = _event_emitter(events, secret), _hosts(settings)
    manager: CertificateManager
    if mode == "self":
        manager = DynamicAuthority(
            client,
            namespace=settings.namespace,
            hosts=hosts,
            serve=serve,
            publisher=publisher,
            replica=settings.replica,
            replicas=no_replicas if settings.webhook_url else _replicas(client, settings),
            emit_event=emit_event,
            wait=watch.wait,
        )
    else:
        trust: TrustManager = InjectedTrust(client, settings.webhook_configuration)
        if mode == "provided":
            trust = PublishedTrust(publisher)
        values = {"host": hosts[0], "namespace": settings.namespace, "service": settings.webhook_service}
        manager = ProvidedCertificates(
            watch.source,
            secret=secret,
            host=hosts[0],
            remedy=REMEDIES[mode].format_map(values),
            serve=serve,
            trust=trust,
            emit_event=emit_event,
            wait=watch.wait,
        )
    return CertificateSource(manager, watch, events)


def hands_over(settings: Settings) -> bool:
    """
    Whether a webhook that runs without a controller hands its bundle to the controller, which injects it.

    Not with a webhook URL, because such a webhook registers itself; and not if another program injects ``caBundle``.
    """
    return not settings.webhook_url and settings.certs_mode in ("self", "provided")


def _handover(client: Client, settings: Settings) -> Publisher:
    key = f"{settings.namespace}/{names.CA_CONFIGMAP_NAME}"
    read_trust = registered_trust if settings.olm_owner else installed_trust
    return CABundleConfigMap(client, key, settings.webhook_configuration, read_trust)


def publisher_of(client: Client, settings: Settings) -> Publisher:
    """How kavip makes the API server trust a bundle."""
    name, namespace = settings.webhook_configuration, settings.namespace
    options = registration.RegistrationOptions(external_ips=settings.external_ips_scope)
    client_config: registration.ClientConfig
    if settings.webhook_url:
        client_config = registration.URLClientConfig(settings.webhook_url)
        return WebhookRegistrar(client, name, client_config, namespace, options)
    if settings.olm_owner:
        client_config = registration.ServiceClientConfig(namespace, settings.webhook_service)
        labels = olm.owner_labels(settings.olm_owner, namespace)
        options = replace(options, services_only=True)
        endpoints = ServiceEndpoints(_slices(client, settings))
        return WebhookRegistrar(client, name, client_config, namespace, options, labels=labels, endpoints=endpoints)
    return CABundleInjector(client, name)


def _hosts(settings: Settings) -> Sequence[str]:
    """The names in the certificate; the API server uses the first."""
    if settings.webhook_url:
        return [urlsplit(settings.webhook_url).hostname or ""]
    service = f"{settings.webhook_service}.{settings.namespace}.svc"
    return [service, f"{service}.cluster.local"]


def _replicas(client: Client, settings: Settings) -> Callable[[], Awaitable[frozenset[str]]]:
    """The pods behind the webhook's Service, ready or not: the API server may still use a terminating one."""
    read_slices = _slices(client, settings)

    async def read() -> frozenset[str]:
        return frozenset(endpoint.target_ref.name for each in await read_slices() for endpoint in each.endpoints or ())

    return read


def _slices(client: Client, settings: Settings) -> ReadSlices:
    """The EndpointSlices of the webhook's Service."""

    async def read() -> Sequence[EndpointSlice]:
        label = f"{names.SERVICE_NAME_LABEL}={settings.webhook_service}"
        slices, _ = await client.list(ENDPOINT_SLICES, namespace=settings.namespace, labels=label)
        return slices

    return read


def _event_emitter(events: Events, secret: str) -> EmitEvent:
    namespace, _, name = secret.partition("/")
    regarding = ObjectReference(api_version="v1", kind=names.SECRET, namespace=namespace, name=name)

    def emit(reason: Reason, text: str) -> None:
        note = Note(regarding, reason, text, action="ServeCertificate")
        events.emit(replace(note, severity="Warning") if reason is Reason.CERTIFICATE_UNUSABLE else note)

    return emit
