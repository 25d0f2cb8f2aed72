"""
May a user set any external IP? kavip asks the API server by SubjectAccessReview.

The permission is that of OpenShift: ``create`` on ``services/externalips`` in the namespace of the Service. kavip asks
only if a refusal would follow, and caches the answer for half a minute. If the request fails, the refusal stays.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from kavip.api.review import UserInfo
from kavip.errors import ApiError, BadInput
from kavip.kube import resources
from kavip.kube.client import Client

TIMEOUT: Final = 1.0
CACHE_SECONDS: Final = 30.0
_MAX_CACHED: Final = 1024

log: Final = structlog.get_logger(__name__)

_Key = tuple[str, str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], str]


class ExternalIPAuthorizer:
    """Asks the API server by *client*; *clock* returns seconds."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache."""
        self._client, self._clock = client, clock
        self._cache: dict[_Key, tuple[float, bool]] = {}  # oldest first

    async def may_set_external_ips(self, user: UserInfo, namespace: str) -> bool:
        """Whether *user* may set any external IP on Services of *namespace*."""
        key = _key(user, namespace)
        now = self._clock()
        asked, cached = self._cache.get(key, (now - CACHE_SECONDS, False))
        if now - asked < CACHE_SECONDS:
            return cached
        try:
            review = await self._client.create_review(
                resources.SUBJECT_ACCESS_REVIEWS, _access_review(user, namespace), timeout=TIMEOUT
            )
        except (ApiError, BadInput) as error:
            log.warning("access review failed", error=str(error))
            return False
        allowed = review.status.allowed and not review.status.denied
        self._cache.pop(key, None)
        self._cache[key] = self._clock(), allowed
        while len(self._cache) > _MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return allowed


def _key(user: UserInfo, namespace: str) -> _Key:
    extra = tuple(sorted((name, tuple(values)) for name, values in (user.extra or {}).items()))
    return user.username, user.uid, tuple(user.groups or ()), extra, namespace


def _access_review(user: UserInfo, namespace: str) -> dict[str, Any]:
    attributes = {"namespace": namespace, "verb": "create", "resource": "services", "subresource": "externalips"}
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    return {"spec": {**spec, "resourceAttributes": attributes}}
