"""
May a user set any external IP? kavip asks the API server by SubjectAccessReview.

The permission is ``create`` on ``services/externalips`` in all namespaces; on OpenShift it is the one that OpenShift
itself asks for, ``create`` on ``service/externalips`` of ``network.openshift.io``. No Role grants it, so a tenant with
all rights in one namespace is not exempt. kavip asks only if a refusal would follow, and caches the answer for half a
minute. If the request fails, the refusal stays.

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

_KUBERNETES: Final = {"verb": "create", "resource": "services", "subresource": "externalips"}
_OPENSHIFT: Final = {
    "verb": "create",
    "group": "network.openshift.io",
    "resource": "service",
    "subresource": "externalips",
}
"""``resourceAttributes`` of a SubjectAccessReview; without a namespace they mean all namespaces."""

log: Final = structlog.get_logger(__name__)


class ExternalIPAuthorizer:
    """Asks the API server by *client*, which nothing else should use; *clock* returns seconds."""

    def __init__(
        self,
        client: Client,
        *,
        is_openshift: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with an empty cache; *is_openshift* tells whether the cluster has OpenShift's kind Network."""
        self._client, self._is_openshift, self._clock = client, is_openshift, clock
        self._cache: dict[bytes, tuple[float, bool]] = {}  # oldest first
        self._asking: dict[bytes, asyncio.Task[bool]] = {}  # in flight or waiting
        self._places = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def may_set_external_ips(self, user: UserInfo) -> bool:
        """Whether *user* may set any external IP."""
        key = _key(user)
        self._expire()
        if key in self._cache:
            return self._cache[key][1]
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= MAX_IN_FLIGHT + MAX_WAITING:
                log.warning("no access review", error=f"{len(self._asking)} are in flight or wait")
                return False
            asking = self._asking[key] = asyncio.create_task(self._ask(key, user), name="access review")
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, key: bytes, user: UserInfo) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT), self._places:
                review = await self._client.create_review(
                    resources.SUBJECT_ACCESS_REVIEWS, _access_review(user, self._attributes), timeout=TIMEOUT
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

    @property
    def _attributes(self) -> dict[str, str]:
        return _OPENSHIFT if self._is_openshift() else _KUBERNETES


def _key(user: UserInfo) -> bytes:
    """A hash of everything that the answer depends on."""
    return hashlib.sha256(msgspec.json.encode(user, order="sorted")).digest()


def _access_review(user: UserInfo, attributes: dict[str, str]) -> dict[str, Any]:
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    return {"spec": {**spec, "resourceAttributes": attributes}}
