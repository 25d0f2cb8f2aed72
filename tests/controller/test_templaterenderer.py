"""The renderer of the leader: one template at a time, in turn, and what fails rests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from unittest.mock import AsyncMock

from kavip.controller.templaterenderer import RETRY, TemplateRenderer
from kavip.reconcile.observed.templates import ConfigTemplates
from kavip.vrrp.configtemplate import NO_LINES, AddedLines, RenderRequest, TemplateFault

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATER = datetime(2026, 3, 2, tzinfo=UTC)


def request(template: str) -> RenderRequest:
    """A request to render *template*."""
    return RenderRequest(template, b"{}", "")


@dataclass
class Programs:
    """Renders by hand: *started* in order; :meth:`finish` ends the one that runs."""

    started: list[str] = field(default_factory=list)
    finished: asyncio.Queue[AddedLines | TemplateFault | Exception] = field(default_factory=asyncio.Queue)
    changed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    async def render(self, asked: RenderRequest) -> AddedLines | TemplateFault:
        """Run until :meth:`finish`."""
        self.started.append(asked.template)
        result = await self.finished.get()
        if isinstance(result, Exception):
            raise result
        return result

    async def finish(self, result: AddedLines | TemplateFault | Exception = NO_LINES) -> None:
        """End the one that runs, and wait until the group knows."""
        count = len(self.changed)
        await self.finished.put(result)
        await until(lambda: len(self.changed) > count)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[TemplateRenderer, Programs]]:
    """A renderer that runs."""
    programs = Programs()
    renderer = TemplateRenderer(
        ConfigTemplates(),
        changed=programs.changed.append,
        read=AsyncMock(),
        render=programs.render,
        clock=lambda: programs.seconds,
    )
    task = asyncio.create_task(renderer.run())
    yield renderer, programs
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_at_a_time_in_turn() -> None:
    """The next group's begins when the first one's has ended; a group that asks again waits for the others."""
    async with running() as (renderer, programs):
        renderer.ask("lb/a", request("a"), now=NOW)
        renderer.ask("lb/b", request("b"), now=NOW)
        await until(lambda: programs.started == ["a"])
        renderer.ask("lb/a", request("a2"), now=LATER)
        renderer.ask("lb/a", request("a3"), now=LATER)
        assert renderer.templates.asked_since["lb/a"] == NOW
        await programs.finish()
        await until(lambda: programs.started == ["a", "b"])
        assert renderer.templates.asked_since == {"lb/a": NOW, "lb/b": NOW}
        await programs.finish()
        await until(lambda: programs.started == ["a", "b", "a3"])
        await programs.finish()
        assert programs.changed == ["lb/a", "lb/b", "lb/a"]
        assert renderer.templates.rendered["lb/a"].digest == request("a3").digest
        assert renderer.templates.asked_since == {}


async def test_the_same_request_is_rendered_once() -> None:
    """A plan repeats what it waits for."""
    async with running() as (renderer, programs):
        renderer.ask("lb/a", request("a"), now=NOW)
        await until(lambda: programs.started == ["a"])
        renderer.ask("lb/a", request("a"), now=NOW)
        await programs.finish()
        renderer.ask("lb/b", request("b"), now=NOW)
        await until(lambda: programs.started == ["a", "b"])
        await programs.finish()


async def test_what_fails_for_now_rests() -> None:
    """Meanwhile other groups have their turn; then it is tried again."""
    async with running() as (renderer, programs):
        renderer.ask("lb/a", request("a"), now=NOW)
        await until(lambda: programs.started == ["a"])
        await programs.finish(TemplateFault("hangs", is_temporary=True))
        renderer.ask("lb/a", request("a"), now=NOW)
        renderer.ask("lb/b", request("b"), now=NOW)
        await until(lambda: programs.started == ["a", "b"])
        await programs.finish()
        programs.seconds = RETRY
        renderer.ask("lb/a", request("a"), now=NOW)
        await until(lambda: programs.started == ["a", "b", "a"])
        await programs.finish(TemplateFault("bad"))
        assert isinstance(renderer.templates.rendered["lb/a"].result, TemplateFault)


async def test_a_repaired_template_does_not_rest() -> None:
    """It is another template than the one that took too long."""
    async with running() as (renderer, programs):
        renderer.ask("lb/a", request("a"), now=NOW)
        await until(lambda: programs.started == ["a"])
        await programs.finish(TemplateFault("hangs", is_temporary=True))
        renderer.ask("lb/a", request("repaired"), now=NOW)
        await until(lambda: programs.started == ["a", "repaired"])
        await programs.finish()


async def test_an_error_of_kavip_is_a_fault() -> None:
    """The term of the leader goes on."""
    async with running() as (renderer, programs):
        renderer.ask("lb/a", request("a"), now=NOW)
        await until(lambda: programs.started == ["a"])
        await programs.finish(ValueError("x"))
        assert "kavip failed to render it" in str(renderer.templates.rendered["lb/a"].result)
        renderer.ask("lb/b", request("b"), now=NOW)
        await until(lambda: programs.started == ["a", "b"])
        await programs.finish()


async def test_a_group_that_asks_no_more_is_not_rendered() -> None:
    """Its template was removed, or the group is gone."""
    async with running() as (renderer, programs):
        for group in ("lb/a", "lb/b", "lb/c"):
            renderer.ask(group, request(group), now=NOW)
        await until(lambda: programs.started == ["lb/a"])
        renderer.ask("lb/b", None, now=NOW)
        await programs.finish()
        await until(lambda: programs.started == ["lb/a", "lb/c"])
        await programs.finish()
        renderer.forget("lb/a")
        assert renderer.templates.rendered.keys() == {"lb/c"}
