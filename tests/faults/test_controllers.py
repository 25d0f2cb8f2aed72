"""Two real controllers on a real API server; the audit log shows their writes."""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from hack.faults import facts, faultrun
from hack.faults.checker import Checker
from hack.faults.demand import Demand
from hack.faults.history import History
from hack.faults.replicas import Pair, Replica
from hack.testbed import process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs

pytestmark = pytest.mark.apiserver

LEASE = 3
LONG_LEASE = 8  # long enough that a replica that stalls on a busy machine does not lose the lease
QUIET = 2.0
PATIENCE = 90.0
BACKLOG = 480  # at least a second of work, so that a stall of the test does not miss it; fits on one page of a list
FEW = 120


@pytest.fixture(scope="module")
def plane(programs: Programs) -> Iterator[ControlPlane]:
    """One control plane for both tests."""
    with runs.temporary() as state, faultrun.start_control_plane(programs, state) as started:
        yield started
        for log in sorted(state.glob("kavip-*.log")):
            print(f"--- {log.name}", process.tail(log, 40), sep="\n")  # noqa: T201 - shown when the test fails


async def until(condition: Callable[[], object], *, every: float = 0.1) -> None:
    """Wait for *condition*."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(every)


def count_writes(plane: ControlPlane, replica: Replica, *, after: float = 0.0) -> int:
    """The number of writes of Services and pools that *replica* requested after that time, refused ones included."""
    return sum(each.user == replica.name and each.requested_at > after for each in facts.requests(plane.audit.path))


def has_begun(plane: ControlPlane, replica: Replica) -> bool:
    """Whether *replica* has written the status of a Service; read from the text of the log, which is fast."""
    user, status = f'"username":"{replica.name}"'.encode(), b'"subresource":"status"'
    return any(user in line and status in line for line in plane.audit.lines())


def listed(plane: ControlPlane, replica: Replica) -> int:
    """How often *replica* has listed all Services; they fit on one page."""
    found = plane.audit.events(user=replica.name, verb="list", resource="services")
    return len(found)


async def test_a_former_leader_that_continues_writes_nothing(plane: ControlPlane) -> None:
    """
    It is stopped in the middle of a backlog, for longer than its lease; the other finishes the work.

    After SIGCONT it has plans and open connections, and sends none of the writes.
    """
    pair = Pair(plane, LONG_LEASE)
    first, second = pair.replicas
    rng = random.Random(1)
    async with History(faultrun.users(plane), Demand(BACKLOG, rng)) as history:
        await history.rush(BACKLOG)
        plane.audit.mark()
        with pair.running(first):
            await until(lambda: has_begun(plane, first), every=0.001)
            first.signal(signal.SIGSTOP)
            before = count_writes(plane, first)
            second.start()
            await until(lambda: second.logged("leading"))
            lists = listed(plane, first), listed(plane, second)
            await faultrun.wait_until_idle(pair, quiet=QUIET)
            continued = time.time()
            first.signal(signal.SIGCONT)
            await until(lambda: first.logged("no longer the leader"))
            await faultrun.wait_until_idle(pair, quiet=QUIET / 2)
    assert lists == (1, 2)  # the first leader lists once, and the next one lists again
    assert 0 < before < BACKLOG  # it was in the middle
    assert count_writes(plane, second) > (BACKLOG - before) / 2
    assert count_writes(plane, first, after=continued) <= 1  # the write that it was sending when it was stopped
    assert first.logged("leading") == 1
    findings = Checker().replay(facts.read(plane.audit.path))
    assert (findings.doubles, findings.moves, findings.waiting, findings.needless) == ([], [], [], [])
    assert findings.counts["addresses taken back"] == 0


async def test_a_short_history_is_clean(plane: ControlPlane) -> None:
    """Edits while the leader is killed and stopped: no double holder, no move, no needless wait."""
    verdict = await faultrun.run(
        plane, services=FEW, seconds=6, seed=7, faults=("kill", "stop"), lease=LEASE, quiet=QUIET
    )
    assert verdict.is_clean, verdict.table()
    assert verdict.findings.counts["addresses given"] > FEW
    assert sum(verdict.injected.values()) > 0
