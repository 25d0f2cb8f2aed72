"""The Event recorder: bounded, aggregated, patient, and never an obstacle."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

import kavip.kube.events
from kavip.api.event import Note, ObjectReference
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.telemetry import REGISTRY
from tests.kube.conftest import running, until
from tests.kube.fakeapi import FakeApi, refusal, status
from tests.support.clock import advance

Api = tuple[FakeApi, Client]


class Journal:
    """A fake client that records (method, body); *answers* are raised or returned first, then 201."""

    def __init__(self, *answers: web.Response) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.answers = list(answers)
        self.together = self.most = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Record and answer."""
        self.together += 1
        self.most = max(self.most, self.together)
        self.sent.append((request.method, await request.json()))
        await asyncio.sleep(0)
        self.together -= 1
        return self.answers.pop(0) if self.answers else web.json_response({}, status=201)


class CountingClient:
    """A client that counts the calls that have *ended*: at a later one the sender waits, and no call is under way."""

    def __init__(self, client: Client) -> None:
        self.create, self.patch = self._counted(client.create), self._counted(client.patch)
        self.ended = 0

    def _counted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any) -> Any:
            found = await call(*arguments)
            self.ended += 1
            return found

        return counted


class SlowClient:
    """Creates nothing; each call takes its turn's *seconds*, and began at its turn's of *times*."""

    def __init__(self, *seconds: float) -> None:
        self.times: list[float] = []
        self._seconds = seconds

    async def create(self, *_: object) -> None:
        """Take the time."""
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._seconds[len(self.times) - 1])


def note(text: str = "no address left", name: str = "web") -> Note:
    """A note about a Service."""
    about = ObjectReference(api_version="v1", kind="Service", namespace="shop", name=name, uid="u")
    return Note(about, "PoolExhausted", text, action="Assign", severity="Warning")


def recorder(client: Any, **more: Any) -> Events:
    """A recorder with short times."""
    return Events(client, reporter="kavip.io/controller", instance="kavip-0", **{"pause": 0, "window": 0.2, **more})


async def test_a_note_becomes_an_event(api: Api) -> None:
    """The Event has all required fields, cut to the limits of the API."""
    fake, client = api
    fake.fault = journal = Journal()
    events = recorder(client)
    async with running(events.run()):
        events.emit(note("é" * 2000))
        await until(lambda: journal.sent)
    [(method, body)] = journal.sent
    assert method == "POST"
    assert body["kind"] == "Event"
    assert body["metadata"]["namespace"] == "shop"
    assert body["metadata"]["name"].startswith("web.")
    assert body["regarding"]["name"] == "web"
    assert body["note"] == "é" * 512
    assert (body["reason"], body["action"], body["type"]) == ("PoolExhausted", "Assign", "Warning")


async def test_repeated_notes_are_one_event_with_a_series(api: Api) -> None:
    """Repetitions within the window are counted, and sent at its end."""
    fake, client = api
    fake.fault = journal = Journal()
    calls = CountingClient(client)
    events = recorder(calls, window=600)
    async with running(events.run()):
        events.emit(note())
        await until(lambda: calls.ended == 1)
        for _ in range(50):
            events.emit(note())
            await asyncio.sleep(0)
        advance(600)
        await until(lambda: calls.ended == 2)
        events.emit(note("another"))
        await until(lambda: len(journal.sent) == 3)
    assert [method for method, _ in journal.sent] == ["POST", "PATCH", "POST"]
    assert journal.sent[1][1]["series"]["count"] == 51


async def test_repetitions_before_the_first_call_count(api: Api) -> None:
    """The Event has them from the start; a series has at least two."""
    fake, client = api
    fake.fault = journal = Journal()
    calls = CountingClient(client)
    events = recorder(calls, window=600)
    for text in ("again", "again", "again", "again", "again", "once"):
        events.emit(note(text))
    async with running(events.run()):
        await until(lambda: calls.ended == 2)
        events.emit(note("again"))
        advance(600)
        await until(lambda: calls.ended == 3)
    assert [(method, body.get("series", {}).get("count")) for method, body in journal.sent] == [
        ("POST", 5),
        ("POST", None),
        ("PATCH", 6),
    ]
    assert journal.sent[0][1]["series"]["lastObservedTime"] >= journal.sent[0][1]["eventTime"]


