"""
Delegated authentication and authorization: the API server decides which tokens may get a path.

A TokenReview names the user of a token, a SubjectAccessReview says whether that user may ``get`` the nonResourceURL.
This is what controller-runtime does for ``/metrics``. Answers are kept for half a minute, refusals too.

A client may send any number of tokens. :mod:`kavip.kube.reviewer` bounds what is in flight and in memory. Here, an
unknown token also takes one from a bucket of its sender, and one from a bucket for all senders. A token that was
allowed within the last hour is known: it takes from no bucket, and unknown tokens neither delay its review nor displace
its answer.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kavip.http.bearertoken import Access
from kavip.http.ratelimit import SenderRateLimiter
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.reviewer import Reviewer, is_allowed, key_of

TIMEOUT: Final = 3.0
"""Seconds for both reviews and the wait for them; a scrape has 5 (:class:`kavip.http.connection.Limits`)."""
SENDER_BURST: Final = 10
SENDER_PER_SECOND: Final = 1.0
BURST: Final = 50
PER_SECOND: Final = 10.0
KNOWN_SECONDS: Final = 3600.0  # the default lifetime of the token of a ServiceAccount
MAX_KNOWN: Final = 256


class DelegatedAuth:
    """Sends the reviews by *client*, which nothing else should use; *clock* returns seconds."""

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Decide about *path*; no token is known."""
        self._client, self._timeout, self._clock = client, timeout, clock
        self._wanted = {"nonResourceAttributes": {"path": path, "verb": "get"}}
        self._unknown = Reviewer[Access](timeout=timeout, clock=clock)
        self._known = Reviewer[Access](timeout=timeout, clock=clock)
        self._allowed: dict[bytes, float] = {}  # known tokens, and when each was last allowed; oldest first
        self._by_sender = SenderRateLimiter(burst=SENDER_BURST, per_second=SENDER_PER_SECOND, clock=clock)
        self._overall = SenderRateLimiter(burst=BURST, per_second=PER_SECOND, clock=clock)

    async def access(self, token: str, sender: bytes) -> Access:
        """Whether the bearer of *token*, sent from *sender*, may get the path."""
        key = key_of(token.encode())
        is_known = key in self._allowed and self._clock() - self._allowed[key] < KNOWN_SECONDS
        reviewer = self._known if is_known else self._unknown
        if not is_known and reviewer.cached(key) is None and not self._may_ask(sender):
            return Access.THROTTLED
        answer = await reviewer.answer(key, partial(self._ask, token))
        if answer is not None:
            self._remember(key, answer)
        return answer or Access.UNAVAILABLE

    def _may_ask(self, sender: bytes) -> bool:
        return self._by_sender.take(sender) and self._overall.take(None)

    async def _ask(self, token: str) -> Access:
        review = await self._client.create_review(
            resources.TOKEN_REVIEWS, {"spec": {"token": token}}, timeout=self._timeout
        )
        if not review.status.authenticated:
            return Access.UNAUTHENTICATED
        allowed = await is_allowed(self._client, review.status.user, self._wanted, timeout=self._timeout)
        return Access.ALLOWED if allowed else Access.FORBIDDEN

    def _remember(self, key: bytes, answer: Access) -> None:
        self._allowed.pop(key, None)
        if answer is Access.ALLOWED:
            self._allowed[key] = self._clock()
            while len(self._allowed) > MAX_KNOWN:
                del self._allowed[next(iter(self._allowed))]
