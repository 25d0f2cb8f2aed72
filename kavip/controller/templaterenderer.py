"""
Renders the templates of groups, one after the other, in the order in which groups asked.

A request that a newer one of the same group replaces is not rendered. A template that takes too long is not tried again
for a while, so a group with such a template does not take the time of the others. Another template of that group is.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog

from kavip.reconcile.observed.templates import ConfigTemplates, rendered
from kavip.rendering import process
from kavip.vrrp.configtemplate import AddedLines, RenderRequest, TemplateFault

RETRY: Final = 30.0
"""Seconds until a template is rendered again that failed for a reason that may go by itself."""

log: Final = structlog.get_logger(__name__)

Read = Callable[[str], Awaitable[None]]
Render = Callable[[RenderRequest], Awaitable[AddedLines | TemplateFault]]


class TemplateRenderer:
    """Renders what groups ask for, and keeps the results in *templates*."""

    def __init__(
        self,
        templates: ConfigTemplates,
        *,
        changed: Callable[[str], None],
        read: Read,
        render: Render = process.render,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Render nothing before :meth:`run`.

        *changed* is called with a group whose result is there; *read* reads what a group names; *clock* is the
        monotonic one.
        """
        self.templates, self.read = templates, read
        self._changed, self._render, self._clock = changed, render, clock
        self._requests: dict[str, RenderRequest] = {}  # in the order in which groups asked
        self._retries: dict[str, tuple[str, float]] = {}  # by group: a template that failed, and when it is tried again
        self._asked = asyncio.Event()
        templates.asked_since.clear()

    def ask(self, group: str, request: RenderRequest | None, *, now: datetime) -> None:
        """Render *request* for *group*, in place of an earlier one; None: nothing."""
        if request is None:
            self._requests.pop(group, None)
            self.templates.asked_since.pop(group, None)
            return
        self._requests[group] = request  # an earlier one gives it its turn
        self.templates.asked_since.setdefault(group, now)
        self._asked.set()

    async def run(self) -> None:
        """Render until cancelled."""
        while True:
            self._asked.clear()
            if (group := self._next()) is not None:
                await self._work(group)
                continue
            due = min(map(self._due, self._requests), default=None)
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                    await self._asked.wait()
            except TimeoutError:
                continue

    def _next(self) -> str | None:
        """The first group whose request may be rendered now."""
        now = self._clock()
        return next((each for each in self._requests if self._due(each) <= now), None)

    def _due(self, group: str) -> float:
        """When the request of *group* may be rendered."""
        template, until = self._retries.get(group, ("", 0.0))
        return until if template == self._requests[group].template else 0.0

    async def _work(self, group: str) -> None:
        request = self._requests[group]
        result = await self._render_safely(group, request)
        self._retries.pop(group, None)
        if isinstance(result, TemplateFault):
            log.warning("template unusable", group=group, problem=str(result))
            if result.is_temporary:
                self._retries[group] = request.template, self._clock() + RETRY
        self.templates.rendered[group] = rendered(request, result)
        newer = self._requests.pop(group, None)
        if newer is None or newer.digest == request.digest:
            self.templates.asked_since.pop(group, None)
        else:
            self._requests[group] = newer  # behind the other groups
        self._changed(group)

    async def _render_safely(self, group: str, request: RenderRequest) -> AddedLines | TemplateFault:
        try:
            return await self._render(request)
        except Exception:  # the text of a user must not end the term of the leader
            log.exception("rendering failed", group=group)
            return TemplateFault("kavip failed to render it; its log has the error", is_temporary=True)

    def forget(self, group: str) -> None:
        """Forget a *group* that is gone."""
        self._requests.pop(group, None)
        self._retries.pop(group, None)
        self.templates.rendered.pop(group, None)
        self.templates.asked_since.pop(group, None)
