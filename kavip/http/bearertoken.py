"""
Access to a port by bearer token: reads the token of a request, and refuses a client whose token does not allow it.

An :class:`Authorize` decides what a token allows: with delegated authentication, the API server.
"""

import re
from enum import Enum
from typing import Final, Protocol

from aiohttp import hdrs, web

from kavip.http.shares import sender_of

MAX_TOKEN: Final = 6 * 1024
"""Characters of a token that are read; aiohttp refuses a header of 8 KiB. Those of ServiceAccounts have 1 to 2 KiB."""
_BEARER: Final = re.compile(rf"bearer +([!-~]{{1,{MAX_TOKEN}}}) *", re.IGNORECASE)


class Access(Enum):
    """Whether a client may read the port: the status and the text of the answer."""

    ALLOWED = 200, "ok"
    UNAUTHENTICATED = 401, "want a valid token: Authorization: Bearer TOKEN"
    FORBIDDEN = 403, "want the right to get this path: bind this account to the ClusterRole kavip-metrics-reader"
    THROTTLED = 429, "too many unknown tokens; retry later"
    UNAVAILABLE = 503, "the API server does not answer; see kavip's log"


class Authorize(Protocol):
    """Decides about the bearer of a token."""

    async def access(self, token: str, sender: bytes) -> Access:
        """Whether the bearer of *token*, sent from *sender* (:mod:`kavip.http.shares`), may read the port."""


async def refusal(request: web.BaseRequest, authorize: Authorize) -> web.Response | None:
    """The answer to *request* if *authorize* does not allow it; None if it does."""
    token = _token_of(request)
    found = await authorize.access(token, sender_of(request.remote or "::")) if token else Access.UNAUTHENTICATED
    if found is Access.ALLOWED:
        return None
    status, text = found.value
    headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if status == 401 else {}
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def _token_of(request: web.BaseRequest) -> str:
    """The token of *request*; "" without one, or if it is malformed."""
    given = request.headers.getall(hdrs.AUTHORIZATION, ())
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    return match[1] if match else ""
