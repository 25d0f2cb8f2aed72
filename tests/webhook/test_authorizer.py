"""Which users may set any external IP: a real API server with RBAC decides."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip.admission.verdict import Verdict
from kavip.api.access import AccessStatus, SubjectAccessReview
from kavip.api.refusal import Refusal
from kavip.api.review import UserInfo
from kavip.kube.client import Client
from kavip.names import VALIDATE_SERVICE_PATH, Reason
from kavip.snapshot import Snapshot
from kavip.webhook import authorizer as authorizing
from kavip.webhook.authorizer import CACHE_SECONDS, MAX_IN_FLIGHT, MAX_WAITING, ExternalIPAuthorizer
from kavip.webhook.server import Route, WebhookServer
from tests.webhook.httpclient import connected, review_body

NAMESPACE = "kavip-access-test"
GRANTED = UserInfo(username="ann", groups=["system:authenticated"])
GROUPED = UserInfo(username="bob", groups=["system:authenticated", "netops"], extra={"scopes": ["a", "b"]}, uid="u")
NOBODY = UserInfo(username="eve", groups=["system:authenticated"])
RULES = [
    {"apiGroups": [""], "resources": ["services/externalips"], "verbs": ["create"]},
]
OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "externalips", "namespace": NAMESPACE},
        "rules": RULES,
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "externalips", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "externalips"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"},
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "netops"},
        ],
    },
]


class Clock:
    """A clock that a test advances."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose RBAC permits ann and the group netops."""
    control_plane.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, OBJECTS)))
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=False)


@pytest.mark.apiserver
async def test_rbac_decides_and_the_answer_is_cached(plane: ControlPlane) -> None:
    """By user and by group, in one namespace; a removed permission has an effect after the cache time."""
    clock = Clock()
    async with Client.from_settings(str(plane.kubeconfig)) as client:
        authorizer = ExternalIPAuthorizer(client, clock=clock)

        async def may(user: UserInfo) -> bool:
            """Whether *user* is permitted soon: the API server reads RBAC objects by watches."""
            for _ in range(600):
                if await authorizer.may_set_external_ips(user, NAMESPACE):
                    return True
                await asyncio.sleep(0.1)
                clock.now += CACHE_SECONDS
            return False

        assert await may(GROUPED)
        assert await may(GRANTED)
        assert not await authorizer.may_set_external_ips(NOBODY, NAMESPACE)
        assert not await authorizer.may_set_external_ips(GRANTED, "default")
        plane.kubectl("delete", "rolebinding", "externalips", "-n", NAMESPACE)
        assert await authorizer.may_set_external_ips(GRANTED, NAMESPACE)
        for _ in range(600):
            clock.now += CACHE_SECONDS
            if not await authorizer.may_set_external_ips(GRANTED, NAMESPACE):
                break
            await asyncio.sleep(0.1)
        assert not await authorizer.may_set_external_ips(GRANTED, NAMESPACE)


class FakeClient:
    """Answers access reviews when *gate* is open; counts them."""

    def __init__(self, *, is_open: bool = True) -> None:
        """No request yet."""
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.users: list[str] = []
        self.most = self.in_flight = 0

    async def create_review(self, _resource: object, body: Any, *, timeout: float) -> SubjectAccessReview:
        """Allow ann."""
        assert timeout >= 1
        self.users.append(body["spec"]["user"])
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await self.gate.wait()
        self.in_flight -= 1
        return SubjectAccessReview(status=AccessStatus(allowed=self.users[-1] == "ann"))


def authorizer_of(client: FakeClient, clock: Clock) -> ExternalIPAuthorizer:
    """An authorizer that asks *client*."""
    return ExternalIPAuthorizer(cast("Client", client), clock=clock)


async def test_answers_are_kept_by_hash_until_they_expire() -> None:
    """A user name of any length costs 32 bytes, and an expired answer costs nothing."""
    client, clock = FakeClient(), Clock()
    authorizer = authorizer_of(client, clock)
    for number in range(100):
        await authorizer.may_set_external_ips(UserInfo(username=f"{number}" + "x" * 60_000), "shop")
    assert {len(key) for key in authorizer._cache} == {32}
    clock.now = CACHE_SECONDS
    assert await authorizer.may_set_external_ips(GRANTED, "shop")
    assert len(authorizer._cache) == 1
    assert await authorizer.may_set_external_ips(GRANTED, "shop")
    assert len(client.users) == 101


