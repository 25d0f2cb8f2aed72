"""When kavip registers its webhooks: not before an endpoint answers, and again if they are deleted."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
import structlog
from cryptography import x509

from kavip import names
from kavip.admission.registration import SETTLED, ServiceClientConfig, URLClientConfig
from kavip.api.registration import WebhookConfiguration
from kavip.api.slice import Endpoint, EndpointConditions, EndpointSlice
from kavip.errors import NotFound
from kavip.kube.client import Client
from kavip.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kavip.pki import cabundleconfigmap, certificates
from kavip.pki.trust import Trust
from kavip.pki.trustbundle import parse_bundle
from kavip.webhook.certs.cabundle import CONFIGURATIONS
from kavip.webhook.certs.cainjector import CAInjector
from kavip.webhook.certs.registrar import ServiceEndpoints, WebhookRegistrar
from tests.webhook.certs.replicas import NOW

SOON = timedelta(seconds=1)
OLD, NEW = (certificates.new_ca(NOW).certificate for _ in range(2))


class FakeCluster:
    """An API server with the endpoints of a Service, and with webhook configurations."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """No endpoint, and no configuration; *clock* in place of :attr:`now`."""
        self.now = 0.0
        self.endpoints: list[Endpoint] = []
        self.registered = dict[str, WebhookConfiguration]()
        self.registrar = WebhookRegistrar(
            cast(Client, self),
            "kavip",
            ServiceClientConfig("kavip", "kavip-webhook-service"),
            "kavip",
            endpoints=ServiceEndpoints(self.slices, clock=clock or (lambda: self.now)),
        )

    async def slices(self) -> Sequence[EndpointSlice]:
        """The endpoints, in one EndpointSlice each."""
        return [EndpointSlice(endpoints=[each]) for each in self.endpoints]

    async def get(self, resource: Any, name: str) -> WebhookConfiguration:
        """Read a configuration."""
        if resource.kind not in self.registered:
            raise NotFound(404, "NotFound", name)
        return self.registered[resource.kind]

    async def apply(self, resource: Any, _name: str, body: Mapping[str, Any], *, force: bool) -> WebhookConfiguration:
        """Write a configuration."""
        assert force
        self.registered[resource.kind] = msgspec.convert(body, WebhookConfiguration)
        return self.registered[resource.kind]

    async def publish(self, cas: Iterable[x509.Certificate], *, after: timedelta = SOON) -> Trust:
        """Let *after* pass, and publish *cas*."""
        self.now += after.total_seconds()
        return await self.registrar.publish(lambda _: [*cas])

    def trusted(self) -> dict[str, list[x509.Certificate]]:
        """The CAs of each configuration, which are the same in each of its webhooks."""
        found = {}
        for kind, configuration in self.registered.items():
            (text,) = {each.client_config.ca_bundle for each in configuration.webhooks or ()}
            found[kind] = parse_bundle(b64decode(text))
        return found


def endpoint(*, ready: bool | None) -> Endpoint:
    """An endpoint with that condition."""
    return Endpoint(conditions=EndpointConditions(ready=ready))


EVERYWHERE = {each.kind: [NEW] for each in CONFIGURATIONS}


@pytest.mark.parametrize("ready", [True, None])
async def test_the_first_registration_waits_for_an_endpoint(*, ready: bool | None) -> None:
    """One that is not ready does not count; one that becomes ready counts after a while, from its last start."""
    cluster = FakeCluster()
    for endpoints in ([], [endpoint(ready=False)]):
        cluster.endpoints = endpoints
        for _ in range(3):
            assert await cluster.publish([NEW], after=SETTLED) == Trust((), is_registered=False)
    for _ in range(2):
        cluster.endpoints = [endpoint(ready=False), endpoint(ready=ready)]
        assert not (await cluster.publish([NEW])).is_registered
        assert not (await cluster.publish([NEW], after=SETTLED - SOON)).is_registered
        cluster.endpoints = []
        assert not (await cluster.publish([NEW])).is_registered
    assert cluster.trusted() == {}
    cluster.endpoints = [endpoint(ready=ready)]
    await cluster.publish([NEW])
    assert await cluster.publish([NEW], after=SETTLED) == Trust([NEW])
    assert cluster.trusted() == EVERYWHERE


async def test_a_new_ca_waits_for_no_endpoint() -> None:
    """What is registered is called, so it must trust the next pod before that is ready."""
    cluster = FakeCluster()
    cluster.endpoints = [endpoint(ready=True)]
    await cluster.publish([OLD])
    await cluster.publish([OLD], after=SETTLED)
    cluster.endpoints = []
    assert await cluster.publish([NEW]) == Trust([NEW])
    assert cluster.trusted() == EVERYWHERE


@pytest.mark.parametrize("deleted", [CONFIGURATIONS, [MUTATING_WEBHOOKS], [VALIDATING_WEBHOOKS]])
async def test_a_deleted_registration_comes_again(deleted: Sequence[Any]) -> None:
    """
    Not at once: a pod whose version OLM uninstalls may see the deletion while it still has its rights.

    What is left is kept current, and what is missing waits, also for an endpoint.
    """
    cluster = FakeCluster()
    cluster.endpoints = [endpoint(ready=True)]
    await cluster.publish([OLD])
    await cluster.publish([OLD], after=SETTLED)
    left = {kind: cas for kind, cas in EVERYWHERE.items() if kind not in {each.kind for each in deleted}}
    for endpoints in ([endpoint(ready=True)], []):
        await cluster.publish([OLD], after=SETTLED)
        for each in deleted:
            del cluster.registered[each.kind]
        cluster.endpoints = endpoints
        for after in (SETTLED, SETTLED - SOON):
            trust = await cluster.publish([NEW], after=after)
            assert (cluster.trusted(), trust.is_registered) == (left, bool(left))
        await cluster.publish([NEW])
        assert cluster.trusted() == (EVERYWHERE if endpoints else left)


async def test_a_url_is_registered_at_once() -> None:
    """It has no endpoints."""
    cluster = FakeCluster()
    cluster.registrar = WebhookRegistrar(
        cast(Client, cluster), "kavip", URLClientConfig("https://192.0.2.1:9443"), "kavip"
    )
    assert cluster.registrar.awaited == ""
    assert await cluster.publish([NEW]) == Trust([NEW])
    assert cluster.trusted() == EVERYWHERE


@pytest.mark.looptime
async def test_the_controller_looks_again_soon() -> None:
    """It says once what it waits for, and registers within a few seconds after the endpoint has settled."""
    loop = asyncio.get_running_loop()
    cluster = FakeCluster(loop.time)
    data = {names.CA_BUNDLE_KEY: cabundleconfigmap.encode([NEW])}
    injector = CAInjector(
        lambda: data, cluster.registrar, key="kavip/kavip-webhook-ca", emit_event=lambda _reason, _text: None
    )
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(injector.run())
        await asyncio.sleep(60)
        assert cluster.trusted() == {}
        cluster.endpoints = [endpoint(ready=True)]
        await asyncio.sleep(SETTLED.seconds + 4)
        assert cluster.trusted() == EVERYWHERE
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    awaited = "Service kavip/kavip-webhook-service has not had a ready endpoint for 5 s"
    assert [(each["event"], each.get("awaited")) for each in logs] == [
        ("webhooks not registered yet", awaited),
        ("caBundle injected", None),
    ]
