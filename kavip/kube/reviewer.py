"""
Reviews by the API server, such as SubjectAccessReviews: bounded, deduplicated and cached.

Clients without credentials can cause them. So few are in flight, equal ones are sent once, few others wait for a
moment, and the rest is not sent. Answers are cached under a hash until they expire, so a review of any size costs
32 bytes. Failures are not cached. The client should be used for nothing else, so that reviews never delay the renewal
of the lease.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import structlog

from kavip.api.review import UserInfo
from kavip.errors import ApiError, BadInput
from kavip.kube import resources
from kavip.kube.client import Client

CACHE_SECONDS: Final = 30.0
MAX_IN_FLIGHT: Final = 4
MAX_WAITING: Final = 60
MAX_CACHED: Final = 1024
_LOG_SECONDS: Final = 60.0  # between two lines: clients determine how often a review fails

A = TypeVar("A")

log: Final = structlog.get_logger(__name__)


class Reviewer(Generic[A]):
    """Sends reviews, and caches the answers; *timeout* bounds a review, with its wait; *clock* returns seconds."""

    def __init__(self, *, timeout: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache."""
        self._timeout, self._clock = timeout, clock
        self._cache: dict[bytes, tuple[float, A]] = {}  # oldest first
        self._asking: dict[bytes, asyncio.Task[A | None]] = {}  # in flight or waiting
        self._places = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._logged = -_LOG_SECONDS

    def cached(self, key: bytes) -> A | None:
        """The cached answer to the review *key*, if there is one."""
        self._expire()
        found = self._cache.get(key)
        return None if found is None else found[1]

    async def answer(self, key: bytes, ask: Callable[[], Awaitable[A]]) -> A | None:
        """The answer to the review *key*, by *ask* if it is not cached; None if it fails."""
        if (found := self.cached(key)) is not None:
            return found
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= MAX_IN_FLIGHT + MAX_WAITING:
                self._log(f"{len(self._asking)} are in flight or wait")
                return None
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask), name="review")
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, key: bytes, ask: Callable[[], Awaitable[A]]) -> A | None:
        try:
            async with asyncio.timeout(self._timeout), self._places:
                answer = await ask()
        except (ApiError, BadInput, TimeoutError) as error:
            self._log(str(error) or "timed out")
            return None
        self._cache[key] = self._clock(), answer
        while len(self._cache) > MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return answer

    def _expire(self) -> None:
        oldest = self._clock() - CACHE_SECONDS
        while self._cache:
            key, (answered_at, _) = next(iter(self._cache.items()))
            if answered_at > oldest:
                return
            del self._cache[key]

    def _log(self, error: str) -> None:
        now = self._clock()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning("no answer to a review", error=error)


def key_of(review: bytes) -> bytes:
    """The key of *review*: a hash of everything that the answer depends on."""
    return hashlib.sha256(review).digest()


async def is_allowed(client: Client, user: UserInfo, attributes: dict[str, Any], *, timeout: float) -> bool:
    """Whether *user* may do what *attributes* say: ``resourceAttributes`` or ``nonResourceAttributes``."""
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    body = {"spec": {**spec, **attributes}}
    review = await client.create_review(resources.SUBJECT_ACCESS_REVIEWS, body, timeout=timeout)
    return review.status.allowed and not review.status.denied
