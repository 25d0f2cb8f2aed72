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
from kavip.kube.reviewer import CACHE_SECONDS, MAX_IN_FLIGHT, MAX_WAITING
from kavip.names import VALIDATE_SERVICE_PATH, Reason
from kavip.snapshot import Snapshot
from kavip.webhook.authorizer import Authorizer
from kavip.webhook.server import Route, WebhookServer
from tests.webhook.httpclient import connected, review_body

NAMESPACE = "kavip-access-test"
GRANTED = UserInfo(username="ann", groups=["system:authenticated"])
GROUPED = UserInfo(username="bob", groups=["system:authenticated", "netops"], extra={"scopes": ["a", "b"]}, uid="u")
UNPRIVILEGED = UserInfo(username="eve", groups=["system:authenticated"])
TENANT = UserInfo(username="tom", groups=["system:authenticated"])
OPERATOR = UserInfo(username="olga", groups=["system:authenticated"])
RBAC = "rbac.authorization.k8s.io"


def granted(name: str, rule: dict[str, Any], *subjects: tuple[str, str], namespace: str = "") -> list[dict[str, Any]]:
    """A role with *rule*, bound to *subjects* (kind and name); cluster-wide without a *namespace*."""
    role = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    common = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    users = [{"apiGroup": RBAC, "kind": kind, "name": user} for kind, user in subjects]
    ref = {"apiGroup": RBAC, "kind": role, "name": name}
    return [
        {**common, "kind": role, "rules": [rule]},
        {**common, "kind": f"{role}Binding", "roleRef": ref, "subjects": users},
    ]


OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    *granted(
        "kavip-test-externalips",
        {"apiGroups": [""], "resources": ["services/externalips"], "verbs": ["create"]},
        ("User", "ann"),
        ("Group", "netops"),
    ),
    *granted(
        "kavip-test-openshift",
        {"apiGroups": ["network.openshift.io"], "resources": ["service/externalips"], "verbs": ["create"]},
        ("User", "olga"),
    ),
    *granted(
        "everything", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, ("User", "tom"), namespace=NAMESPACE
    ),
]


class Clock:
    """A clock that a test advances."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose RBAC permits ann, the group netops, and on OpenShift olga; tom owns a namespace."""
    given = "\n---\n".join(map(json.dumps, OBJECTS))
    control_plane.kubectl("apply", "-f", "-", input=given)
    yield control_plane
    control_plane.kubectl("delete", "-f", "-", "--wait=false", "--ignore-not-found", check=False, input=given)


@pytest.mark.apiserver
async def test_rbac_decides_and_the_answer_is_cached(plane: ControlPlane) -> None:
    """By user and by group, cluster-wide; a removed permission has an effect after the cache time."""
    clock = Clock()
    async with Client.from_settings(str(plane.kubeconfig)) as client:
        authorizer = Authorizer(client, clock=clock)

        async def may(user: UserInfo, by: Authorizer = authorizer) -> bool:
            """Whether *user* is permitted soon: the API server reads RBAC objects by watches."""
            for _ in range(600):
                if await by.may_set_external_ips(user):
                    return True
                await asyncio.sleep(0.1)
                clock.now += CACHE_SECONDS
            return False

        assert await may(GROUPED)
        assert await may(GRANTED)
        assert not await authorizer.may_set_external_ips(UNPRIVILEGED)
        assert not await authorizer.may_set_external_ips(OPERATOR)
        assert not await authorizer.may_set_external_ips(TENANT)
        openshift = Authorizer(client, is_openshift=lambda: True, clock=clock)
        assert await may(OPERATOR, openshift)
        assert [await openshift.may_set_external_ips(each) for each in (GRANTED, TENANT)] == [False, False]
        plane.kubectl("delete", "clusterrolebinding", "kavip-test-externalips")
        assert await authorizer.may_set_external_ips(GRANTED)
        for _ in range(600):
            clock.now += CACHE_SECONDS
            if not await authorizer.may_set_external_ips(GRANTED):
                break
            await asyncio.sleep(0.1)
        assert not await authorizer.may_set_external_ips(GRANTED)


