"""The answers of agents through the API server: hostile ones, missing ones, and a second look."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kavip.cli.sources import agents
from kavip.cli.sources.agents import ask_agents, ask_once
from kavip.cli.views.doctor.inspection import Gap
from kavip.cli.views.picture.picture import AgentAnswers
from kavip.errors import Forbidden
from kavip.kube.client import Client
from tests.kube.fakeapi import FakeApi, refusal, serving
from tests.support import build

Answer = Callable[[], web.StreamResponse]
GROUPS = (build.group("lb/edge", metrics_port=9651), build.group("lb/other"))


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeApi, Client]]:
    """A fake API server and a client of it, which waits longer than the command on a busy machine."""
    monkeypatch.setattr(agents, "_TIMEOUT", 120.0)
    fake = FakeApi()
    async with serving(fake, tmp_path) as config, Client.from_settings(str(config)) as client:
        yield fake, client


def state(**more: Any) -> Answer:
    """A good answer."""
    return lambda: web.json_response({"group": "lb/edge", "keepalived": {"running": True}, **more})


def master() -> Answer:
    """The answer of a master."""
    return state(instances=[{"name": "shop/web", "routerID": 1, "state": "MASTER"}])


def pods(fake: FakeApi, answers: dict[str, Answer], *, group: str = "edge") -> list[str]:
    """Let the API server have a pod on each node, and pass on its answer; return the paths that are requested."""
    requested: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse | None:
        requested.append(request.path)
        if request.path.endswith("/pods"):
            items = [
                {
                    "metadata": {"name": f"p-{node}", "namespace": "lb", "labels": {"keepalivedGroup": group}},
                    "spec": {"nodeName": node},
                }
                for node in answers
            ]
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})
        pod = request.path.split("/pods/")[1].split(":")[0]
        return answers[pod.removeprefix("p-")]()

    fake.fault = answer
    return requested


async def test_agents_are_asked_at_their_port(api: tuple[FakeApi, Client]) -> None:
    """Each pod of a known group is asked once, at the port of the group, through pods/proxy."""
    fake, client = api
    requested = pods(fake, {"n1": state(wantedHash="abc"), "n2": master()})
    answers, gap = await ask_agents(client, GROUPS)
    assert [(each.group, each.node, each.mounted) for each in answers] == [
        ("lb/edge", "n1", "abc"),
        ("lb/edge", "n2", ""),
    ]
    assert gap is None
    proxied = [f"/api/v1/namespaces/lb/pods/p-{node}:9651/proxy/state" for node in ("n1", "n2")]
    assert (requested[0], sorted(requested[1:])) == ("/api/v1/pods", proxied)


async def test_hostile_answers_are_gaps(api: tuple[FakeApi, Client]) -> None:
    """An answer that is too long or malformed, or an error, costs only this answer."""
    fake, client = api
    pods(
        fake,
        {
            "n1": state(),
            "n2": lambda: web.Response(body=b" " * (agents._LARGEST + 1)),
            "n3": lambda: web.Response(body=json.dumps({"group": "x", "now": 7}).encode()),
            "n4": lambda: web.Response(body=b"<html>", status=403),
            "n5": lambda: refusal(503, "ServiceUnavailable"),
            "n6": lambda: web.Response(body=b"[" * 100_000),
            "n7": lambda: web.Response(body=b'{"group": "lb/edge", "node": "\xff"}'),
        },
    )
    answers, gap = await ask_agents(client, GROUPS)
    assert [each.node for each in answers] == ["n1"]
    assert gap is not None and not gap.is_whole
    assert "pod lb/p-n2: 200 TooLarge" in gap.reason
    assert "pod lb/p-n3: its answer cannot be read: Expected `str`" in gap.reason
    assert "pod lb/p-n4: 403 Forbidden" in gap.reason
    assert "3 more pods do not answer" in gap.reason


async def test_without_an_answer_the_gap_is_whole(api: tuple[FakeApi, Client]) -> None:
    """If no agent answers, or there is none, nothing is known."""
    fake, client = api
    pods(fake, {"n1": lambda: refusal(403, "Forbidden")})
    assert await ask_agents(client, GROUPS) == ((), Gap("pod lb/p-n1: 403 Forbidden: because"))
    pods(fake, {"n1": state()}, group="unknown")
    assert await ask_agents(client, GROUPS) == ((), Gap("no group has pods, whose agents would know"))


async def test_at_most_so_many_agents_are_asked(api: tuple[FakeApi, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap says how many are not asked."""
    monkeypatch.setattr(agents, "_MOST_AGENTS", 2)
    fake, client = api
    pods(fake, {f"n{number}": state() for number in range(5)})
    answers, gap = await ask_agents(client, GROUPS)
    assert (len(answers), gap) == (2, Gap("3 pods are not asked", is_whole=False))


