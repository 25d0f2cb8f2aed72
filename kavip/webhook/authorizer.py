"""
May a user set any external IP? kavip asks the API server by SubjectAccessReview.

The permission is that of OpenShift: ``create`` on ``services/externalips`` in the namespace of the Service. kavip asks
only if a refusal would follow, and caches the answer for half a minute. If the request fails, the refusal stays.

Anybody who reaches the port of the webhook can make kavip ask. So few requests are in flight at once, equal ones are
sent once, few wait, and the others are not sent. Answers are kept under a hash of the user until they expire.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from kavip.api.review import UserInfo
from kavip.errors import ApiError, BadInput
from kavip.kube import resources
from kavip.kube.client import Client

TIMEOUT: Final = 1.0
CACHE_SECONDS: Final = 30.0
MAX_IN_FLIGHT: Final = 4
MAX_WAITING: Final = 60
MAX_CACHED: Final = 1024

log: Final = structlog.get_logger(__name__)


class ExternalIPAuthorizer:
    """Asks the API server by *client*, which nothing else should use; *clock* returns seconds."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache."""
        self._client, self._clock = client, clock
        self._cache: dict[bytes, tuple[float, bool]] = {}  # oldest first
        self._asking: dict[bytes, asyncio.Task[bool]] = {}  # in flight or waiting
        self._places = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def may_set_external_ips(self, user: UserInfo, namespace: str) -> bool:
        """Whether *user* may set any external IP on Services of *namespace*."""
        key = _key(user, namespace)
        self._expire()
        if key in self._cache:
            return self._cache[key][1]
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= MAX_IN_FLIGHT + MAX_WAITING:
                log.warning("no access review", error=f"{len(self._asking)} are in flight or wait")
                return False
            asking = self._asking[key] = asyncio.create_task(self._ask(key, user, namespace), name="access review")
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, key: bytes, user: UserInfo, namespace: str) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT), self._places:
                review = await self._client.create_review(
                    resources.SUBJECT_ACCESS_REVIEWS, _access_review(user, namespace), timeout=TIMEOUT
                )
        except (ApiError, BadInput, TimeoutError) as error:
            log.warning("access review failed", error=str(error) or "timed out")
            return False
        allowed = review.status.allowed and not review.status.denied
        self._cache[key] = self._clock(), allowed
        while len(self._cache) > MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return allowed

    def _expire(self) -> None:
        oldest = self._clock() - CACHE_SECONDS
        while self._cache:
            key, (asked, _) = next(iter(self._cache.items()))
            if asked > oldest:
                return
            del self._cache[key]


def _key(user: UserInfo, namespace: str) -> bytes:
    """A hash of everything that the answer depends on."""
    return hashlib.sha256(msgspec.json.encode((user, namespace), order="sorted")).digest()


def _access_review(user: UserInfo, namespace: str) -> dict[str, Any]:
    attributes = {"namespace": namespace, "verb": "create", "resource": "services", "subresource": "externalips"}
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    return {"spec": {**spec, "resourceAttributes": attributes}}
