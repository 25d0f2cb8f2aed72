"""``caBundle`` of the two webhook configurations: what the API server trusts, and two ways to inject it."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography import x509

from kavip import names
from kavip.admission import registration
from kavip.api.registration import WebhookConfiguration
from kavip.errors import Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from kavip.pki.trustbundle import parse_bundle

CONFIGURATIONS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


class Publisher(Protocol):
    """Makes the API server trust a bundle."""

    async def published(self) -> list[x509.Certificate]:
        """The CAs that the API server trusts now."""

    async def publish(self, bundle: bytes) -> None:
        """Write *bundle* into every webhook."""


@dataclass(frozen=True, slots=True)
class CABundleInjector:
    """Injects ``caBundle`` into the webhook configurations called *name*, which the chart has installed."""

    client: Client
    name: str

    async def published(self) -> list[x509.Certificate]:
        """The CAs that every webhook trusts; none without the configurations."""
        with suppress(NotFound):
            return await read_ca_bundle(self.client, self.name)
        return []

    async def publish(self, bundle: bytes) -> None:
        """Apply the field if it differs, then release the ownership of it."""
        text, wanted = b64encode(bundle).decode(), {*parse_bundle(bundle)}
        for resource in CONFIGURATIONS:
            found = await self.client.get(resource, self.name)
            webhooks = found.webhooks or ()
            current = {webhook.client_config.ca_bundle for webhook in webhooks}
            if any({*_decoded(each)} != wanted for each in current):  # the order does not matter
                body = {
                    "webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in webhooks]
                }
                manager = names.CA_FIELD_MANAGER
                found = await self.client.apply(resource, self.name, body, field_manager=manager, force=True)
            await self._release_ownership(resource, found)

    async def _release_ownership(self, resource: Resource[WebhookConfiguration], found: WebhookConfiguration) -> None:
        """
        Remove kavip's entry from ``managedFields``: ``helm upgrade`` keeps a field without an owner.

        If kavip stayed the owner and another version of the chart removed a webhook, the webhook would remain with
        ``caBundle`` alone. The API server rejects such a webhook, so neither that upgrade nor a rollback would succeed.
        """
        entries = found.metadata.managed_fields or []
        kept = [each for each in entries if each.get("manager") != names.CA_FIELD_MANAGER]
        if len(kept) in (0, len(entries)):
            return
        body = {"metadata": {"resourceVersion": found.metadata.resource_version, "managedFields": kept}}
        with suppress(Conflict):  # another replica has written it; the next reconcile reads it again
            await self.client.patch(resource, self.name, body)


@dataclass(frozen=True, slots=True)
class WebhookRegistrar:
    """Writes both webhook configurations completely: kavip runs outside the cluster, and has a URL."""

    client: Client
    name: str
    client_config: registration.URLClientConfig
    namespace: str
    options: registration.RegistrationOptions = registration.DEFAULTS

    async def published(self) -> list[x509.Certificate]:
        """The CAs that every webhook trusts; none without the configurations."""
        with suppress(NotFound):
            return await read_ca_bundle(self.client, self.name)
        return []

    async def publish(self, bundle: bytes) -> None:
        """Apply both configurations; without a difference the API server writes nothing."""
        text = b64encode(bundle).decode()
        wanted = registration.configurations(
            self.name, self.client_config, namespace=self.namespace, ca_bundle=text, options=self.options
        )
        for resource, body in zip(CONFIGURATIONS, wanted, strict=True):
            await self.client.apply(resource, self.name, body, force=True)


async def read_ca_bundle(client: Client, name: str) -> list[x509.Certificate]:
    """The CAs that every webhook of the configurations called *name* trusts; raises :class:`NotFound`."""
    texts = [
        webhook.client_config.ca_bundle
        for resource in CONFIGURATIONS
        for webhook in (await client.get(resource, name)).webhooks or ()
    ]
    first, *rest = [_decoded(text) for text in dict.fromkeys(texts)] or [[]]
    return [each for each in first if all(each in other for other in rest)]


def _decoded(text: str) -> list[x509.Certificate]:
    try:
        return parse_bundle(b64decode(text))
    except NotBase64:
        return []
