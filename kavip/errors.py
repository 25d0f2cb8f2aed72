"""
The exceptions of kavip, one tree.

An ordinary refusal is a value (:class:`kavip.snapshot.Refusal`), not an exception. Exceptions are for input that is
not what its schema says, and for I/O::

    KavipError
    ├── BadInput               what somebody wrote cannot be read; names field, value and remedy
    │   └── UnsafeValue        a value that must not reach keepalived.conf
    ├── BadFile                a file of objects cannot be read; names file, document and line
    ├── SettingsError          a flag, variable or file of our own; exit status 2
    ├── LeaseLost              the lease could not be renewed in time
    ├── CachesStale            a new leader cannot read what is there; another shall lead
    ├── QueueClosed            the work queue was shut down; its workers end
    └── ApiError               the API server's answer, or its absence
        ├── NotFound           404
        ├── Conflict           409, a stale resourceVersion or a field manager's claim
        ├── AlreadyExists      409 with reason AlreadyExists
        ├── Gone               410, the watch must start again from a list
        ├── Forbidden          401, 403
        ├── Refused            400, 422 and other 4xx: sending it again will not help
        ├── Throttled          429; carries the server's Retry-After
        └── Unavailable        5xx, connection refused, reset or timed out
"""

import json


class KavipError(Exception):
    """Whatever kavip raises on purpose."""


class BadInput(KavipError):
    """What somebody wrote cannot be read. Says which field, which value, and what would be right."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        """Name *field* (a path such as ``spec.addresses[0]``), its *value*, and the *remedy*."""
        super().__init__(f"{field}: {_shown(value)}: {remedy}" if field else f"{_shown(value)}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


class UnsafeValue(BadInput):
    """A value that must not reach keepalived.conf."""


class BadFile(KavipError):
    """A file of objects cannot be read. Says which, where in it, and why."""

    def __init__(self, where: str, problem: str, *, document: int = 0, line: int = 0) -> None:
        """Name the file or stream *where*, the *document* and the *line* where they are known, and the *problem*."""
        parts = (where, f"document {document}" if document else "", f"line {line}" if line else "")
        super().__init__(f"{', '.join(filter(None, parts))}: {problem}")


class SettingsError(KavipError):
    """A setting of kavip's own is unknown or malformed; programs exit with status 2."""


class LeaseLost(KavipError):
    """The lease could not be renewed before its deadline."""


class CachesStale(KavipError):
    """A new leader could not read what its predecessor left."""


class QueueClosed(KavipError):
    """The work queue was shut down."""


class ApiError(KavipError):
    """The API server's answer to one call, or its absence."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        """Keep the HTTP *status* (0: no answer), the Status *reason* and *message*, and ``Retry-After`` in seconds."""
        super().__init__(f"{status or 'no answer'} {reason}: {message}")
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: a stale resourceVersion, or a field that another manager owns."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists."""


class Gone(ApiError):
    """410: the watch must start again from a list."""


class Forbidden(ApiError):
    """401 or 403."""


class Refused(ApiError):
    """400, 422 and other 4xx: sending it again will not help."""


class Throttled(ApiError):
    """429."""


class Unavailable(ApiError):
    """5xx, or a connection that was refused, reset or timed out."""


def _shown(value: object) -> str:
    """*value* as one short printable line: hostile input must not break a log or a terminal."""
    if isinstance(value, dict):
        text = json.dumps(value, default=str, skipkeys=True)  # as users write it
        return text if len(text) <= 120 else text[:100] + "..."
    text = repr(value)
    return text if len(text) <= 120 else text[:100] + "...'"