async def test_few_requests_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal ones are sent once, few others wait, and the rest is not sent."""
    monkeypatch.setattr(authorizing, "TIMEOUT", 60.0)
    client, clock = FakeClient(is_open=False), Clock()
    authorizer = authorizer_of(client, clock)
    users = [GRANTED, *(UserInfo(username=f"u{number}") for number in range(1500)), GRANTED]
    asking = [asyncio.create_task(authorizer.may_set_external_ips(user, "shop")) for user in users]
    await asyncio.sleep(0)
    while client.in_flight < MAX_IN_FLIGHT:
        await asyncio.sleep(0)
    client.gate.set()
    await asyncio.gather(*asking)
    assert client.most == MAX_IN_FLIGHT
    assert len(client.users) == len(set(client.users)) == MAX_IN_FLIGHT + MAX_WAITING


async def test_a_user_of_any_size_is_not_asked_about() -> None:
    """The refusal stays."""
    found = Verdict((EXTERNAL,), exemptible=frozenset({EXTERNAL}))
    fake = FakeAuthorizer(answer=True)
    routes = {VALIDATE_SERVICE_PATH: Route(lambda *_: found)}
    async with connected(WebhookServer(Snapshot(), routes=routes, may_set_external_ips=fake)) as connection:
        body = json.loads(review_body(VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}}))
        body["request"]["userInfo"] = {"username": "jane" * (1 << 18)}
        response = await connection.review(VALIDATE_SERVICE_PATH, json.dumps(body).encode())
    assert (response["allowed"], fake.asked) == (False, [])


EXTERNAL = Refusal(Reason.ADDRESS_NOT_ALLOWED, "not yours", "spec.externalIPs[0]")
OTHER = Refusal(Reason.GROUP_NOT_FOUND, "no such group", "metadata")


class FakeAuthorizer:
    """Returns *answer* and records the requests."""

    def __init__(self, *, answer: bool) -> None:
        """No request yet."""
        self.answer, self.asked = answer, list[tuple[str, str]]()

    async def __call__(self, user: UserInfo, namespace: str) -> bool:
        """Record the request and answer."""
        self.asked.append((user.username, namespace))
        return self.answer


@pytest.mark.parametrize(
    ("refusals", "answer", "allowed", "asked"),
    [
        ((), True, True, 0),
        ((EXTERNAL,), True, True, 1),
        ((EXTERNAL,), False, False, 1),
        ((EXTERNAL, OTHER), True, False, 0),
        ((OTHER,), True, False, 0),
    ],
)
async def test_the_authorizer_is_asked_only_if_it_decides(
    *, refusals: tuple[Refusal, ...], answer: bool, allowed: bool, asked: int
) -> None:
    """It is not asked without a refusal, or if another refusal remains."""
    found = Verdict(refusals, exemptible=frozenset({EXTERNAL}) & frozenset(refusals))
    fake = FakeAuthorizer(answer=answer)
    routes = {VALIDATE_SERVICE_PATH: Route(lambda *_: found)}
    async with connected(WebhookServer(Snapshot(), routes=routes, may_set_external_ips=fake)) as connection:
        body = review_body(VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}})
        response = await connection.review(VALIDATE_SERVICE_PATH, body)
    assert response["allowed"] == allowed
    assert fake.asked == [("jane", "shop")] * asked


@pytest.mark.slow
async def test_an_unresponsive_api_server_keeps_the_refusal(tmp_path: Path) -> None:
    """The request times out after a second, and the failure is not cached."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(KUBECONFIG.format(port=silent.getsockname()[1]))
        async with Client.from_settings(str(kubeconfig)) as client:
            authorizer = ExternalIPAuthorizer(client)
            start = perf_counter()
            assert not await authorizer.may_set_external_ips(GRANTED, "shop")
            assert 0.9 < perf_counter() - start < 30
            assert authorizer._cache == {}


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: c, user: {{token: t}}}}]
"""
