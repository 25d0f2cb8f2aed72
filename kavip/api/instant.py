"""Timestamps with milliseconds, for which ``metav1.Time`` is too coarse: RFC 3339 in UTC."""

from datetime import UTC, datetime


def read_instant(text: str) -> datetime | None:
    """The instant in *text*, read as UTC if it has no time zone; None if *text* is not an instant."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def instant_text(instant: datetime | None) -> str:
    """*instant* in UTC; "" for none."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if instant else ""
