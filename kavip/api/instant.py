"""Instants as JSON has them where a second is too long: RFC 3339 in UTC, to the millisecond."""

from datetime import UTC, datetime


def read_instant(text: str) -> datetime | None:
    """The instant that *text* names, in UTC where it does not say; None: it names none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def instant_text(instant: datetime | None) -> str:
    """*instant* in UTC; "" for none."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if instant else ""
