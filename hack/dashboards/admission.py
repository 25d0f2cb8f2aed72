"""The dashboard of the webhooks."""

from typing import Final

from hack.dashboards.model import Dashboard, Panel, Query, Row, Unit, legend, quantiles, rate

ADMISSION: Final = Dashboard(
    name="admission",
    title="kavip / Admission",
    description="The webhooks: what they answer, how fast, and their certificates.",
    rows=(
        Row(
            "Reviews",
            (
                Panel(
                    title="Reviews by verdict",
                    description="Admission reviews per second. An error is a review that kavip failed to judge.",
                    queries=(rate("kavip_webhook_requests_total", "verdict"),),
                    unit=Unit.PER_SECOND,
                    alerts=("KavipWebhookErrors",),
                ),
                Panel(
                    title="Reviews by webhook",
                    description="Admission reviews per second, by the path of the webhook.",
                    queries=(rate("kavip_webhook_requests_total", "path"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Denied reviews",
                    description="Reviews per second that were denied, by the path of the webhook. The user saw the "
                    "reason; the audit log of the API server has it, too.",
                    queries=(rate('kavip_webhook_requests_total{verdict="denied"}', "path"),),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Duration of a review",
                    description="The median and the 99th percentile. The API server waits for each review before it "
                    "stores the object.",
                    queries=quantiles("kavip_webhook_request_seconds", "path"),
                    unit=Unit.DURATION,
                    alerts=("KavipWebhookSlow",),
                ),
            ),
        ),
        Row(
            "Server",
            (
                Panel(
                    title="Certificates",
                    description="How long each certificate is still valid. kavip renews its own in time.",
                    queries=(
                        Query(
                            "min by (certificate) (kavip_certificate_expiry_timestamp_seconds) - time()",
                            legend("certificate"),
                        ),
                    ),
                    unit=Unit.DURATION,
                    alerts=("KavipCertificateExpiring",),
                ),
                Panel(
                    title="Evicted connections",
                    description="Connections per second that were closed because a port had too many.",
                    queries=(rate("kavip_connections_evicted_total", "port"),),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
