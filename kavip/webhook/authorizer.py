"""
What a user may do beyond the rules: the API server decides, by SubjectAccessReview.

To set any external IP, the permission is ``create`` on ``services/externalips`` in all namespaces; on OpenShift it is
the one that OpenShift itself asks for, ``create`` on ``service/externalips`` of ``network.openshift.io``. No Role
grants it, so a tenant with all rights in one namespace is not exempt. To write a template of pods, it is ``create`` on
``daemonsets`` in the namespace of the group. The review is sent only if a refusal would follow. If it fails, the
refusal stays.

Any client of the webhook's port can cause such reviews: :mod:`kavip.kube.reviewer` bounds them.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kavip.api.review import UserInfo
from kavip.kube.client import Client
from kavip.kube.reviewer import Reviewer, is_allowed, key_of

TIMEOUT: Final = 1.0

_KUBERNETES: Final = {"verb": "create", "resource": "services", "subresource": "externalips"}
_OPENSHIFT: Final = {
    "verb": "create",
    "group": "network.openshift.io",
    "resource": "service",
    "subresource": "externalips",
}
"""``resourceAttributes`` of a SubjectAccessReview; without a namespace they mean all namespaces."""
_DAEMON_SETS: Final = {"verb": "create", "group": "apps", "resource": "daemonsets"}


class Authorizer:
    """Sends the reviews by *client*, which nothing else should use; *clock* returns seconds."""

    def __init__(
        self,
        client: Client,
        *,
        is_openshift: Callable[[], bool] = lambda: False,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without answers; *is_openshift*: whether the cluster has OpenShift's kind Network."""
        self._client, self._is_openshift, self._timeout = client, is_openshift, timeout
        self._reviewer = Reviewer[bool](timeout=timeout, clock=clock)

    async def may_set_external_ips(self, user: UserInfo) -> bool:
        """Whether *user* may set any external IP."""
        return await self._may(user, _OPENSHIFT if self._is_openshift() else _KUBERNETES)

    async def may_create_daemon_sets(self, user: UserInfo, namespace: str) -> bool:
        """Whether *user* may create DaemonSets in *namespace*."""
        return await self._may(user, {**_DAEMON_SETS, "namespace": namespace})

    async def _may(self, user: UserInfo, attributes: Mapping[str, str]) -> bool:
        async def ask() -> bool:
            return await is_allowed(self._client, user, {"resourceAttributes": attributes}, timeout=self._timeout)

        key = key_of(msgspec.json.encode([user, attributes], order="sorted"))
        return bool(await self._reviewer.answer(key, ask))
