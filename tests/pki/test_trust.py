"""What the API server trusts, and whether it sends anything."""

from datetime import UTC, datetime

import pytest

from kavip.pki import certificates
from kavip.pki.trust import Trust

NOW = datetime(2026, 5, 1, tzinfo=UTC)
OWN, OTHER = (certificates.new_ca(NOW) for _ in range(2))


@pytest.mark.parametrize(
    ("trust", "accepts"),
    [
        (Trust([OTHER.certificate, OWN.certificate]), True),
        (Trust([OTHER.certificate]), False),
        (Trust([]), False),
        (Trust([], is_registered=False), True),
    ],
)
def test_no_webhook_distrusts_nothing(trust: Trust, *, accepts: bool) -> None:
    """A leaf is accepted if every webhook trusts it, and if none is registered."""
    assert trust.accepts(certificates.new_leaf(OWN, ["kavip-webhook.kavip.svc"], NOW)) is accepts
