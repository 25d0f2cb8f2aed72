"""The stream of pictures, the page of a Service, and the files of the page."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from kavip.cli.ui.files import FOLDER, SCRIPTS
from kavip.cli.ui.server import LIMITS, MOST_STREAMS
from tests.cli.ui.serving import PAGE, Reader, moment, next_event, serving

FOREIGN = re.compile(r"https?://|//[a-z]")
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|dangerouslySet|[^-]style:"
)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    """A server, and a client with a session."""
    async with serving() as made:
        await made.log_in()
        yield made


# --- the stream -------------------------------------------------------------------------------------------------------
async def test_a_stream_begins_with_the_whole_picture(reader: Reader) -> None:
    """Then it says whether the picture is current."""
    async with reader.get("/events") as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        picture = await next_event(answer, "picture")
        state = await next_event(answer, "state")
    assert picture["problems"]["set"][0]["name"] == "intranet/mail"
    assert (state["source"], state["isLive"], state["error"]) == ("https://k8s.example.com:6443", True, "")


async def test_a_change_sends_only_what_differs(reader: Reader) -> None:
    """A VIP that moves."""
    async with reader.get("/events") as answer:
        await next_event(answer, "picture")
        reader.board.publish(moment(2, "node-a2"))
        change = await next_event(answer, "change")
    assert [(each["address"], each["node"]) for each in change["vips"]["set"]] == [("192.0.2.130", "node-a2")]
    assert change["vips"]["drop"] == []


async def test_pictures_between_are_skipped(reader: Reader) -> None:
    """A burst is one message, and leads to the last picture."""
    async with reader.get("/events") as answer:
        await next_event(answer, "picture")
        for number in range(2, 50):
            reader.board.publish(moment(number, "node-a2" if number % 2 else "node-b1"))
        change = await next_event(answer, "change")
        reader.board.publish(moment(50, "node-b1"))
        last = await next_event(answer, "change")
    assert [each["node"] for each in change["vips"]["set"]] == ["node-a2"]
    assert [each["node"] for each in last["vips"]["set"]] == ["node-b1"]


async def test_a_lost_watch_is_said(reader: Reader) -> None:
    """With the age of the picture."""
    async with reader.get("/events") as answer:
        await next_event(answer, "state")
        reader.board.publish(moment(2, error="Unavailable"))
        state = await next_event(answer, "state")
        while not state["error"]:
            state = await next_event(answer, "state")
    assert state["error"] == "Unavailable" and state["age"] > 0 and state["at"].startswith("2026-05-01T04:00:00")


async def test_streams_are_bounded(reader: Reader) -> None:
    """One more is refused, and gets a place when another one ends."""
    async with AsyncExitStack() as stack:
        for _ in range(MOST_STREAMS):
            answer = await stack.enter_async_context(reader.get("/events"))
            await next_event(answer, "picture")
        async with reader.get("/events") as answer:
            assert answer.status == 503
    async with asyncio.timeout(60):
        while reader.board.readers:
            reader.board.publish(moment(reader.board.latest.number + 1))
            await asyncio.sleep(0.01)
    async with reader.get("/events") as answer:
        assert answer.status == 200


async def test_connections_are_bounded(reader: Reader) -> None:
    """Connections that say nothing do not keep a reader out, and do not end its stream."""
    async with reader.get("/events") as answer:
        await next_event(answer, "picture")
        idle = [await asyncio.open_connection("127.0.0.1", reader.port) for _ in range(2 * LIMITS.connections)]
        async with reader.get("/service?name=billing/api") as page:
            assert page.status == 200
        reader.board.publish(moment(2, "node-a2"))
        assert await next_event(answer, "change")
        for _, out in idle:
            out.close()


# --- a Service --------------------------------------------------------------------------------------------------------
async def test_the_page_of_a_service(reader: Reader) -> None:
    """It is JSON that no browser takes for something else."""
    async with reader.get("/service?name=search/lab") as answer:
        page = await answer.json()
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert page["name"] == "search/lab" and page["steps"][1]["reason"] == "PoolNotFound"


@pytest.mark.parametrize("name", ["", "no/such", "%3Cscript%3E", "a%00b/c", "x" * 1000])
async def test_a_service_that_does_not_exist(reader: Reader, name: str) -> None:
    """The answer is plain text."""
    async with reader.get(f"/service?name={name}") as answer:
        assert (answer.status, answer.content_type) == (404, "text/plain")


# --- the files --------------------------------------------------------------------------------------------------------
async def test_every_answer_has_the_policy(reader: Reader) -> None:
    """No inline script or style, no other server, no frame; markup cannot be made of text."""
    for path in (*PAGE, "/nothing", "/service?name=billing/api"):
        async with reader.get(path) as answer:
            policy = dict(each.split(" ", 1) for each in answer.headers["Content-Security-Policy"].split("; "))
            assert answer.headers["Cache-Control"] == "no-store"
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"


def test_the_page_needs_no_other_server_and_makes_no_markup_of_text() -> None:
    """Its files name no other server, use no sink of markup, and have no inline script or style."""
    for name in ("index.html", *SCRIPTS, "style.css"):
        text = (FOLDER / name).read_text()
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        assert not FOREIGN.search(code), name
        assert not SINKS.search(code), name
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=", page)


def test_the_library_is_the_published_one() -> None:
    """Preact 11.2.0, unchanged, with its licence beside it."""
    assert hashlib.sha256((FOLDER / "preact.mjs").read_bytes()).hexdigest() == (
        "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55"
    )
    assert "MIT License" in (FOLDER / "preact.LICENSE").read_text()


def test_every_file_of_the_page_is_served() -> None:
    """Except the licence."""
    assert {each.name for each in FOLDER.iterdir()} == {path.strip("/") or "index.html" for path in PAGE} | {
        "preact.LICENSE"
    }
