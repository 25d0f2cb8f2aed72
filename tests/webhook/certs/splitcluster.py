"""A fake API server for replicas that hand their bundle to a controller, and the controller's CA injector."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec

from kavip import names
from kavip.api.registration import ClientConfig, Webhook, WebhookConfiguration
from kavip.api.workload import ConfigMap
from kavip.errors import AlreadyExists, Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import CA_CONFIGMAPS, SECRETS
from kavip.names import Reason
from kavip.webhook.certs.cabundle import CABundleConfigMap, CABundleInjector, Publisher, installed_trust
from kavip.webhook.certs.cainjector import CAInjector
from tests.webhook.certs.replicas import NOW, OneSecret, Replica

KEY = f"kavip/{names.CA_CONFIGMAP_NAME}"


class SplitCluster(OneSecret):
    """A Secret, a ConfigMap with the bundle, webhook configurations, and a controller."""

    def __init__(self) -> None:
        """A controller runs, and has nothing to do yet."""
        super().__init__()
        self.configmap: ConfigMap | None = None
        self.has_controller = True
        self.now = NOW
        self.events: list[tuple[Reason, str]] = []
        self._configmap_version = 0
        self.restart_controller()

    def restart_controller(self) -> None:
        """Another replica of the controller leads from now on."""
        self.injector = CAInjector(
            self.data,
            CABundleInjector(cast(Client, self), "kavip"),
            key=KEY,
            emit_event=lambda reason, text: self.events.append((reason, text)),
            clock=lambda: self.now,
        )

    def publisher_of(self, _replica: Replica) -> Publisher:
        """It hands the bundle over."""
        return CABundleConfigMap(cast(Client, self), KEY, "kavip", installed_trust)

    async def run_controller(self, now: datetime) -> bool:
        """Let the controller reconcile at *now*."""
        self.now = max(self.now, now)
        if self.has_controller:
            await self.injector.reconcile()
        return self.has_controller

    def data(self) -> Mapping[str, str] | None:
        """The data of the ConfigMap."""
        return None if self.configmap is None else self.configmap.data or {}

    def text(self) -> str | None:
        """The bundle in the ConfigMap."""
        return None if self.configmap is None else (self.data() or {}).get(names.CA_BUNDLE_KEY, "")

    def write(self, text: str, **others: str) -> None:
        """Write the ConfigMap, as a user may."""
        self._store_configmap({names.CA_BUNDLE_KEY: text, **others})

    # --- the API ------------------------------------------------------------------------------------------------------
    async def get(self, resource: Any, key: str) -> Any:
        """Read an object."""
        if resource is SECRETS:
            return await super().get(resource, key)
        await asyncio.sleep(0)
        if resource is not CA_CONFIGMAPS:
            return self._configuration()
        if self.configmap is None:
            raise NotFound(404, "NotFound", "no ConfigMap")
        return self.configmap

    async def create(self, resource: Any, key: str, body: Mapping[str, Any]) -> Any:
        """Create the Secret or the ConfigMap."""
        if resource is SECRETS:
            return await super().create(resource, key, body)
        await asyncio.sleep(0)
        if self.configmap is not None:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        return self._store_configmap(body["data"])

    async def patch(self, resource: Any, key: str, body: Mapping[str, Any], *, field_manager: str = "kavip") -> Any:
        """Merge *body* into the Secret or the ConfigMap."""
        if resource is SECRETS:
            return await super().patch(resource, key, body, field_manager=field_manager)
        await asyncio.sleep(0)
        if self.configmap is None:
            raise NotFound(404, "NotFound", "no ConfigMap")
        if body["metadata"]["resourceVersion"] != self.configmap.metadata.resource_version:
            self.calls["conflict"] += 1
            raise Conflict(409, "Conflict", "it has changed")
        return self._store_configmap({**(self.configmap.data or {}), **body["data"]})

    async def apply(self, _resource: Any, _name: str, body: Mapping[str, Any], **_: Any) -> WebhookConfiguration:
        """Write caBundle; both configurations share it."""
        self.trusted = b64decode(body["webhooks"][0]["clientConfig"]["caBundle"])
        self.calls["inject"] += 1
        return self._configuration()

    def _configuration(self) -> WebhookConfiguration:
        return WebhookConfiguration(
            webhooks=[Webhook(name="one", client_config=ClientConfig(ca_bundle=b64encode(self.trusted).decode()))]
        )

    def _store_configmap(self, data: Mapping[str, str | None]) -> ConfigMap:
        self._configmap_version += 1
        body = {
            "metadata": {"resourceVersion": str(self._configmap_version)},
            "data": {key: value for key, value in data.items() if value is not None},
        }
        self.configmap = msgspec.convert(body, ConfigMap)
        return self.configmap
