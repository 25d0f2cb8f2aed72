"""
May this user set external IPs whatever kavip's rules say?

The verb is that of OpenShift: ``create`` on ``services/externalips`` in the Service's namespace. It is asked of the API
server, only where a refusal would follow, and remembered for half a minute. No answer is a no: the refusal stands.
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
REMEMBERED: Final = 30.0
_MOST: Final = 1024  # answers kept

log: Final = structlog.get_logger(__name__)

_Key = tuple[str, str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], str]


class Access:
    """Asks by *client*; seconds come from *clock*."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known yet."""
        self._client, self._clock = client, clock
        self._known: dict[_Key, tuple[float, bool]] = {}  # oldest first

    async def may_set_external_ips(self, user: UserInfo, namespace: str) -> bool:
        """Whether *user* may set any external IP on Services of *namespace*."""
        key = _key(user, namespace)
        now = self._clock()
        asked, known = self._known.get(key, (now - REMEMBERED, False))
        if now - asked < REMEMBERED:
            return known
        try:
            answer = await self._client.ask(resources.ACCESS, _question(user, namespace), timeout=TIMEOUT)
        except (ApiError, BadInput) as error:
            log.warning("cannot ask who may set external IPs", why=str(error))
            return False
        allowed = answer.status.allowed and not answer.status.denied
        self._known.pop(key, None)
        self._known[key] = self._clock(), allowed
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return allowed


def _key(user: UserInfo, namespace: str) -> _Key:
    extra = tuple(sorted((name, tuple(values)) for name, values in (user.extra or {}).items()))
    return user.username, user.uid, tuple(user.groups or ()), extra, namespace


def _question(user: UserInfo, namespace: str) -> dict[str, Any]:
    attributes = {"namespace": namespace, "verb": "create", "resource": "services", "subresource": "externalips"}
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups or [], "extra": user.extra or {}}
    return {"spec": {**spec, "resourceAttributes": attributes}}
