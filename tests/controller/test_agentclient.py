"""An agent sends an answer again only if it has changed, or if the prober needs other VIPs of it."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from http import HTTPStatus
from unittest.mock import patch

import pytest
from aiohttp import web

from kavip.agent.http import server
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest
from kavip.api.address import parse_address
from kavip.reconcile.plan import ProbeTarget
from tests.controller.fakeagent import PATIENCE, serving, state, watching

GROUP = "lb/edge"
FIRST, SECOND = map(parse_address, ("192.0.2.130", "192.0.2.131"))


async def until(condition: Callable[[], object]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def target(port: int) -> ProbeTarget:
    """An agent on loopback, of whose answers one VIP is read."""
    return ProbeTarget({"n1": "127.0.0.1"}, port, "h1", vips=({str(FIRST): FIRST},))


async def test_an_unchanged_answer_is_not_sent() -> None:
    """With the agent's own server: it has no body until it changes, or until other VIPs are wanted."""
    report, sizes, respond = state("h1", str(FIRST)), list[int](), server._response

    async def page(_: PageRequest) -> PageContent:
        return PageContent(json.dumps(report).encode(), JSON)

    def response(answer: PageContent, *, with_body: bool) -> bytes:
        sizes.append(len(answer.body))
        return respond(answer, with_body=with_body)

    with patch.object(server, "_response", response):
        async with AgentServer({"/state": page}).listening("127.0.0.1", 0) as port, watching(0.01) as (probe, _):
            probe.set_target(GROUP, target(port))
            await until(lambda: len(sizes) >= 5)
            assert [bool(size) for size in sizes[:5]] == [True, False, False, False, False]

            report["instances"][0]["virtualIPs"] = [str(FIRST), str(SECOND)]
            await until(lambda: sum(map(bool, sizes)) == 2 and not sizes[-1])
            assert probe.agents.states_of(GROUP)["n1"].runs == {FIRST}

            probe.set_target(
                GROUP, dataclasses.replace(target(port), vips=({str(each): each for each in (FIRST, SECOND)},))
            )
            await until(lambda: probe.agents.states_of(GROUP)["n1"].runs == {FIRST, SECOND} and not sizes[-1])
            assert sum(map(bool, sizes)) in (3, 4)  # a request that was on its way is repeated


class TaggedAgent:
    """An agent that sends *body* with *tag*, and nothing to a client that sends the tag back; *sent*: those it got."""

    def __init__(self, body: bytes, tag: str) -> None:
        """Start without requests."""
        self.body, self.tag, self.sent = body, tag, list[str]()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer ``/state``."""
        self.sent.append(request.headers.get("If-None-Match", ""))
        is_known = self.sent[-1] == self.tag
        return web.Response(status=304) if is_known else web.Response(body=self.body, headers={"ETag": self.tag})


def tag(digit: str) -> str:
    """An entity tag."""
    return f'"{digit * 32}"'


async def test_an_answer_that_cannot_be_read_does_not_count_as_known() -> None:
    """The prober never says that it has it, so the agent sends it again and again."""
    agent = TaggedAgent(json.dumps(state("h1")).encode(), tag("a"))
    async with serving(agent) as port, watching(0.01) as (probe, _):  # type: ignore[arg-type]  # as much as is used
        probe.set_target(GROUP, target(port))
        await until(lambda: tag("a") in agent.sent)
        agent.body, agent.tag = b"[]", tag("b")
        before = len(agent.sent)
        await until(lambda: len(agent.sent) > before + 2)
        contact = probe.agents.contacts_of(GROUP)["n1"]
        await until(lambda: len(agent.sent) > before + 7)
        assert set(agent.sent) == {"", tag("a")}
        assert probe.agents.contacts_of(GROUP)["n1"].last == contact.last  # none of them was an answer


@pytest.mark.parametrize("sent", ["", "abc", '"x"', tag("g"), f'"{"a" * 33}"'], ids=str)
async def test_other_tags_are_not_sent_back(sent: str) -> None:
    """An agent's own is 32 hexadecimal digits in quotes; nothing else goes into a header of the leader."""
    agent = TaggedAgent(json.dumps(state("h1")).encode(), sent or "-")
    async with serving(agent) as port, watching(0.01) as (probe, _):  # type: ignore[arg-type]  # as much as is used
        probe.set_target(GROUP, target(port))
        await until(lambda: len(agent.sent) > 3)
        assert set(agent.sent) == {""}


async def test_an_answer_without_a_body_that_nobody_asked_for_is_no_answer() -> None:
    """A node cannot be known before it has sent a state."""

    class Lying(TaggedAgent):
        async def handle(self, request: web.Request) -> web.Response:
            self.sent.append("")
            return web.Response(status=HTTPStatus.NOT_MODIFIED)

    agent = Lying(b"", "")
    async with serving(agent) as port, watching(0.01) as (probe, _):  # type: ignore[arg-type]  # as much as is used
        probe.set_target(GROUP, target(port))
        await until(lambda: len(agent.sent) > 3)
        assert not probe.agents.states_of(GROUP)
