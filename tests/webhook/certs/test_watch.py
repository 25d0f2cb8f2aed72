"""The eye on the Secret and the configurations: what it knows, and that it wakes who waits."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from kavip.api.cluster import Secret
from kavip.api.meta import Metadata
from kavip.errors import ApiError, Forbidden
from kavip.kube.client import Client
from kavip.kube.codec import Seen
from kavip.kube.resources import SECRETS
from kavip.settings import Settings
from kavip.webhook.certs.provided import Provided
from kavip.webhook.certs.selfsigned import Rotation
from kavip.webhook.certs.source import keeper
from kavip.webhook.certs.watch import Lookout

pytestmark = pytest.mark.looptime

FOUND = Secret(metadata=Metadata(name="tls", namespace="kavip", resource_version="2"))


class Api:
    """Lists what there is of Secrets, and watches for more."""

    def __init__(self, *secrets: Secret, error: ApiError | None = None) -> None:
        """With an *error* Secrets cannot be listed."""
        self.secrets, self.error = secrets, error
        self.news = asyncio.Queue[Secret]()
        self.asked = set[tuple[str, str, str]]()

    async def list(self, resource: Any, *, namespace: str, fields: str, **_: Any) -> tuple[Sequence[Any], str]:
        """All there is."""
        self.asked.add((resource.kind, namespace, fields))
        if resource is SECRETS and self.error:
            raise self.error
        return (self.secrets if resource is SECRETS else ()), "1"

    @asynccontextmanager
    async def watch(self, resource: Any, _version: str, **_: Any) -> AsyncIterator[AsyncIterator[Seen[Secret]]]:
        """What comes."""

        async def events() -> AsyncIterator[Seen[Secret]]:
            while True:
                yield Seen(await (self.news if resource is SECRETS else asyncio.Queue[Secret]()).get())

        yield events()


@asynccontextmanager
async def looking(api: Api) -> AsyncIterator[Lookout]:
    """An eye that is open."""
    lookout = Lookout(cast(Client, api), secret="kavip/tls", configuration="kavip")
    task = asyncio.create_task(lookout.run())
    try:
        yield lookout
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_it_asks_for_three_objects_by_name() -> None:
    """The Secret in its namespace, and both configurations: RBAC grants no more."""
    async with looking(api := Api()):
        await asyncio.sleep(1)
    assert api.asked == {
        ("Secret", "kavip", "metadata.name=tls"),
        ("MutatingWebhookConfiguration", "", "metadata.name=kavip"),
        ("ValidatingWebhookConfiguration", "", "metadata.name=kavip"),
    }


async def test_it_knows_the_secret_or_why_there_is_none() -> None:
    """Nothing before the first list; then the Secret, that there is none, or the error."""
    for api, expected in (
        (Api(), "does not exist"),
        (Api(FOUND), FOUND),
        (Api(error=Forbidden(403, "Forbidden", "no")), "cannot be read: Forbidden"),
    ):
        async with looking(api) as lookout:
            assert lookout.secret() == ""
            await asyncio.sleep(1)
            assert lookout.secret() == expected


async def test_a_change_ends_a_pause() -> None:
    """Whoever pauses wakes a moment after a change, and sleeps on to the end where there is none."""
    clock = asyncio.get_running_loop().time
    async with looking(api := Api()) as lookout:
        await lookout.pause(10)
        asleep = clock()
        await lookout.pause(10)
        assert clock() - asleep == 10
        api.news.put_nowait(FOUND)
        asleep = clock()
        await lookout.pause(10)
        assert clock() - asleep < 1
        assert lookout.secret() == FOUND


async def test_the_mode_decides_who_keeps_the_certificate() -> None:
    """kavip's own CA, or a Secret of others, with what to do about it in the words of the mode."""
    words = {
        "provided": "write tls.crt, tls.key and ca.crt for w.ns.svc into it",
        "cert-manager": "kubectl describe certificate kavip-webhook --namespace ns",
        "service-ca": "kubectl describe service w --namespace ns",
    }
    for mode in ("self", *words):
        settings = Settings(certs_mode=mode, namespace="ns", webhook_service="w")
        kept = keeper(cast(Client, Api()), settings, lambda _: None)
        lookout = asyncio.create_task(kept.lookout.run())
        assert kept.work.unready()
        if mode == "self":
            assert isinstance(kept.work, Rotation)
        else:
            assert isinstance(kept.work, Provided)
            await asyncio.sleep(1)
            await kept.work.tick()
            assert kept.work.unready().startswith("Secret ns/kavip-webhook-tls: does not exist; ")
            assert words[mode] in kept.work.unready()
        lookout.cancel()
        await asyncio.gather(lookout, return_exceptions=True)
