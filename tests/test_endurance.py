"""The measurements of the endurance run."""

import asyncio
from typing import cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hack.endurance.endurancerun import Period, Run
from hack.endurance.metrics import WebhookCounters
from hack.endurance.writer import UPDATES, Pace, Record, Writer, WrongAnswer
from hack.testbed.cluster import Cluster
from hack.upgrade.measure import is_lost
from hack.upgrade.ways import Bundle, Helm, Way

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


LOST = WrongAnswer(2.0, "POST", "lost")
UNREVIEWED = WrongAnswer(2.5, "PATCH", "200 in place of 422: ")


def test_writes_count_at_the_time_of_their_response() -> None:
    """A part of the record has the responses of its time, including failures and unreviewed writes."""
    record = Record([1.0, 2.0, 2.5, 3.0], [LOST], [UNREVIEWED])
    assert record.between(2.0, 3.0) == Record([2.0, 2.5], [LOST], [UNREVIEWED])
    assert record.between(2.2, 2.7) == Record([2.5], [], [UNREVIEWED])
    assert record.between(0.0, 2.0) == Record([1.0])


def test_rounds_add_up() -> None:
    """Several rounds count every write and every call."""
    first, second = Record([1.0], [], [UNREVIEWED]), Record([2.0], [LOST])
    assert first + second == Record([1.0, 2.0], [LOST], [UNREVIEWED])
    once = WebhookCounters.parse(AFTER) - WebhookCounters.parse(BEFORE)
    assert ((once + once).calls, (once + once).lost) == (2 * once.calls, 2 * once.lost)


@pytest.mark.parametrize(("refusal", "failed", "unreviewed"), [(422, 0, 0), (200, 0, 1), (503, 1, 0)])
async def test_a_write_that_no_webhook_saw_has_not_failed(refusal: int, failed: int, unreviewed: int) -> None:
    """An update succeeds that kavip would have refused; any other wrong answer is a failure."""
    stopped = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        text = await request.text()
        if request.method == "DELETE":
            stopped.set()  # after one Service
        created = 201 if request.method == "POST" else 200
        return web.json_response({}, status=refusal if "perhaps" in text else created)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession(server.make_url("/")) as session:
        writer = Writer(0, session, Pace(1e6), stopped)
        await writer.run()
    assert len(writer.writes) == UPDATES + 3
    assert (len(writer.failures), len(writer.unreviewed)) == (failed, unreviewed)


def test_the_table_tells_failed_and_unreviewed_writes_apart() -> None:
    """Each has its column and its lines."""
    record = Record([1.0, 2.0, 2.5, 3.0], [LOST], [UNREVIEWED] * 2)
    lines = run_of(record).table().splitlines()
    assert lines[0].split() == ["writes", "seconds", "failed", "unreviewed", "last", "after"]
    assert lines[1].split() == ["update", "4", "4", "1", "2", "2.00", "s"]
    assert lines[2].split() == ["total", "4", "1", "2"]
    assert [line.split()[0] for line in lines if " after update" in line] == ["FAILED", "UNREVIEWED", "UNREVIEWED"]


@pytest.mark.parametrize(("way", "promised"), [(Helm, True), (Bundle, False)])
def test_an_unreviewed_write_is_lost_where_the_way_promises_a_review(way: type[Way], promised: bool) -> None:
    """A failed one always is."""
    made = object.__new__(way)
    assert is_lost(run_of(Record([2.5], [], [UNREVIEWED])), made) is promised
    assert is_lost(run_of(Record([2.0], [LOST])), made)
    assert not is_lost(run_of(Record([1.0])), made)


def run_of(record: Record) -> Run:
    """A run with one disturbance, during which *record* was written."""
    return Run(cast(Cluster, None), [Period("update", 0.0, 0.5, 3.0, 4.0, record)], record)