async def test_an_event_has_the_time_of_its_note(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it waits in the queue; a series has that of its last one."""
    times = iter(f"2026-01-01T00:00:0{second}.000000Z" for second in range(9))
    monkeypatch.setattr(kavip.kube.events, "_now", lambda: next(times))
    fake, client = api
    fake.fault = journal = Journal()
    calls = CountingClient(client)
    events = recorder(calls, window=600)
    for text in ("first", "second", "second"):
        events.emit(note(text))
    async with running(events.run()):
        await until(lambda: calls.ended == 2)
        for _ in range(3):
            events.emit(note("first"))
        advance(600)
        await until(lambda: calls.ended >= 3)
    assert [body["eventTime"][17:19] for _, body in journal.sent[:2]] == ["00", "01"]
    assert journal.sent[2][1]["series"] == {"count": 4, "lastObservedTime": "2026-01-01T00:00:05.000000Z"}


async def test_a_note_during_its_own_call_is_sent_later(api: Api) -> None:
    """A note that is emitted between a request and its response is not lost."""
    fake, client = api
    journal, gate = Journal(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        answer = await journal(request)
        await gate.wait()
        return answer

    fake.fault = slow
    events = recorder(client, window=0)
    async with running(events.run()):
        events.emit(note())
        await until(lambda: journal.sent)
        for _ in range(3):
            events.emit(note())
        gate.set()
        await until(lambda: len(journal.sent) == 2)
    assert journal.sent[1][1]["series"]["count"] == 4


@pytest.mark.looptime
async def test_a_slow_call_delays_the_next_one() -> None:
    """A slow API server is busy with other calls, which Events must not slow down. The pause is a second at most."""
    client = SlowClient(0.001, 0.2, 30.0, 0.0)
    events = recorder(client, pause=0.02)
    async with running(events.run()):
        for number in range(4):
            events.emit(note(name=f"web-{number}"))
        await until(lambda: len(client.times) == 4, timeout=600)
    gaps = [later - earlier for earlier, later in pairwise(client.times)]
    assert gaps == pytest.approx([0.001 + 0.02, 0.2 + 0.8, 30.0 + 1.0], abs=0.001)


async def test_an_expired_event_is_created_again(api: Api) -> None:
    """The API server keeps Events for an hour."""
    fake, client = api
    fake.fault = journal = Journal(web.json_response({}, status=201), refusal(404, "NotFound"))
    events = recorder(client, window=0)
    async with running(events.run()):
        events.emit(note())
        await until(lambda: journal.sent)
        await asyncio.sleep(0.05)
        events.emit(note())
        await until(lambda: len(journal.sent) == 3)
    assert [method for method, _ in journal.sent] == ["POST", "PATCH", "POST"]


async def test_a_full_queue_drops_its_oldest_and_counts(api: Api) -> None:
    """The newest notes matter most, and emitting never blocks."""
    fake, client = api
    fake.fault = journal = Journal()
    events = recorder(client, capacity=10)
    for number in range(25):
        events.emit(note(name=f"s{number:02}"))
    assert events.dropped == 15
    async with running(events.run()):
        await until(lambda: len(journal.sent) == 10)
        events.emit(note(name="s00"))  # dropped, so it does not count as sent
        await until(lambda: len(journal.sent) == 11)
    assert [body["regarding"]["name"] for _, body in journal.sent] == [f"s{n}" for n in range(15, 25)] + ["s00"]
    assert journal.most == 1


async def test_429_is_obeyed_and_nothing_is_lost(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note is sent again after Retry-After, not before."""
    fake, client = api
    monkeypatch.setattr("kavip.kube.events.backoff", lambda failures, **_: 0.0)
    busy = status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 0.2}}
    fake.fault = journal = Journal(web.json_response(busy, status=429))
    events = recorder(client)
    async with running(events.run()):
        began = asyncio.get_running_loop().time()
        events.emit(note())
        await until(lambda: len(journal.sent) == 2)
        assert asyncio.get_running_loop().time() - began >= 0.2
    assert events.dropped == 0


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_a_refused_note_is_dropped(api: Api, code: int) -> None:
    """A namespace in deletion accepts no Events; the next note is sent."""
    fake, client = api
    fake.fault = journal = Journal(refusal(code, "Forbidden"))
    events = recorder(client)
    async with running(events.run()):
        events.emit(note(name="one"))
        events.emit(note(name="two"))
        await until(lambda: len(journal.sent) == 2)
    assert events.dropped == 1


async def test_what_is_dropped_is_counted_and_logged_once_a_minute(
    api: Api, logged: list[MutableMapping[str, Any]]
) -> None:
    """The first line comes at once. The next one tells how many were dropped since, and without any there is none."""
    before = REGISTRY.get_sample_value("kavip_events_dropped_total") or 0
    events = recorder(api[1], capacity=10)
    for number in range(25):
        events.emit(note(name=f"s{number:02}"))
    assert [each["dropped"] for each in logged] == [1]
    advance(60)
    await until(lambda: len(logged) == 2)
    assert logged[1] == {
        "event": "events dropped",
        "log_level": "warning",
        "dropped": 14,
        "kind": "Service",
        "object": "shop/s14",
        "reason": "PoolExhausted",
        "error": "the queue is full",
    }
    advance(120)
    await asyncio.sleep(0.01)
    events.emit(note(name="s25"))
    await until(lambda: len(logged) == 3)
    assert logged[2]["dropped"] == 1
    assert REGISTRY.get_sample_value("kavip_events_dropped_total") == before + 16
