"""
The exceptions that several packages of kavip use, in one tree.

An ordinary refusal is a value (:class:`kavip.api.refusal.Refusal`), not an exception. Exceptions are for malformed
input and for I/O::

    KavipError
    ├── BadInput               malformed input; names field, value and remedy
    │   └── UnsafeValue        a value that must not reach keepalived.conf
    ├── BadFile                a malformed file of objects; names file, document and line
    ├── BadFiles               several of these
    ├── SettingsError          a bad flag, variable or file of kavip itself; exit status 2
    ├── LeaseLost              the lease could not be renewed in time
    ├── CachesStale            a new leader cannot refresh its caches; another replica shall lead
    ├── QueueClosed            the work queue was shut down; its workers end
    ├── NftablesFailed         a node's nft cannot read or change its tables
    ├── NoAnswer               an agent, or the API server that an agent asks, does not answer as wanted
    └── ApiError               an error of the API server, or no answer
        ├── NotFound           404
        ├── Conflict           409, an old resourceVersion or a field of another manager
        ├── AlreadyExists      409 with reason AlreadyExists
        ├── Gone               410: list again
        ├── Forbidden          401, 403
        ├── Rejected           400, 422 and other 4xx: a retry does not help
        ├── Throttled          429; has the server's Retry-After
        └── Unavailable        5xx, connection refused, reset or timed out
"""

import json
from collections.abc import Sequence


class KavipError(Exception):
    """The base class."""


class BadInput(KavipError):
    """Malformed input. The message has the field, the value, and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        """*field* is a path such as ``spec.addresses[0]``."""
        super().__init__(f"{field}: {_shown(value)}: {remedy}" if field else f"{_shown(value)}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


class UnsafeValue(BadInput):
    """A value that must not reach keepalived.conf."""


class BadFile(KavipError):
    """A malformed file of objects. The message has the place, but not the *column*, and the *problem*."""

    def __init__(self, where: str, problem: str, *, document: int = 0, line: int = 0, column: int = 0) -> None:
        """*where* is the file or stream; *document*, *line* and *column* are 0 if they are unknown."""
        parts = (where, f"document {document}" if document else "", f"line {line}" if line else "")
        super().__init__(f"{', '.join(filter(None, parts))}: {problem}")
        self.problem, self.line, self.column = problem, line, column


class BadFiles(KavipError):
    """Several problems with files; each is shown as it would be alone."""

    def __init__(self, errors: Sequence[BadFile]) -> None:
        """*errors*, in the order of the files."""
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


class SettingsError(KavipError):
    """A setting of kavip is unknown or malformed; programs exit with status 2."""


class LeaseLost(KavipError):
    """The lease could not be renewed before its deadline."""


class CachesStale(KavipError):
    """A new leader could not refresh its caches in time."""


class QueueClosed(KavipError):
    """The work queue was shut down."""


class NftablesFailed(KavipError):
    """The program ``nft`` of a node cannot read or change tables. The message is its first line."""


class NoAnswer(KavipError):
    """A server did not answer an agent as wanted; the text is kavip's, and holds nothing of the answer."""


class ApiError(KavipError):
    """An error response to one call, or no response."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        """*status* is the HTTP status, 0 without an answer; *reason* and *message* are those of the Status."""
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: an old resourceVersion, or a field of another manager."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists."""


class Gone(ApiError):
    """410: the version has expired; list again."""


class Forbidden(ApiError):
    """401 or 403."""


class Rejected(ApiError):
    """400, 422 and other 4xx: a retry does not help."""


class Throttled(ApiError):
    """429."""


class Unavailable(ApiError):
    """5xx, or a connection that failed or timed out."""


def _shown(value: object) -> str:
    """*value* as one short printable line, which is safe for logs and terminals."""
    if isinstance(value, dict):
        text = json.dumps(value, default=str, skipkeys=True)  # as users write it
        return text if len(text) <= 120 else text[:100] + "..."
    text = repr(value)
    return text if len(text) <= 120 else text[:100] + "...'"
