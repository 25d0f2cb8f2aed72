"""The watch on the Secret and the webhook configurations, and the certificate source for a mode."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from kavip.api.cluster import Secret
from kavip.api.meta import Metadata
from kavip.errors import ApiError, Forbidden
from kavip.kube.client import Client
from kavip.kube.codec import Changed
from kavip.kube.resources import SECRETS
from kavip.settings import Settings
from kavip.webhook.certs.provided import ProvidedCertificates
from kavip.webhook.certs.selfsigned import DynamicAuthority
from kavip.webhook.certs.source import certificate_source
from kavip.webhook.certs.watch import CertificateWatch

pytestmark = pytest.mark.looptime

FOUND = Secret(metadata=Metadata(name="tls", namespace="kavip", resource_version="2"))


class FakeApi:
    """Lists Secrets, and watches for more."""

    def __init__(self, *secrets: Secret, error: ApiError | None = None) -> None:
        """With an *error*, listing Secrets fails."""
        self.secrets, self.error = secrets, error
        self.news = asyncio.Queue[Secret]()
        self.requested = set[tuple[str, str, str]]()

    async def list(self, resource: Any, *, namespace: str, fields: str, **_: Any) -> tuple[Sequence[Any], str]:
        """All objects."""
        self.requested.add((resource.kind, namespace, fields))
        if resource is SECRETS and self.error:
            raise self.error
        return (self.secrets if resource is SECRETS else ()), "1"

    @asynccontextmanager
    async def watch(self, resource: Any, _version: str, **_: Any) -> AsyncIterator[AsyncIterator[Changed[Secret]]]:
        """The events of a queue."""

        async def events() -> AsyncIterator[Changed[Secret]]:
            while True:
                yield Changed(await (self.news if resource is SECRETS else asyncio.Queue[Secret]()).get())

        yield events()


@asynccontextmanager
async def watching(api: FakeApi) -> AsyncIterator[CertificateWatch[Secret]]:
    """A watch that runs."""
    watch = CertificateWatch(cast(Client, api), SECRETS, "kavip/tls", configuration="kavip")
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_three_objects_are_watched_by_name() -> None:
    """The Secret in its namespace and both configurations: RBAC grants no more."""
    async with watching(api := FakeApi()):
        await asyncio.sleep(1)
    assert api.requested == {
        ("Secret", "kavip", "metadata.name=tls"),
        ("MutatingWebhookConfiguration", "", "metadata.name=kavip"),
        ("ValidatingWebhookConfiguration", "", "metadata.name=kavip"),
    }


async def test_the_secret_or_the_cause_is_known() -> None:
    """Before the first list there is neither; then there is the Secret, its absence, or the error."""
    for api, expected in (
        (FakeApi(), "does not exist"),
        (FakeApi(FOUND), FOUND),
        (FakeApi(error=Forbidden(403, "Forbidden", "no")), "cannot be read: Forbidden"),
    ):
        async with watching(api) as watch:
            assert watch.source() == ""
            await asyncio.sleep(1)
            assert watch.source() == expected


async def test_a_change_ends_a_wait() -> None:
    """A change ends the wait a moment later; without a change it lasts to the end."""
    clock = asyncio.get_running_loop().time
    async with watching(api := FakeApi()) as watch:
        await watch.wait(10)
        asleep = clock()
        await watch.wait(10)
        assert clock() - asleep == 10
        api.news.put_nowait(FOUND)
        asleep = clock()
        await watch.wait(10)
        assert clock() - asleep < 1
        assert watch.source() == FOUND


async def test_the_mode_selects_the_certificate_manager() -> None:
    """kavip's own CA, or a provided certificate with the remedy of the mode."""
    remedies = {
        "provided": "write tls.crt, tls.key and ca.crt for w.ns.svc into it",
        "cert-manager": "kubectl describe certificate kavip-webhook --namespace ns",
        "service-ca": "kubectl describe service w --namespace ns",
    }
    for mode in ("self", *remedies):
        settings = Settings(certs_mode=mode, namespace="ns", webhook_service="w")
        source = certificate_source(cast(Client, FakeApi()), settings, lambda _: None)
        watch = asyncio.create_task(source.watch.run())
        assert source.manager.unready()
        if mode == "self":
            assert isinstance(source.manager, DynamicAuthority)
        else:
            assert isinstance(source.manager, ProvidedCertificates)
            await asyncio.sleep(1)
            await source.manager.reconcile()
            assert source.manager.unready().startswith("Secret ns/kavip-webhook-tls: does not exist; ")
            assert remedies[mode] in source.manager.unready()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
