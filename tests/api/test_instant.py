"""Instants of JSON: what is read, what is written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kavip.api.instant import instant_text, read_instant

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00.250Z", "2026-03-01T14:00:00.250+02:00", "2026-03-01T12:00:00.250"]
)
def test_an_instant_may_be_written_in_several_ways(text: str) -> None:
    """Without a time zone it is UTC."""
    assert read_instant(text) == NOON


@pytest.mark.parametrize("text", ["", "noon", "2026-02-30T12:00:00Z"])
def test_what_is_none_is_none(text: str) -> None:
    """Nothing is raised: others write this text."""
    assert read_instant(text) is None


def test_an_instant_is_written_in_one_way() -> None:
    """In UTC, to the millisecond."""
    assert (
        instant_text(NOON) == instant_text(NOON.astimezone(timezone(timedelta(hours=2)))) == "2026-03-01T12:00:00.250Z"
    )
    assert instant_text(None) == ""
