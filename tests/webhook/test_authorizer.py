"""Who may set external IPs whatever the rules say: asked of a real API server with RBAC."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip.admission.verdict import Verdict
from kavip.api.refusal import Refusal
from kavip.api.review import UserInfo
from kavip.kube.client import Client
from kavip.names import VALIDATE_SERVICE_PATH, Reason
from kavip.snapshot import Snapshot
from kavip.webhook.authorizer import REMEMBERED, Access
from kavip.webhook.server import Route, Server
from tests.webhook.httpclient import connected, question

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
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane where ann, and who is of netops, may."""
    control_plane.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, OBJECTS)))
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=False)


@pytest.mark.apiserver
async def test_rbac_decides_and_the_answer_is_remembered(plane: ControlPlane) -> None:
    """By user and by group, in this namespace alone; a right that is taken away counts for half a minute."""
    clock = Clock()
    async with Client.from_settings(str(plane.kubeconfig)) as client:
        access = Access(client, clock=clock)

        async def may(user: UserInfo) -> bool:
            """Whether *user* is allowed soon: the authorizer follows a moment late, and may be too slow to answer."""
            for _ in range(600):
                if await access.may_set_external_ips(user, NAMESPACE):
                    return True
                await asyncio.sleep(0.1)
                clock.now += REMEMBERED
            return False

        assert await may(GROUPED)
        assert await may(GRANTED)
        assert not await access.may_set_external_ips(NOBODY, NAMESPACE)
        assert not await access.may_set_external_ips(GRANTED, "default")
        plane.kubectl("delete", "rolebinding", "externalips", "-n", NAMESPACE)
        assert await access.may_set_external_ips(GRANTED, NAMESPACE)
        for _ in range(600):
            clock.now += REMEMBERED
            if not await access.may_set_external_ips(GRANTED, NAMESPACE):
                break
            await asyncio.sleep(0.1)
        assert not await access.may_set_external_ips(GRANTED, NAMESPACE)


EXTERNAL = Refusal(Reason.ADDRESS_NOT_ALLOWED, "not yours", "spec.externalIPs[0]")
OTHER = Refusal(Reason.GROUP_NOT_FOUND, "no such group", "metadata")


class Authority:
    """Says *answer*, and counts how often it is asked."""

    def __init__(self, *, answer: bool) -> None:
        """Nobody has asked yet."""
        self.answer, self.asked = answer, list[tuple[str, str]]()

    async def __call__(self, user: UserInfo, namespace: str) -> bool:
        """Answer."""
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
async def test_the_right_is_asked_for_only_where_it_decides(
    *, refusals: tuple[Refusal, ...], answer: bool, allowed: bool, asked: int
) -> None:
    """Not where nothing is refused, and not where something else is refused besides."""
    found = Verdict(refusals, exemptible=frozenset({EXTERNAL}) & frozenset(refusals))
    authority = Authority(answer=answer)
    routes = {VALIDATE_SERVICE_PATH: Route(lambda *_: found)}
    async with connected(Server(Snapshot(), routes=routes, may_set_external_ips=authority)) as connection:
        body = question(VALIDATE_SERVICE_PATH, {"metadata": {"name": "web", "namespace": "shop"}})
        response = await connection.ask(VALIDATE_SERVICE_PATH, body)
    assert response["allowed"] == allowed
    assert authority.asked == [("jane", "shop")] * asked


@pytest.mark.slow
async def test_without_an_api_server_the_refusal_stands_in_time(tmp_path: Path) -> None:
    """One that does not answer costs a second, and no is not remembered."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(KUBECONFIG.format(port=silent.getsockname()[1]))
        async with Client.from_settings(str(kubeconfig)) as client:
            access = Access(client)
            start = perf_counter()
            assert not await access.may_set_external_ips(GRANTED, "shop")
            assert 0.9 < perf_counter() - start < 30
            assert access._known == {}


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: c, user: {{token: t}}}}]
"""