class FakeClient:
    """Answers access reviews when *gate* is open; counts them."""

    def __init__(self, *, is_open: bool = True) -> None:
        """No request yet."""
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.users, self.requested = list[str](), list[dict[str, str]]()
        self.most = self.in_flight = 0

    async def create_review(self, _resource: object, body: Any, *, timeout: float) -> SubjectAccessReview:
        """Allow ann."""
        assert timeout >= 1
        self.users.append(body["spec"]["user"])
        self.requested.append(body["spec"]["resourceAttributes"])
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await self.gate.wait()
        self.in_flight -= 1
        return SubjectAccessReview(status=AccessStatus(allowed=self.users[-1] == "ann"))


def authorizer_of(client: FakeClient, clock: Clock) -> Authorizer:
    """An authorizer that sends reviews by *client*."""
    return Authorizer(cast("Client", client), clock=clock)


async def test_answers_are_kept_by_hash_until_they_expire() -> None:
    """A user name of any length costs 32 bytes, and an expired answer costs nothing."""
    client, clock = FakeClient(), Clock()
    authorizer = authorizer_of(client, clock)
    for number in range(100):
        await authorizer.may_set_external_ips(UserInfo(username=f"{number}" + "x" * 60_000))
    assert {len(key) for key in authorizer._reviewer._cache} == {32}
    clock.now = CACHE_SECONDS
    assert await authorizer.may_set_external_ips(GRANTED)
    assert len(authorizer._reviewer._cache) == 1
    assert await authorizer.may_set_external_ips(GRANTED)
    assert len(client.users) == 101


async def test_few_requests_are_in_flight() -> None:
    """Equal ones are sent once, few others wait, and the rest is not sent."""
    client = FakeClient(is_open=False)
    authorizer = Authorizer(cast("Client", client), timeout=60.0)
    users = [GRANTED, *(UserInfo(username=f"u{number}") for number in range(1500)), GRANTED]
    asking = [asyncio.create_task(authorizer.may_set_external_ips(user)) for user in users]
    await asyncio.sleep(0)
    while client.in_flight < MAX_IN_FLIGHT:
        await asyncio.sleep(0)
    client.gate.set()
    await asyncio.gather(*asking)
    assert client.most == MAX_IN_FLIGHT
    assert len(client.users) == len(set(client.users)) == MAX_IN_FLIGHT + MAX_WAITING


async def test_there_is_no_review_of_an_oversized_user() -> None:
    """The refusal stays."""
    found = Verdict((EXTERNAL,), exemptible=frozenset({EXTERNAL}))
    fake = FakeAuthorizer(answer=True)
    routes = {VALIDATE_SERVICE_PATH: Route(lambda *_: found)}
    async with connected(WebhookServer(Snapshot(), routes=routes, may_set_external_ips=fake)) as connection:
        body = json.loads(review_body(VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}}))
        body["request"]["userInfo"] = {"username": "jane" * (1 << 18)}
        response = await connection.review(VALIDATE_SERVICE_PATH, json.dumps(body).encode())
    assert (response["allowed"], fake.requested) == (False, [])


@pytest.mark.parametrize(
    ("is_openshift", "requested"), [(False, ("", "services")), (True, ("network.openshift.io", "service"))]
)
async def test_the_question_is_that_of_the_platform(*, is_openshift: bool, requested: tuple[str, str]) -> None:
    """The review is for all namespaces, so that no Role grants it; OpenShift has its own permission."""
    client = FakeClient()
    authorizer = Authorizer(cast("Client", client), is_openshift=lambda: is_openshift)
    assert await authorizer.may_set_external_ips(GRANTED)
    (attributes,) = client.requested
    assert (attributes.get("group", ""), attributes["resource"]) == requested
    assert (attributes["verb"], attributes["subresource"]) == ("create", "externalips")
    assert "namespace" not in attributes


