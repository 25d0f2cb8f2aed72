"""The moments of a feed: since when a picture may be outdated, and what a timeline begins with."""

from dataclasses import replace

from kavip.cli.ui.board import Board, Moment
from kavip.cli.ui.feed import next_moment, of_files
from kavip.cli.views.picture.picture import Picture
from kavip.cli.views.picture.rows import TimelineRow
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
