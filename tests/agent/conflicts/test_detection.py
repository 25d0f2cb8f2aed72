"""News of address conflicts reaches the reconciler, also if two tasks have some at the same time."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kavip.agent.config.withhold import Unprobed
from kavip.agent.conflicts import detection
from kavip.agent.conflicts.detection import AddressConflicts
from kavip.agent.conflicts.verdicts import Answer, Finding
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.network import NodeNetwork
from kavip.api.address import parse_address
from kavip.vrrp.virtualips import VirtualIP, host

VIP = host(parse_address("192.0.2.130"), "eth0")


class Defence:
    """A defence that verifies for as long as the test wants, and has no news."""

    next_due = float("-inf")

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def verify(self) -> bool:
        """Wait for the end."""
        self.begun.set()
        await self.ended.wait()
        self.next_due = float("inf")
        return False

    def configure(self, *_: Any) -> None:
        """Watch nothing."""

    def close(self) -> None:
        """Nothing is open."""

    def reports(self) -> tuple[()]:
        """No claim."""
        return ()


async def test_news_of_one_task_is_not_lost_while_another_one_verifies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reconciler asks for a VIP while the defence waits for answers of the LAN."""

    async def silent(vips: Iterable[VirtualIP], *_: Any, **__: Any) -> Mapping[VirtualIP, Finding]:
        return dict.fromkeys(vips, Finding(Answer.SILENT))

    conflicts = AddressConflicts(NodeNetwork("n1", None, RunDirectory(tmp_path)))
    defence: Any = Defence()
    monkeypatch.setattr(conflicts, "_defence", defence)
    monkeypatch.setattr(detection, "inquire", silent)
    woken = asyncio.Event()
    task = asyncio.create_task(conflicts.run(woken.set))
    async with asyncio.timeout(30):
        await defence.begun.wait()
        before = conflicts.version
        conflicts.expect(Unprobed(frozenset({VIP})), later=Unprobed(), nodes=frozenset())
        assert VIP in conflicts.withheld
        await conflicts.ask()
    defence.ended.set()
    for _ in range(20):  # nothing is waited for but turns of the loop
        await asyncio.sleep(0)
    assert woken.is_set()
    assert VIP not in conflicts.withheld and conflicts.version == before + 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
