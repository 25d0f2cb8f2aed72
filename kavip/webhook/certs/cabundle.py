"""
``caBundle`` of the two webhook configurations: what the API server trusts, and two ways to publish it.

The third way is to write the configurations completely (:mod:`.registrar`).
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography import x509

from kavip import names
from kavip.api.registration import WebhookConfiguration
from kavip.api.workload import ConfigMap
from kavip.errors import AlreadyExists, ApiError, BadInput, Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import CA_CONFIGMAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from kavip.pki import cabundleconfigmap
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import encode_pem, parse_bundle

CONFIGURATIONS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
_ATTEMPTS: Final = 5

Merge = Callable[[Sequence[x509.Certificate]], Sequence[x509.Certificate]]
"""Returns the CAs to publish, by those that are published now."""
ReadTrust = Callable[[Client, str], Awaitable[Trust]]
"""Reads what the webhook configurations with a name trust."""


class Publisher(Protocol):
    """Makes the API server trust a bundle."""

    @property
    def awaited(self) -> str:
        """What must happen after :meth:`publish` until the API server trusts the bundle; "" if nothing must."""

    async def published(self) -> list[x509.Certificate]:
        """The CAs that the API server trusts now, or soon."""

    async def publish(self, merge: Merge) -> Trust:
        """Replace the published CAs by what *merge* returns; return what the API server trusts now."""


@dataclass(frozen=True, slots=True)
class CABundleInjector:
    """Injects ``caBundle`` into the webhook configurations called *name*, which the chart has installed."""

    client: Client
    name: str

    @property
    def awaited(self) -> str:
        """Nothing: the API server trusts what is injected."""
        return ""

    async def published(self) -> list[x509.Certificate]:
        """The CAs that every webhook trusts; none without the configurations."""
        return list((await installed_trust(self.client, self.name)).cas)

    async def publish(self, merge: Merge) -> Trust:
        """Apply the field if it differs, then release the ownership of it."""
        wanted = list(merge(await self.published()))
        text = b64encode(encode_pem(wanted)).decode()
        for resource in CONFIGURATIONS:
            found = await self.client.get(resource, self.name)
            webhooks = found.webhooks or ()
            current = {webhook.client_config.ca_bundle for webhook in webhooks}
            if any({*_decoded(each)} != {*wanted} for each in current):  # the order does not matter
                body = {
                    "webhooks": [{"name": webhook.name, "clientConfig": {"caBundle": text}} for webhook in webhooks]
                }
                manager = names.CA_FIELD_MANAGER
                found = await self.client.apply(resource, self.name, body, field_manager=manager, force=True)
            await self._release_ownership(resource, found)
        return Trust(wanted)

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
class CABundleConfigMap:
    """
    Hands the bundle to the controller, in the ConfigMap *key*, because this account cannot write the configurations.

    The controller's leader injects it into the configurations called *name* (:mod:`.cainjector`). CAs that the bundle
    no longer has are recorded as dropped until that is done. A write is refused if another replica has written the
    ConfigMap meanwhile. Then it is merged again, so that no CA is lost.
    """

    client: Client
    key: str
    name: str
    read_trust: ReadTrust

    @property
    def awaited(self) -> str:
        """The controller."""
        return f"the leader of the controller has not injected ConfigMap {self.key}; see its log"

    async def published(self) -> list[x509.Certificate]:
        """The CAs that every webhook trusts, and those of the ConfigMap."""
        handed_over = _cas(await self._read())
        return list(dict.fromkeys([*handed_over, *(await self.read_trust(self.client, self.name)).cas]))

    async def publish(self, merge: Merge) -> Trust:
        """Write the ConfigMap if it differs; return what the webhooks trust."""
        for _ in range(_ATTEMPTS):
            found = await self._read()
            handed_over, trust = _cas(found), await self.read_trust(self.client, self.name)
            wanted = merge(handed_over or trust.cas)
            data = {names.CA_BUNDLE_KEY: cabundleconfigmap.encode(wanted)}
            had = {*handed_over, *_dropped_cas(found)} - {*wanted}
            if dropped := [each for each in trust.cas if each in had]:
                data[names.DROPPED_CAS_KEY] = cabundleconfigmap.encode(dropped)
            if found is not None and found.data == data:
                return trust
            with suppress(AlreadyExists, Conflict, NotFound):  # another writer was faster: merge again
                await self._write(found, data)
        raise ApiError(409, "Conflict", f"ConfigMap {self.key} changed {_ATTEMPTS} times while it was being written")

    async def _read(self) -> ConfigMap | None:
        with suppress(NotFound):
            return await self.client.get(CA_CONFIGMAPS, self.key)
        return None

    async def _write(self, found: ConfigMap | None, data: Mapping[str, str]) -> None:
        if found is None:
            await self.client.create(CA_CONFIGMAPS, self.key, {"data": data})
            return
        others = dict.fromkeys({*(found.data or ())} - {*data})
        version = {"resourceVersion": found.metadata.resource_version}
        await self.client.patch(CA_CONFIGMAPS, self.key, {"metadata": version, "data": {**others, **data}})


async def read_ca_bundle(client: Client, name: str) -> list[x509.Certificate]:
    """The CAs that every webhook of the configurations called *name* trusts; raises :class:`NotFound`."""
    return _common_cas([await client.get(resource, name) for resource in CONFIGURATIONS])


async def installed_trust(client: Client, name: str) -> Trust:
    """What both configurations called *name* trust, which the chart has installed; no CA if one is missing."""
    with suppress(NotFound):
        return Trust(await read_ca_bundle(client, name))
    return Trust(())


async def registered_trust(client: Client, name: str) -> Trust:
    """What those configurations called *name* trust that kavip has registered already."""
    return trust_of(await existing(client, name))


async def existing(client: Client, name: str) -> dict[Resource[WebhookConfiguration], WebhookConfiguration]:
    """Those of the two configurations called *name* that exist."""
    found = {}
    for resource in CONFIGURATIONS:
        with suppress(NotFound):
            found[resource] = await client.get(resource, name)
    return found


def trust_of(found: Mapping[Resource[WebhookConfiguration], WebhookConfiguration]) -> Trust:
    """What the *found* configurations trust; without any no webhook is registered."""
    return Trust(_common_cas(found.values()), is_registered=bool(found))


def _common_cas(configurations: Iterable[WebhookConfiguration]) -> list[x509.Certificate]:
    """The CAs that every webhook of *configurations* trusts."""
    texts = [webhook.client_config.ca_bundle for each in configurations for webhook in each.webhooks or ()]
    first, *rest = [_decoded(text) for text in dict.fromkeys(texts)] or [[]]
    return [each for each in first if all(each in other for other in rest)]


def _cas(configmap: ConfigMap | None) -> list[x509.Certificate]:
    """The CAs to trust in *configmap*; none if it has anything else."""
    with suppress(BadInput):
        return cabundleconfigmap.decode(_data(configmap).get(names.CA_BUNDLE_KEY, ""))
    return []


def _dropped_cas(configmap: ConfigMap | None) -> list[x509.Certificate]:
    """The dropped CAs in *configmap*; none if it has anything else."""
    with suppress(BadInput):
        return cabundleconfigmap.decode_dropped(_data(configmap))
    return []


def _data(configmap: ConfigMap | None) -> Mapping[str, str]:
    return (configmap.data if configmap else None) or {}


def _decoded(text: str) -> list[x509.Certificate]:
    try:
        return parse_bundle(b64decode(text))
    except NotBase64:
        return []
