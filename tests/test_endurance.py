"""The measurements of the endurance run."""

import pytest

from hack.endurance.metrics import WebhookCounters
from hack.endurance.writer import Failure, Record

# The metrics of a kube-apiserver 1.35 with another webhook besides kavip's.
BEFORE = """\
# TYPE apiserver_admission_webhook_request_total counter
apiserver_admission_webhook_request_total{code="200",name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit"} 7
apiserver_admission_webhook_request_total{code="200",name="other.example.com",operation="CREATE",\
rejected="false",type="admit"} 1000
"""
AFTER = """\
# TYPE apiserver_admission_webhook_admission_duration_seconds histogram
apiserver_admission_webhook_admission_duration_seconds_bucket{name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit",le="0.005"} 6
apiserver_admission_webhook_admission_duration_seconds_bucket{name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit",le="0.025"} 9
apiserver_admission_webhook_admission_duration_seconds_bucket{name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit",le="+Inf"} 10
apiserver_admission_webhook_admission_duration_seconds_sum{name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit"} 1.5
apiserver_admission_webhook_admission_duration_seconds_count{name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit"} 10
# TYPE apiserver_admission_webhook_fail_open_count counter
apiserver_admission_webhook_fail_open_count{name="mutate-service.kavip.io",type="admit"} 3
apiserver_admission_webhook_fail_open_count{name="other.example.com",type="admit"} 50
# TYPE apiserver_admission_webhook_rejection_count counter
apiserver_admission_webhook_rejection_count{error_type="no_error",name="validate-service.kavip.io",\
operation="UPDATE",rejection_code="422",type="validating"} 4
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="validate-service.kavip.io",\
operation="UPDATE",rejection_code="0",type="validating"} 2
# TYPE apiserver_admission_webhook_request_total counter
apiserver_admission_webhook_request_total{code="200",name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit"} 17
apiserver_admission_webhook_request_total{code="503",name="mutate-service.kavip.io",operation="CREATE",\
rejected="false",type="admit"} 3
# TYPE rest_client_request_retries_total counter
rest_client_request_retries_total{code="503",host="kavip-webhook.kavip.svc:443",verb="POST"} 5
rest_client_request_retries_total{code="503",host="192.0.2.10:6443",verb="GET"} 8
"""


def test_every_lost_call_is_counted() -> None:
    """Calls that failed closed and open, of kavip's webhooks only."""
    counters = WebhookCounters.parse(AFTER) - WebhookCounters.parse(BEFORE)
    assert (counters.calls, counters.by_code) == (13, {"200": 10, "503": 3})
    assert (counters.refused, counters.lost, counters.fail_open, counters.retried) == (4, 2, 3, 5)


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 0.005), (0.9, 0.025), (1.0, float("inf"))])
def test_a_percentile_is_a_bucket_bound(share: float, seconds: float) -> None:
    """It is the bound of the first bucket that contains the share."""
    assert WebhookCounters.parse(AFTER).within(share) == seconds


def test_writes_count_at_the_time_of_their_response() -> None:
    """A part of the record has the responses of its time, including failures."""
    record = Record([1.0, 2.0, 3.0], [Failure(2.0, "POST", "lost")])
    assert record.between(2.0, 3.0) == Record([2.0], record.failures)
    assert record.between(0.0, 2.0) == Record([1.0], [])


def test_rounds_add_up() -> None:
    """Several rounds count every write and every call."""
    first, second = Record([1.0], []), Record([2.0], [Failure(2.0, "POST", "lost")])
    assert first + second == Record([1.0, 2.0], second.failures)
    once = WebhookCounters.parse(AFTER) - WebhookCounters.parse(BEFORE)
    assert ((once + once).calls, (once + once).lost) == (2 * once.calls, 2 * once.lost)
