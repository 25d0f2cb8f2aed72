"""The moments of a feed: since when a picture may be outdated, and what a timeline begins with."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from kavip.cli.ui import feed
from kavip.cli.ui.board import Board, Moment
from kavip.cli.ui.feed import ClusterFeed, next_moment, of_files
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import AgentAnswers, Picture
from kavip.cli.views.picture.rows import TimelineRow
from kavip.errors import Unavailable
from tests.cli.ui.serving import NOW
from tests.support.pictureexample import agents, listing

PAST = (TimelineRow(id="0", at="2026-05-01T03:00:00Z", kind="Service", name="a/b", reason="Assigned", text="x"),)


def test_the_first_moment_has_the_past() -> None:
    """Nothing has changed before it."""
    first = next_moment(Moment(0, NOW, Picture()), listing(), agents(), PAST)
    assert (first.number, first.picture.timeline) == (1, PAST)
    second = next_moment(first, listing("node-a2"), agents("node-a2"), PAST)
    assert [each.text for each in second.picture.timeline] == ["x", "192.0.2.130: node-a1 → node-a2"]


def test_a_picture_ages_from_the_loss_of_the_watch() -> None:
    """Until then it was current, however long ago the last change was."""
    before = Moment(1, NOW, Picture())
    lost = next_moment(before, replace(listing(), watch_error="Unavailable"), agents(), ())
    assert lost.at > NOW and lost.error == "Unavailable"
    later = next_moment(lost, replace(listing(), watch_error="Unavailable"), agents(), ())
    assert later.at == lost.at
    assert next_moment(later, listing(), agents(), ()).at > lost.at


def test_files_are_one_moment() -> None:
    """It has a number that a reader of nothing awaits."""
    assert of_files(listing(), now=NOW).number == 1


async def test_a_closed_board_lets_nobody_wait() -> None:
    """A reader that waits gets the latest moment."""
    board = Board(Moment(1, NOW, Picture()))
    board.close()
    assert (await board.after(1, timeout=60)).number == 1


async def test_what_agents_said_stays_while_the_api_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch notices a server that is silent after a minute: the question to the agents shows it before."""
    answers = [agents()]

    async def ask(*_: Any) -> AgentAnswers:
        if answers:
            return answers.pop()
        await is_shown.wait()
        raise Unavailable(0, "Timeout", "the API server does not answer in time")

    async def watched(*_: Any) -> AsyncIterator[Listing]:
        yield listing()
        await asyncio.Event().wait()

    async def no_events(*_: Any) -> tuple[tuple[()], str]:
        return (), ""

    for name, value in (("ask_once", ask), ("watch_decisions", watched), ("past_events", no_events), ("_BETWEEN", 0.0)):
        monkeypatch.setattr(feed, name, value)
    is_shown = asyncio.Event()
    made = ClusterFeed(Mock(), "default")
    made.board.readers = 1
    following = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(60):
            before = await made.board.after(0, timeout=60)
            while not any(each.successor for each in before.picture.vips):
                before = await made.board.after(before.number, timeout=60)
            is_shown.set()
            after = await made.board.after(before.number, timeout=60)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert before.error == "" and after.error.endswith("does not answer in time")
    for section in ("vips", "members", "problems"):
        assert getattr(after.picture, section) == getattr(before.picture, section)
    assert "agents cannot be asked" in " ".join(each.text for each in after.picture.notes)
