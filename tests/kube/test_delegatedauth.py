"""Which tokens may get /metrics: few reviews are sent to the API server, whatever tokens clients send."""

import asyncio
from typing import Any, cast

import pytest

from kavip import names
from kavip.api.access import AccessStatus, SubjectAccessReview, TokenReview, TokenStatus
from kavip.api.review import UserInfo
from kavip.errors import Unavailable
from kavip.http.bearertoken import Access
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.delegatedauth import BURST, KNOWN_SECONDS, MAX_KNOWN, PER_SECOND, SENDER_BURST, DelegatedAuth
from kavip.kube.reviewer import CACHE_SECONDS, MAX_IN_FLIGHT
from tests.support.manualclock import ManualClock

PROMETHEUS, OTHER = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"
USERS = {"good": "prometheus", "mean": "tenant"}


class FakeClient:
    """Authenticates *users* by their tokens, and permits prometheus to get /metrics."""

    def __init__(self) -> None:
        """Answer at once."""
        self.users = dict(USERS)
        self.tokens, self.accesses = list[str](), list[dict[str, Any]]()
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_down = False

    async def create_review(self, resource: object, body: Any, *, timeout: float) -> TokenReview | SubjectAccessReview:
        """Answer one review."""
        assert timeout > 0
        if self.is_down:
            raise Unavailable(0, "NoConnection", "down")
        spec = body["spec"]
        if resource is not resources.TOKEN_REVIEWS:
            self.accesses.append(spec)
            return SubjectAccessReview(status=AccessStatus(allowed=spec["user"] == "prometheus"))
        self.tokens.append(spec["token"])
        await self.gate.wait()
        name = self.users.get(spec["token"], "")
        user = UserInfo(username=name, uid="u", groups=["system:serviceaccounts"], extra={"pod": ["p"]})
        return TokenReview(status=TokenStatus(authenticated=bool(name), user=user if name else UserInfo()))


@pytest.fixture
def client() -> FakeClient:
    """An API server."""
    return FakeClient()


@pytest.fixture
def clock() -> ManualClock:
    """The time."""
    return ManualClock()


@pytest.fixture
def auth(client: FakeClient, clock: ManualClock) -> DelegatedAuth:
    """Asks *client*."""
    return DelegatedAuth(cast("Client", client), names.METRICS_PATH, timeout=60.0, clock=clock)


async def test_the_api_server_decides(auth: DelegatedAuth, client: FakeClient) -> None:
    """A TokenReview names the user; a SubjectAccessReview with all its attributes asks for the path."""
    answers = [await auth.access(token, OTHER) for token in ("good", "mean", "none")]
    assert answers == [Access.ALLOWED, Access.FORBIDDEN, Access.UNAUTHENTICATED]
    assert client.accesses[0] == {
        "user": "prometheus",
        "uid": "u",
        "groups": ["system:serviceaccounts"],
        "extra": {"pod": ["p"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }
    assert len(client.accesses) == 2


async def test_answers_are_kept_for_half_a_minute(auth: DelegatedAuth, client: FakeClient, clock: ManualClock) -> None:
    """Refusals too; then the API server is asked again, so a revoked token ends."""
    for _ in range(10):
        await auth.access("none", OTHER)
        await auth.access("good", PROMETHEUS)
    assert sorted(client.tokens) == ["good", "good", "none"]  # the second answer about good is kept for known tokens
    client.users.clear()
    assert await auth.access("good", PROMETHEUS) is Access.ALLOWED
    clock.now += CACHE_SECONDS
    assert await auth.access("good", PROMETHEUS) is Access.UNAUTHENTICATED
    assert auth._allowed == {}


async def test_without_an_answer_no_page_is_served(auth: DelegatedAuth, client: FakeClient, clock: ManualClock) -> None:
    """A known token is refused too once its answer has expired, and served again when the API server answers."""
    await auth.access("good", PROMETHEUS)
    clock.now += CACHE_SECONDS
    client.is_down = True
    assert await auth.access("good", PROMETHEUS) is Access.UNAVAILABLE
    client.is_down = False
    assert await auth.access("good", PROMETHEUS) is Access.ALLOWED


async def test_a_flood_from_one_sender_costs_its_bucket(
    auth: DelegatedAuth, client: FakeClient, clock: ManualClock
) -> None:
    """Its other tokens are refused unasked, and a new token of another sender is asked about."""
    answers = [await auth.access(f"bad{number}", OTHER) for number in range(5000)]
    assert answers.count(Access.UNAUTHENTICATED) == len(client.tokens) == SENDER_BURST
    assert answers.count(Access.THROTTLED) == 5000 - SENDER_BURST
    assert await auth.access("good", PROMETHEUS) is Access.ALLOWED
    clock.now += 1
    await auth.access("bad", OTHER)
    await auth.access("worse", OTHER)
    assert client.tokens[SENDER_BURST:] == ["good", "bad"]


async def test_a_flood_from_many_senders_costs_one_bucket(
    auth: DelegatedAuth, client: FakeClient, clock: ManualClock
) -> None:
    """A token that was allowed before is still asked about, even from a sender whose bucket is empty."""
    await auth.access("good", PROMETHEUS)
    asked = len(client.tokens)
    for second in range(10):
        clock.now = float(second)
        for number in range(500):
            await auth.access(f"bad{second}-{number}", number.to_bytes(4, "big"))
        for number in range(SENDER_BURST):
            await auth.access(f"own{second}-{number}", PROMETHEUS)
    assert len(client.tokens) - asked <= BURST + 9 * PER_SECOND
    clock.now += CACHE_SECONDS
    for number in range(500):
        await auth.access(f"more{number}", number.to_bytes(4, "big"))
    assert await auth.access("other", PROMETHEUS) is Access.THROTTLED
    assert await auth.access("good", PROMETHEUS) is Access.ALLOWED


async def test_unanswered_reviews_do_not_delay_a_known_token(auth: DelegatedAuth, client: FakeClient) -> None:
    """Few unknown tokens are in flight; a known one has places of its own."""
    await auth.access("good", PROMETHEUS)
    asked = len(client.tokens)
    client.gate.clear()
    asking = [asyncio.create_task(auth.access(f"bad{n}", n.to_bytes(4, "big"))) for n in range(BURST - 1)]
    known = asyncio.create_task(auth.access("good", PROMETHEUS))
    while client.tokens[-1] != "good" or len(client.tokens) == asked:
        await asyncio.sleep(0)
    assert len(client.tokens) - asked == MAX_IN_FLIGHT + 1
    client.gate.set()
    assert await known is Access.ALLOWED
    await asyncio.gather(*asking)


async def test_known_tokens_are_bounded_and_forgotten(
    auth: DelegatedAuth, client: FakeClient, clock: ManualClock
) -> None:
    """At most 256, by hash, for an hour after the last time."""
    for number in range(2 * MAX_KNOWN):
        client.users[f"good{number}"] = "prometheus"
        clock.now += 1
        await auth.access(f"good{number}", PROMETHEUS)
    assert len(auth._allowed) == MAX_KNOWN
    assert {len(key) for key in auth._allowed} == {32}
    clock.now += KNOWN_SECONDS
    for number in range(SENDER_BURST):
        await auth.access(f"bad{number}", PROMETHEUS)
    assert await auth.access(f"good{2 * MAX_KNOWN - 1}", PROMETHEUS) is Access.THROTTLED
