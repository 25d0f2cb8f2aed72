"""What is written into caBundle, what is left alone, and what counts as trusted."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from kavip import names
from kavip.api.registration import ClientConfig, Webhook, WebhookConfiguration
from kavip.kube.client import Client
from kavip.webhook import certs
from kavip.webhook.publisher import Injected, trusted

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ONE, OTHER = (certs.new_ca(NOW).certificate for _ in range(2))


class Configurations:
    """As much of an API server as two configurations need; each kind carries what it was given."""

    def __init__(self, mutating: Sequence[str], validating: Sequence[str]) -> None:
        """The caBundle of each webhook, as text."""
        self.carried = {"MutatingWebhookConfiguration": mutating, "ValidatingWebhookConfiguration": validating}
        self.applied: list[tuple[str, str]] = []

    async def get(self, resource: Any, _name: str) -> WebhookConfiguration:
        """Read one."""
        hooks = [
            Webhook(name=f"hook-{number}", client_config=ClientConfig(ca_bundle=text))
            for number, text in enumerate(self.carried[resource.kind])
        ]
        return WebhookConfiguration(webhooks=hooks)

    async def apply(
        self, resource: Any, _name: str, body: Mapping[str, Any], *, field_manager: str, force: bool
    ) -> None:
        """Write one."""
        assert force
        self.applied.append((resource.kind, field_manager))
        self.carried[resource.kind] = [each["clientConfig"]["caBundle"] for each in body["webhooks"]]


def text(*certificates: Any) -> str:
    """As it stands in a configuration."""
    return b64encode(certs.pem(certificates)).decode()


async def test_only_what_differs_is_written() -> None:
    """A kind that lacks a certificate in one webhook is written, under kavip's own manager; the other is not."""
    api = Configurations([text(ONE, OTHER)], [text(ONE, OTHER), text(ONE)])
    await Injected(cast(Client, api), "kavip").publish(certs.pem([ONE, OTHER]))
    assert api.applied == [("ValidatingWebhookConfiguration", names.CA_FIELD_MANAGER)]
    assert {*api.carried["ValidatingWebhookConfiguration"]} == {text(ONE, OTHER)}


async def test_the_order_means_nothing() -> None:
    """Two replicas that name the same CAs in another order do not write against each other; garbage is written over."""
    api = Configurations([text(ONE, OTHER)], ["garbage"])
    await Injected(cast(Client, api), "kavip").publish(certs.pem([OTHER, ONE]))
    assert [kind for kind, _ in api.applied] == ["ValidatingWebhookConfiguration"]


async def test_trusted_is_what_every_webhook_trusts() -> None:
    """A certificate that one webhook lacks is not trusted; where there is none at all, nothing is."""
    for mutating, validating, expected in (
        ([text(ONE)], [text(ONE), text(ONE)], [ONE]),
        ([text(ONE, OTHER)], [text(OTHER)], [OTHER]),
        ([text(ONE)], [text(OTHER)], []),
        ([text(ONE)], [""], []),
        ([], [], []),
    ):
        found = await trusted(cast(Client, Configurations(mutating, validating)), "kavip")
        assert certs.read_bundle(found) == expected
