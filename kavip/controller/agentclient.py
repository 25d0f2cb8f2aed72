"""
Reads a page of an agent, bounded in time and size; of one that is equal to the last answer only that it is.
"""

import re
from http import HTTPStatus
from typing import Final, NamedTuple

import aiohttp

from kavip.api.agent import VIPS_BY_HASH

_TIMEOUT: Final = 3.0  # an agent waits 2 s for a keepalived that hangs (agent.keepalived.process.BUDGET), and says so
_LARGEST: Final = 2 * 2**20  # bytes; 20,000 VIPs in 510 instances are one megabyte
_TAG: Final = re.compile(r'"[0-9a-f]{32}"')


class Page(NamedTuple):
    """The *body* of a page, and its entity tag; None: the caller has the body already."""

    body: bytes | None
    tag: str = ""


async def get(session: aiohttp.ClientSession, url: str, *, tag: str = "", by_hash: bool = False) -> Page:
    """
    The page at *url*; without its body if it still has the entity tag *tag* (RFC 9110, section 13.1.2).

    *by_hash*: long lists of VIPs may be replaced by their hashes (:func:`kavip.api.agent.by_hash`).

    Raises :class:`aiohttp.ClientError`, :class:`TimeoutError`, or :class:`ValueError` for a page that is too long.
    """
    timeout, headers = aiohttp.ClientTimeout(total=_TIMEOUT), {"If-None-Match": tag} if tag else {}
    if by_hash:
        headers["Prefer"] = VIPS_BY_HASH
    async with session.get(url, timeout=timeout, allow_redirects=False, headers=headers) as response:
        response.raise_for_status()
        if tag and response.status == HTTPStatus.NOT_MODIFIED:
            return Page(None, tag)
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _LARGEST:
                raise ValueError(f"answer is longer than {_LARGEST} bytes")
        found = response.headers.get("ETag", "")
        return Page(bytes(body), found if _TAG.fullmatch(found) else "")
