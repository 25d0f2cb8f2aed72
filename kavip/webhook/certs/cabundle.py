"""What the API server trusts: ``caBundle`` in the two webhook configurations, and who writes it."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from kavip import names
from kavip.admission import registration
from kavip.api.registration import WebhookConfiguration
from kavip.errors import Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from kavip.pki import certificates

CONFIGURATIONS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


class Publisher(Protocol):
    """Makes the API server trust a bundle."""

    async def published(self) -> bytes:
        """What the API server trusts now; empty where that is nothing."""

    async def publish(self, bundle: bytes) -> None:
        """See that the webhook configurations carry *bundle*."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Writes ``caBundle`` into the configurations called *name*, which the chart has installed."""

    client: Client
    name: str

    async def published(self) -> bytes:
        """What every webhook carries."""
        return await trusted(self.client, self.name)

    async def publish(self, bundle: bytes) -> None:
        """Apply the one field, where it differs, and own it no longer than that."""
        text, wanted = b64encode(bundle).decode(), {*certificates.read_bundle(bundle)}
        for resource in CONFIGURATIONS:
            found = await self.client.get(resource, self.name)
            hooks = found.webhooks or ()
            carried = {webhook.client_config.ca_bundle for webhook in hooks}
            if any(
                {*certificates.read_bundle(_decoded(each))} != wanted for each in carried
            ):  # the order means nothing
                body = {"webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in hooks]}
                manager = names.CA_FIELD_MANAGER
                found = await self.client.apply(resource, self.name, body, field_manager=manager, force=True)
            await self._disown(resource, found)

    async def _disown(self, resource: Resource[WebhookConfiguration], found: WebhookConfiguration) -> None:
        """
        Give up what was applied: what nobody owns ``helm upgrade`` keeps, and removes together with its webhook.

        Of a webhook that another version of the chart lacks, the field that we owned would stay, and nothing else: the
        API server takes no such webhook, so neither that upgrade nor a rollback could be done.
        """
        claims = found.metadata.managed_fields or []
        kept = [each for each in claims if each.get("manager") != names.CA_FIELD_MANAGER]
        if len(kept) in (0, len(claims)):
            return
        body = {"metadata": {"resourceVersion": found.metadata.resource_version, "managedFields": kept}}
        with suppress(Conflict):  # another replica was faster, or will be asked to look again
            await self.client.patch(resource, self.name, body)


@dataclass(frozen=True, slots=True)
class Registered:
    """Writes the configurations whole: kavip runs outside the cluster, and is reached at a URL."""

    client: Client
    name: str
    reached: registration.URLClientConfig
    namespace: str
    options: registration.RegistrationOptions = registration.DEFAULTS

    async def published(self) -> bytes:
        """What every webhook carries; nothing while there are no configurations."""
        try:
            return await trusted(self.client, self.name)
        except NotFound:
            return b""

    async def publish(self, bundle: bytes) -> None:
        """Apply both configurations; to a server that has them already, that is no write."""
        text = b64encode(bundle).decode()
        wanted = registration.configurations(
            self.name, self.reached, namespace=self.namespace, ca_bundle=text, options=self.options
        )
        for resource, body in zip(CONFIGURATIONS, wanted, strict=True):
            await self.client.apply(resource, self.name, body, force=True)


async def trusted(client: Client, name: str) -> bytes:
    """The certificates that every webhook of the configurations called *name* trusts."""
    texts = [
        webhook.client_config.ca_bundle
        for resource in CONFIGURATIONS
        for webhook in (await client.get(resource, name)).webhooks or ()
    ]
    first, *rest = [_decoded(text) for text in dict.fromkeys(texts)] or [b""]
    if not rest:
        return first
    everywhere = [{*certificates.read_bundle(each)} for each in rest]
    return certificates.pem(one for one in certificates.read_bundle(first) if all(one in each for each in everywhere))


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text)
    except NotBase64:
        return b""
