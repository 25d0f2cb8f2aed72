"""``admissionregistration.k8s.io/v1``: the parts of a webhook configuration that kavip reads."""

from kavip.api.meta import ManagedMetadata, Wire


class ClientConfig(Wire, frozen=True):
    """``webhooks[].clientConfig``; *ca_bundle* is base64 text."""

    ca_bundle: str = ""


class Webhook(Wire, frozen=True):
    """``webhooks[]``."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Wire, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ManagedMetadata = ManagedMetadata()
    webhooks: list[Webhook] | None = None
