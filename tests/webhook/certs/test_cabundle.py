"""``caBundle``: which fields are written, which are kept, and which CAs count as trusted."""

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
from kavip.pki.trustbundle import encode_pem
from kavip.webhook.certs.cabundle import CABundleInjector, read_ca_bundle

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ONE, OTHER = (pki.new_ca(NOW).certificate for _ in range(2))


class Configurations:
    """A fake API server with two webhook configurations."""

    def __init__(self, mutating: Sequence[str], validating: Sequence[str]) -> None:
        """The caBundle of each webhook, in base64."""
        self.carried = {"MutatingWebhookConfiguration": mutating, "ValidatingWebhookConfiguration": validating}
        self.applied: list[tuple[str, str]] = []
        self.claims: list[dict[str, Any]] = []
        self.disowned, self.is_stale = 0, False

    async def get(self, resource: Any, _name: str) -> WebhookConfiguration:
        """Read one configuration."""
        hooks = [
            Webhook(name=f"hook-{number}", client_config=ClientConfig(ca_bundle=text))
            for number, text in enumerate(self.carried[resource.kind])
        ]
        return WebhookConfiguration(metadata=ManagedMetadata(managed_fields=self.claims), webhooks=hooks)

    async def patch(self, _resource: Any, _name: str, body: Mapping[str, Any]) -> None:
        """Write the managed fields of both configurations."""
        if self.is_stale:
            raise Conflict(409, "Conflict", "changed meanwhile")
        self.claims = body["metadata"]["managedFields"]
        self.disowned += 1

    async def apply(
        self, resource: Any, name: str, body: Mapping[str, Any], *, field_manager: str, force: bool
    ) -> WebhookConfiguration:
        """Apply one configuration."""
        assert force
        self.applied.append((resource.kind, field_manager))
        self.carried[resource.kind] = [each["clientConfig"]["caBundle"] for each in body["webhooks"]]
        return await self.get(resource, name)


def text(*certificates: Any) -> str:
    """The base64 of *certificates*."""
    return b64encode(encode_pem(certificates)).decode()


async def test_only_a_different_bundle_is_written() -> None:
    """A configuration with a wrong bundle in one webhook is written by kavip's own manager; the other is not."""
    api = Configurations([text(ONE, OTHER)], [text(ONE, OTHER), text(ONE)])
    await CABundleInjector(cast(Client, api), "kavip").publish(lambda _: [ONE, OTHER])
    assert api.applied == [("ValidatingWebhookConfiguration", names.CA_FIELD_MANAGER)]
    assert {*api.carried["ValidatingWebhookConfiguration"]} == {text(ONE, OTHER)}


async def test_the_order_of_cas_does_not_matter() -> None:
    """Replicas that list the same CAs in another order do not write; malformed data is replaced."""
    api = Configurations([text(ONE, OTHER)], ["garbage"])
    await CABundleInjector(cast(Client, api), "kavip").publish(lambda _: [OTHER, ONE])
    assert [kind for kind, _ in api.applied] == ["ValidatingWebhookConfiguration"]


async def test_trusted_cas_are_those_of_every_webhook() -> None:
    """A CA that one webhook lacks does not count."""
    for mutating, validating, expected in (
        ([text(ONE)], [text(ONE), text(ONE)], [ONE]),
        ([text(ONE, OTHER)], [text(OTHER)], [OTHER]),
        ([text(ONE)], [text(OTHER)], []),
        ([text(ONE)], [""], []),
        ([], [], []),
    ):
        found = await read_ca_bundle(cast(Client, Configurations(mutating, validating)), "kavip")
        assert found == expected


async def test_the_ownership_of_ca_bundle_is_released() -> None:
    """kavip releases it even if the field is correct already; entries of other managers stay."""
    api = Configurations([text(ONE)], [text(ONE)])
    api.claims = [{"manager": "helm"}, {"manager": names.CA_FIELD_MANAGER}]
    publisher = CABundleInjector(cast(Client, api), "kavip")
    await publisher.publish(lambda _: [ONE])
    assert api.claims == [{"manager": "helm"}]
    assert (api.applied, api.disowned) == ([], 1)
    api.claims = [{"manager": names.CA_FIELD_MANAGER}]
    await publisher.publish(lambda _: [ONE])
    assert api.disowned == 1, "an empty list would make the API server drop the owners of all fields"


async def test_a_conflict_on_release_is_ignored() -> None:
    """If another replica has changed the configuration meanwhile, nothing is raised."""
    api = Configurations([text(ONE)], [text(ONE)])
    api.claims, api.is_stale = [{"manager": "helm"}, {"manager": names.CA_FIELD_MANAGER}], True
    await CABundleInjector(cast(Client, api), "kavip").publish(lambda _: [ONE])
    assert api.disowned == 0
