"""externalIPs are judged as kube-proxy reads them, or refused."""

import pytest

from kavip.api.review import Operation, Review
from kavip.snapshot import Snapshot
from kavip.webhook import policy
from tests import build


@pytest.mark.parametrize("text", ["08.8.8.8", "008.008.008.008", "0192.000.002.013"])
def test_leading_zeros_are_refused(text: str) -> None:
    """kube-proxy would serve such an address; what kavip cannot read it does not let pass."""
    service = build.service("shop/evil", group="lb/edge", type="ClusterIP", external_ips=[text])
    found = policy.review(Review(Operation.CREATE, service), Snapshot.from_objects([build.group(), build.pool()]))
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[0]"]
