"""What is written into caBundle, what is left alone, and what counts as trusted."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from kavip import names
from kavip.api.meta import ManagedMetadata
from kavip.api.registration import ClientConfig, Webhook, WebhookConfiguration
from kavip.errors import Conflict
from kavip.kube.client import Client
from kavip.pki import certificates as pki
from kavip.webhook.certs.cabundle import Injected, trusted

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ONE, OTHER = (pki.new_ca(NOW).certificate for _ in range(2))


class Configurations:
    """As much of an API server as two configurations need; each kind carries what it was given."""

    def __init__(self, mutating: Sequence[str], validating: Sequence[str]) -> None:
        """The caBundle of each webhook, as text."""
        self.carried = {"MutatingWebhookConfiguration": mutating, "ValidatingWebhookConfiguration": validating}
        self.applied: list[tuple[str, str]] = []
        self.claims: list[dict[str, Any]] = []
        self.disowned, self.is_stale = 0, False

    async def get(self, resource: Any, _name: str) -> WebhookConfiguration:
        """Read one."""
        hooks = [
            Webhook(name=f"hook-{number}", client_config=ClientConfig(ca_bundle=text))
            for number, text in enumerate(self.carried[resource.kind])
        ]
        return WebhookConfiguration(metadata=ManagedMetadata(managed_fields=self.claims), webhooks=hooks)

    async def patch(self, _resource: Any, _name: str, body: Mapping[str, Any]) -> None:
        """Write who owns the fields of both."""
        if self.is_stale:
            raise Conflict(409, "Conflict", "changed meanwhile")
        self.claims = body["metadata"]["managedFields"]
        self.disowned += 1

    async def apply(
        self, resource: Any, name: str, body: Mapping[str, Any], *, field_manager: str, force: bool
    ) -> WebhookConfiguration:
        """Write one."""
        assert force
        self.applied.append((resource.kind, field_manager))
        self.carried[resource.kind] = [each["clientConfig"]["caBundle"] for each in body["webhooks"]]
        return await self.get(resource, name)


def text(*certificates: Any) -> str:
    """As it stands in a configuration."""
    return b64encode(pki.pem(certificates)).decode()


async def test_only_what_differs_is_written() -> None:
    """A kind that lacks a certificate in one webhook is written, under kavip's own manager; the other is not."""
    api = Configurations([text(ONE, OTHER)], [text(ONE, OTHER), text(ONE)])
    await Injected(cast(Client, api), "kavip").publish(pki.pem([ONE, OTHER]))
    assert api.applied == [("ValidatingWebhookConfiguration", names.CA_FIELD_MANAGER)]
    assert {*api.carried["ValidatingWebhookConfiguration"]} == {text(ONE, OTHER)}


async def test_the_order_means_nothing() -> None:
    """Two replicas that name the same CAs in another order do not write against each other; garbage is written over."""
    api = Configurations([text(ONE, OTHER)], ["garbage"])
    await Injected(cast(Client, api), "kavip").publish(pki.pem([OTHER, ONE]))
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
        assert pki.read_bundle(found) == expected


async def test_claims_of_other_versions_are_given_up() -> None:
    """A field that an earlier version owns is disowned though it is as it should be; others' claims stay."""
    api = Configurations([text(ONE)], [text(ONE)])
    api.claims = [{"manager": "helm"}, {"manager": names.CA_FIELD_MANAGER}]
    publisher = Injected(cast(Client, api), "kavip")
    await publisher.publish(pki.pem([ONE]))
    assert api.claims == [{"manager": "helm"}]
    assert (api.applied, api.disowned) == ([], 1)
    api.claims = [{"manager": names.CA_FIELD_MANAGER}]
    await publisher.publish(pki.pem([ONE]))
    assert api.disowned == 1, "an empty list would make the API server forget who owns anything"


async def test_who_is_faster_disowns() -> None:
    """That another replica has written meanwhile is no trouble."""
    api = Configurations([text(ONE)], [text(ONE)])
    api.claims, api.is_stale = [{"manager": "helm"}, {"manager": names.CA_FIELD_MANAGER}], True
    await Injected(cast(Client, api), "kavip").publish(pki.pem([ONE]))
    assert api.disowned == 0
