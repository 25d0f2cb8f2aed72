"""
Whether a user may set any external IP: the API server decides, by SubjectAccessReview.

The permission is ``create`` on ``services/externalips`` in all namespaces; on OpenShift it is the one that OpenShift
itself asks for, ``create`` on ``service/externalips`` of ``network.openshift.io``. No Role grants it, so a tenant with
all rights in one namespace is not exempt. The review is sent only if a refusal would follow. If it fails, the refusal
stays.

Any client of the webhook's port can cause such reviews: :mod:`kavip.kube.reviewer` bounds them.
"""

import time
from collections.abc import Callable
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


class ExternalIPAuthorizer:
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

        async def ask() -> bool:
            attributes = {"resourceAttributes": _OPENSHIFT if self._is_openshift() else _KUBERNETES}
            return await is_allowed(self._client, user, attributes, timeout=self._timeout)

        return bool(await self._reviewer.answer(key_of(msgspec.json.encode(user, order="sorted")), ask))
