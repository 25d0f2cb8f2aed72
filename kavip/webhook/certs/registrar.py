"""
Registers the webhooks: writes both webhook configurations completely.

That is for a kavip outside the cluster, which has a URL, and for one that OLM runs. With a Service the API server would
refuse what users write while no pod answers, so a missing configuration waits for an endpoint
(:func:`.registration.is_due`).
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Protocol

from cryptography import x509

from kavip.admission import registration
from kavip.api.slice import EndpointSlice
from kavip.kube.client import Client
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import encode_pem
from kavip.webhook.certs import cabundle
from kavip.webhook.certs.cabundle import CONFIGURATIONS, Merge

ReadSlices = Callable[[], Awaitable[Sequence[EndpointSlice]]]


class Endpoints(Protocol):
    """For how long the webhook has had a ready endpoint while a configuration was missing."""

    async def age(self) -> timedelta | None:
        """For how long; None if it has none."""

    def restart(self) -> None:
        """Count from the next call on: nothing is missing."""


class NoEndpoints:
    """A webhook with a URL has no endpoints to wait for."""

    async def age(self) -> timedelta:
        """For ever."""
        return timedelta.max

    def restart(self) -> None:
        """Nothing is counted."""


class ServiceEndpoints:
    """The endpoints of the webhook's Service, which *read* returns."""

    def __init__(self, read: ReadSlices, *, clock: Callable[[], float] = monotonic) -> None:
        """Read nothing before :meth:`age`. *clock* returns monotonic seconds."""
        self._read, self._clock = read, clock
        self._ready_since: float | None = None

    async def age(self) -> timedelta | None:
        """For how long each call has found a ready endpoint; None if this one finds none."""
        is_ready = any(endpoint.is_ready for each in await self._read() for endpoint in each.endpoints or ())
        now = self._clock()
        if not is_ready:
            self._ready_since = None
        elif self._ready_since is None:
            self._ready_since = now
        return None if self._ready_since is None else timedelta(seconds=now - self._ready_since)

    def restart(self) -> None:
        """
        Count from the next call on.

        OLM deletes the configurations of a version that is uninstalled, perhaps before it takes away the rights of its
        pods. Such a pod must not register webhooks again, which would refuse Services for ever.
        """
        self._ready_since = None


@dataclass(frozen=True, slots=True)
class WebhookRegistrar:
    """Writes both webhook configurations called *name*, for the webhook of a kavip in *namespace*."""

    client: Client
    name: str
    client_config: registration.ClientConfig
    namespace: str
    options: registration.RegistrationOptions = registration.DEFAULTS
    labels: Mapping[str, str] = field(default_factory=dict)
    endpoints: Endpoints = field(default_factory=NoEndpoints)

    @property
    def awaited(self) -> str:
        """A ready endpoint, if the webhook is a Service."""
        match self.client_config:
            case registration.ServiceClientConfig(namespace, name):
                return f"Service {namespace}/{name} has not had a ready endpoint for {registration.SETTLED.seconds} s"
        return ""

    async def published(self) -> list[x509.Certificate]:
        """The CAs that every registered webhook trusts."""
        return list((await cabundle.registered_trust(self.client, self.name)).cas)

    async def publish(self, merge: Merge) -> Trust:
        """Apply what exists, and what is due; without a difference the API server writes nothing."""
        found = await cabundle.existing(self.client, self.name)
        bundle = list(merge(cabundle.trust_of(found).cas))
        wanted = dict(zip(CONFIGURATIONS, self._configurations(bundle), strict=True))
        for resource in found:  # first, so that a new CA waits for nothing
            await self.client.apply(resource, self.name, wanted.pop(resource), force=True)
        if not wanted:
            self.endpoints.restart()
            return Trust(bundle)
        is_due = registration.is_due(await self.endpoints.age())
        for resource, body in wanted.items() if is_due else ():
            await self.client.apply(resource, self.name, body, force=True)
        is_registered = is_due or bool(found)
        return Trust(bundle if is_registered else (), is_registered=is_registered)

    def _configurations(
        self, bundle: Sequence[x509.Certificate]
    ) -> tuple[registration.Configuration, registration.Configuration]:
        return registration.configurations(
            self.name,
            self.client_config,
            namespace=self.namespace,
            ca_bundle=b64encode(encode_pem(bundle)).decode(),
            labels=self.labels,
            options=self.options,
        )
