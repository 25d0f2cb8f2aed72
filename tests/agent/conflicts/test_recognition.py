"""A node that starts recognises the VIPs that other nodes have: many, in little time, and all for the same load."""

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest

from kavip.agent.config.withhold import Unprobed
from kavip.agent.conflicts import detection
from kavip.agent.conflicts.detection import RECOGNISING, AddressConflicts
from kavip.agent.conflicts.inquiry import MOST, MOST_ONCE, KnownMachines
from kavip.agent.conflicts.verdicts import FRESH
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.network import NodeNetwork
from kavip.api.address import Address
from kavip.vrrp.virtualips import VirtualIP, host

FIRST = (198 << 24) + (18 << 16)


class Lan:
    """Nodes have each of *vips* that is not *free*; a question takes *seconds* by the clock."""

    def __init__(self, count: int, *, free: frozenset[int] = frozenset(), seconds: float = 0.1) -> None:
        self.vips = [host(Address(4, FIRST + number), "eth0") for number in range(count)]
        self.free = frozenset(self.vips[number] for number in free)
        self.now, self.asked, self._seconds = 0.0, list[int](), seconds

    async def held_by_nodes(self, vips: Collection[VirtualIP], _: KnownMachines) -> frozenset[VirtualIP]:
        """The answer, with one probe for each of *vips*."""
        self.asked.append(len(vips))
        self.now += self._seconds
        return frozenset(vips) - self.free


async def recognised(lan: Lan, monkeypatch: pytest.MonkeyPatch, folder: Path) -> AddressConflicts:
    """The conflicts of a node that starts on *lan*."""
    monkeypatch.setattr(detection, "held_by_nodes", lan.held_by_nodes)
    monkeypatch.setattr(detection, "time", SimpleNamespace(monotonic=lambda: lan.now))
    found = AddressConflicts(NodeNetwork("n1", None, RunDirectory(folder)))
    found.expect(Unprobed(frozenset(lan.vips)), later=Unprobed(), nodes=frozenset())
    await found.recognise()
    return found


async def test_what_no_node_has_is_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of questions."""
    lan = Lan(3 * MOST_ONCE + MOST, free=frozenset({0, MOST_ONCE, 2 * MOST_ONCE + 1}))
    found = await recognised(lan, monkeypatch, tmp_path)
    assert lan.asked == [*[MOST_ONCE] * 3, MOST]
    assert found.withheld.keys() == lan.free


async def test_a_few_are_not_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for at once, with three probes."""
    lan = Lan(MOST)
    found = await recognised(lan, monkeypatch, tmp_path)
    assert lan.asked == [] and len(found.withheld) == MOST


@pytest.mark.parametrize("seconds", [0.1, 0.3, 2 * RECOGNISING])
async def test_the_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """On a slow LAN or a busy node fewer are recognised, and no answer is too old for the load."""
    lan = Lan(100 * MOST_ONCE, seconds=seconds)
    found = await recognised(lan, monkeypatch, tmp_path)
    assert RECOGNISING <= lan.now <= RECOGNISING + seconds + 0.001
    lan.now += 0.9 * FRESH
    assert len(found.withheld) == len(lan.vips) - sum(lan.asked)
