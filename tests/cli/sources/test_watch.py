"""What ``kavip status`` and ``kavip ui`` list with the rights of one namespace."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kavip.cli.sources import watch
from kavip.cli.sources.watch import list_status
from kavip.errors import Forbidden
from kavip.kube.codec import Malformed
from kavip.kube.resources import Resource
from tests.support import build


class OneNamespace:
    """An API server that lists one namespace only, where one object of each kind cannot be read."""

    async def list(
        self, resource: Resource[Any], *, namespace: str = "", on_malformed: Callable[[Malformed], None]
    ) -> tuple[list[Any], str]:
        """One object that can be read."""
        if not namespace:
            raise Forbidden(403, "Forbidden", "because")
        on_malformed(Malformed(f"{namespace}/odd", "7", "Expected `str`"))
        return [build.service(f"{namespace}/web")], "7"


async def test_an_object_that_cannot_be_read_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are shown, as with the right to list all namespaces."""

    @asynccontextmanager
    async def connected(*_: str) -> AsyncIterator[tuple[OneNamespace, str]]:
        yield OneNamespace(), "shop"

    monkeypatch.setattr(watch, "connected", connected)
    found = await list_status("", context="", namespace="")
    assert [each.metadata.key for each in found.objects] == ["shop/web", "shop/web"]
    assert "Service shop/odd cannot be read: Expected `str`" in found.notes
