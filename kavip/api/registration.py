"""``admissionregistration.k8s.io/v1``: the parts of a webhook configuration that kavip reads."""

from kavip.api.meta import ManagedMetadata, Wire


class ServiceReference(Wire, frozen=True):
    """``webhooks[].clientConfig.service``."""

    namespace: str = ""
    name: str = ""


class ClientConfig(Wire, frozen=True):
    """``webhooks[].clientConfig``; *ca_bundle* is base64 text. Without a *service* the webhook is a URL."""

    ca_bundle: str = ""
    service: ServiceReference | None = None


class Webhook(Wire, frozen=True):
    """``webhooks[]``."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    failure_policy: str = ""


class WebhookConfiguration(Wire, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ManagedMetadata = ManagedMetadata()
    webhooks: list[Webhook] | None = None