async def test_the_question_about_daemonsets_is_that_of_the_namespace() -> None:
    """It is another question in another namespace, so no answer is used for both."""
    client = FakeClient()
    authorizer = Authorizer(cast("Client", client))
    for namespace in ("lb", "shop", "lb"):
        assert await authorizer.may_create_daemon_sets(GRANTED, namespace)
    wanted = {"verb": "create", "group": "apps", "resource": "daemonsets"}
    assert client.requested == [{**wanted, "namespace": each} for each in ("lb", "shop")]
    assert not await authorizer.may_create_daemon_sets(UNPRIVILEGED, "lb")


@pytest.mark.parametrize("answer", [True, False])
async def test_a_conditional_refusal_depends_on_the_right(*, answer: bool) -> None:
    """Without the right to create DaemonSets in the namespace of the request, the object is refused with 403."""
    refusal, requested = Refusal(Reason.PERMISSION_MISSING, "not yours", "spec.podTemplate"), list[tuple[str, str]]()

    async def may(user: UserInfo, namespace: str) -> bool:
        requested.append((user.username, namespace))
        return answer

    for others in ((), (OTHER,)):
        requested.clear()
        found = Verdict(others, conditional=(refusal,))
        routes = {VALIDATE_SERVICE_PATH: Route(lambda *_, found=found: found)}
        async with connected(WebhookServer(Snapshot(), routes=routes, may_create_daemon_sets=may)) as connection:
            body = json.loads(review_body(VALIDATE_SERVICE_PATH, {"metadata": {"name": "edge", "namespace": "lb"}}))
            body["request"] |= {"userInfo": {"username": "jane"}, "namespace": "lb"}
            response = await connection.review(VALIDATE_SERVICE_PATH, json.dumps(body).encode())
        assert response["allowed"] == (answer and not others)
        assert requested == ([] if others else [("jane", "lb")])
        if not answer and not others:
            assert response["status"]["code"] == 403


EXTERNAL = Refusal(Reason.ADDRESS_NOT_ALLOWED, "not yours", "spec.externalIPs[0]")
OTHER = Refusal(Reason.GROUP_NOT_FOUND, "no such group", "metadata")


class FakeAuthorizer:
    """Returns *answer* and records the requests."""

    def __init__(self, *, answer: bool) -> None:
        """No request yet."""
        self.answer, self.requested = answer, list[str]()

    async def __call__(self, user: UserInfo) -> bool:
        """Record the request and answer."""
        self.requested.append(user.username)
        return self.answer


@pytest.mark.parametrize(
    ("refusals", "answer", "allowed", "requested"),
    [
        ((), True, True, 0),
        ((EXTERNAL,), True, True, 1),
        ((EXTERNAL,), False, False, 1),
        ((EXTERNAL, OTHER), True, False, 0),
        ((OTHER,), True, False, 0),
    ],
)
async def test_there_is_a_review_only_if_it_decides(
    *, refusals: tuple[Refusal, ...], answer: bool, allowed: bool, requested: int
) -> None:
    """There is no review without a refusal, or if another refusal remains."""
    found = Verdict(refusals, exemptible=frozenset({EXTERNAL}) & frozenset(refusals))
    fake = FakeAuthorizer(answer=answer)
    routes = {VALIDATE_SERVICE_PATH: Route(lambda *_: found)}
    async with connected(WebhookServer(Snapshot(), routes=routes, may_set_external_ips=fake)) as connection:
        body = review_body(VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}})
        response = await connection.review(VALIDATE_SERVICE_PATH, body)
    assert response["allowed"] == allowed
    assert fake.requested == ["jane"] * requested


@pytest.mark.slow
async def test_an_unresponsive_api_server_keeps_the_refusal(tmp_path: Path) -> None:
    """The request times out after a second, and the failure is not cached."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(KUBECONFIG.format(port=silent.getsockname()[1]))
        async with Client.from_settings(str(kubeconfig)) as client:
            authorizer = Authorizer(client)
            start = perf_counter()
            assert not await authorizer.may_set_external_ips(GRANTED)
            assert 0.9 < perf_counter() - start < 30
            assert authorizer._reviewer._cache == {}


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: c, user: {{token: t}}}}]
"""