async def test_pods_of_one_node_do_not_displace_others(
    api: tuple[FakeApi, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that reports 50 mirror pods with names of its choice gets one turn before each other node had one."""
    monkeypatch.setattr(agents, "_MOST_AGENTS", 3)
    fake, client = api
    names = {f"a-{number:02}": "liar" for number in range(50)} | {"edge-n1": "n1", "edge-n2": "n2"}
    shown = [
        {
            "metadata": {"name": name, "namespace": "lb", "labels": {"keepalivedGroup": "edge"}},
            "spec": {"nodeName": node},
        }
        for name, node in names.items()
    ]

    async def answer(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("/pods"):
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": shown})
        return state()()

    fake.fault = answer
    answers, gap = await ask_agents(client, GROUPS)
    assert [each.node for each in answers] == ["liar", "n1", "n2"]
    assert gap == Gap("49 pods are not asked", is_whole=False)


async def test_masters_are_asked_twice(api: tuple[FakeApi, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two masters of one instance are asked again; the first answers stay."""
    monkeypatch.setattr(agents, "AGAIN", 0.01)
    fake, client = api
    later = iter([master(), state()])

    def failing_over() -> web.StreamResponse:
        return next(later)()

    pods(fake, {"n1": master(), "n2": failing_over})
    answers, _ = await ask_agents(client, GROUPS)
    again = [[each.state for each in answer.again.instances] for answer in answers if answer.again is not None]
    assert again == [["MASTER"], []]
    assert [[each.state for each in answer.state.instances] for answer in answers] == [["MASTER"], ["MASTER"]]


async def test_pods_that_may_not_be_listed(api: tuple[FakeApi, Client]) -> None:
    """The error is that of the API server."""
    fake, client = api

    async def refuse(_: web.Request) -> web.StreamResponse:
        return refusal(403, "Forbidden")

    fake.fault = refuse
    with pytest.raises(Forbidden):
        await ask_agents(client, GROUPS)


async def test_a_single_question_says_which_agents_are_silent(api: tuple[FakeApi, Client]) -> None:
    """Each agent that does not answer has a reason; masters are not asked twice."""
    fake, client = api
    requested = pods(fake, {"n1": master(), "n2": master(), "n3": lambda: refusal(503, "ServiceUnavailable")})
    found = await ask_once(client, GROUPS)
    assert [each.node for each in found.answers] == ["n1", "n2"]
    assert (found.silent, found.note) == ({("lb/edge", "n3"): "503 ServiceUnavailable: because"}, "")
    assert len(requested) == 4


async def test_without_the_right_to_ask_no_agent_is_silent(api: tuple[FakeApi, Client]) -> None:
    """A note says that nothing is known: of those that may not be asked, and without the right to list pods of all."""
    fake, client = api
    pods(fake, {"n1": state(), "n2": lambda: refusal(403, "Forbidden")})
    found = await ask_once(client, GROUPS)
    assert ([each.node for each in found.answers], dict(found.silent)) == (["n1"], {})
    assert found.note.startswith("agents that do not answer: 1; you may not get pods/proxy")

    async def refuse(_: web.Request) -> web.StreamResponse:
        return refusal(403, "Forbidden")

    fake.fault = refuse
    assert await ask_once(client, GROUPS) == AgentAnswers(note="you may not list pods: agents are not asked")
