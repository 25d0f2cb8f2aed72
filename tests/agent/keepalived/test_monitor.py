"""How long callers wait for a keepalived that does not answer."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from kavip.agent.config.model import ParsedConfig
from kavip.agent.keepalived import monitor
from kavip.agent.keepalived import process as daemons
from kavip.agent.keepalived.monitor import Monitor
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory

RUNS = ParsedConfig(instances=())
BUDGET = 0.2
LONG = 60.0
QUESTIONS = 5  # at most, in the time of one


@pytest.fixture
def silent_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Monitor:
    """The monitor of a keepalived that runs and does not answer."""
    monkeypatch.setattr(daemons, "BUDGET", BUDGET)
    monkeypatch.setattr(daemons, "PATIENCE", BUDGET / (QUESTIONS - 1))
    monkeypatch.setattr(daemons, "find", lambda *_, **__: Daemon(1, 1))
    monkeypatch.setattr(daemons, "answers", _silence)
    monkeypatch.setattr(Daemon, "signal", lambda *_: True)
    return Monitor(RunDirectory(tmp_path))


async def test_concurrent_callers_share_one_wait(silent_monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes kubelet's probe."""
    questions: list[int] = []

    def silent(*_: object, deadline: float) -> bool:
        questions.append(1)
        return _silence(deadline=deadline)

    monkeypatch.setattr(daemons, "answers", silent)
    assert await asyncio.gather(*(silent_monitor.dump(RUNS) for _ in range(8))) == [None] * 8
    assert len(questions) <= QUESTIONS


async def test_a_later_caller_sends_a_new_request(silent_monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """keepalived may answer by then."""
    assert await silent_monitor.dump(RUNS) is None
    monkeypatch.setattr(daemons, "answers", _answer)
    assert await silent_monitor.dump(RUNS) == ()


async def test_an_unanswered_question_of_a_reload_is_no_answer_for_others(
    silent_monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keepalived loses questions while it reloads; other callers ask for the whole time that is allowed."""
    monkeypatch.setattr(monitor, "CONFIRM", BUDGET / 8)
    monkeypatch.setattr(daemons, "BUDGET", LONG)  # a slow machine does not exceed it
    monkeypatch.setattr(Daemon, "alive", lambda _: True)
    begun = threading.Event()

    def silent(*_: object, deadline: float) -> bool:
        begun.set()
        return _silence(deadline=deadline)

    monkeypatch.setattr(daemons, "answers", silent)
    reload = asyncio.create_task(silent_monitor.send_reload_and_confirm(Daemon(1, 1), RUNS))
    assert await asyncio.to_thread(begun.wait, LONG)
    waiting = asyncio.create_task(silent_monitor.dump(RUNS))
    assert not await reload
    monkeypatch.setattr(daemons, "answers", _answer)
    assert await waiting == ()


def _silence(*_: object, deadline: float) -> bool:
    time.sleep(max(0.0, deadline - time.monotonic()))
    return False


def _answer(*_: object, deadline: float) -> bool:
    return deadline > 0
