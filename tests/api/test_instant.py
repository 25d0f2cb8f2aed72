"""Instants in JSON: parsing and formatting."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kavip.api.instant import instant_text, read_instant

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00.250Z", "2026-03-01T14:00:00.250+02:00", "2026-03-01T12:00:00.250"]
)
def test_an_instant_may_be_written_in_several_ways(text: str) -> None:
    """A text without a time zone is UTC."""
    assert read_instant(text) == NOON


@pytest.mark.parametrize("text", ["", "noon", "2026-02-30T12:00:00Z"])
def test_an_invalid_text_is_no_instant(text: str) -> None:
    """An invalid text gives None without an exception, because other programs write it."""
    assert read_instant(text) is None


def test_an_instant_is_written_in_one_way() -> None:
    """An instant is written in UTC, to the millisecond."""
    assert (
        instant_text(NOON) == instant_text(NOON.astimezone(timezone(timedelta(hours=2)))) == "2026-03-01T12:00:00.250Z"
    )
    assert instant_text(None) == ""
