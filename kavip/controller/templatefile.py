"""
The file with the patch of all pod templates: read before the first plan of a term, and again while it may change.

A file that cannot be read or used is a fault of the template, which becomes a condition of every group.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from kavip.podtemplate import defaulttemplate
from kavip.podtemplate.defaulttemplate import NO_TEMPLATE, DefaultTemplate

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks: kubelet refreshes a mounted ConfigMap once a minute."""

log: Final = structlog.get_logger(__name__)


class TemplateFile:
    """The template in the file *path*; "": there is none."""

    def __init__(self, path: str) -> None:
        """Read nothing before :meth:`update`."""
        self._path = path
        self.template = NO_TEMPLATE

    async def update(self) -> bool:
        """Read the file; return whether the template changed."""
        before, self.template = self.template, await asyncio.to_thread(_read, self._path)
        if self.template == before:
            return False
        if self.template.fault:
            log.warning("template of pods unusable", problem=self.template.fault)
        return True

    async def run(self, changed: Callable[[], None]) -> None:
        """Call *changed* after each change, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await self.update():
                changed()


def _read(path: str) -> DefaultTemplate:
    if not path:
        return NO_TEMPLATE
    try:
        with Path(path).open("rb") as file:
            content = file.read(defaulttemplate.MOST_BYTES + 1)
    except OSError as error:
        return defaulttemplate.unreadable(path, error)
    return defaulttemplate.read(path, content)
