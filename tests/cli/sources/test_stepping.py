"""A Service that is led step by step."""

from typing import Any

import pytest

from kavip.api.service import Service
from kavip.cli.sources.stepping import MOST_WRITES, lead
from kavip.convert.steps import Done, Step, Wait, Write
from kavip.errors import Conflict
from kavip.kube.resources import SERVICES
from kavip.names import Reason
from tests.support import build


class FakeClient:
    """Holds one Service; nothing that is written stays. *conflicts*: how often a write meets another version."""

    def __init__(self, *, conflicts: int = 0) -> None:
        """Nothing has been written."""
        self.bodies: list[dict[str, Any]] = []
        self.conflicts = conflicts

    async def get(self, *_: object) -> Service:
        """The Service."""
        return build.service("shop/web")

    async def patch(self, _: object, __: str, body: dict[str, Any], **___: object) -> None:
        """Note *body*."""
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(409, "Conflict", "the object has been modified")
        self.bodies.append(body)


async def led(client: FakeClient, step: Any, timeout: float = 60.0) -> tuple[Any, list[str]]:
    """The result, and what was reported."""
    lines: list[str] = []
    found = await lead(client, "shop/web", step, timeout=timeout, on_write=lines.append, resource=SERVICES)  # type: ignore[arg-type]
    return found, lines


async def test_a_write_is_conditional_and_repeated_after_a_conflict() -> None:
    """The step is decided again on the Service as it is then."""
    client = FakeClient(conflicts=1)

    def step(_: Service) -> Step:
        return Done() if client.bodies else Write({"spec": {"type": "NodePort"}}, "done")

    assert await led(client, step) == (None, ["done"])
    assert client.bodies == [{"spec": {"type": "NodePort"}, "metadata": {"resourceVersion": "1"}}]


async def test_it_ends_when_another_program_changes_the_service_back() -> None:
    """For example a GitOps tool: otherwise both would write for ever."""
    client = FakeClient()
    refusal, _ = await led(client, lambda _: Write({}, "written"))
    assert "another program changes it back" in refusal.message
    assert len(client.bodies) == MOST_WRITES


async def test_a_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the one of the last wait."""
    monkeypatch.setattr("kavip.cli.sources.stepping.INTERVAL", 0.01)
    refusal, _ = await led(FakeClient(), lambda _: Wait("kavip is away"), timeout=0.05)
    assert (refusal.reason, refusal.message) == (Reason.PENDING, "after 0.05 s kavip is away")
