"""How long those wait who ask about a daemon that does not answer."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from kavip.agent.config.model import Configuration
from kavip.agent.keepalived import monitor
from kavip.agent.keepalived import process as daemons
from kavip.agent.keepalived.monitor import Witness
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.rundir import RunDirectory

RUNS = Configuration(instances=())
BUDGET = 0.2
LONG = 60.0
QUESTIONS = 5  # at most, in the time of one


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Witness:
    """The witness of a daemon that lives and says nothing."""
    monkeypatch.setattr(daemons, "BUDGET", BUDGET)
    monkeypatch.setattr(daemons, "PATIENCE", BUDGET / (QUESTIONS - 1))
    monkeypatch.setattr(daemons, "find", lambda *_, **__: Daemon(1, 1))
    monkeypatch.setattr(daemons, "answers", _silence)
    monkeypatch.setattr(Daemon, "signal", lambda *_: True)
    return Witness(RunDirectory(tmp_path))


async def test_all_who_wait_for_a_silent_daemon_share_one_wait(asked: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask at once, kubelet's probe among them, the daemon is asked for the time of one."""
    questions: list[int] = []

    def silent(*_: object, deadline: float) -> bool:
        questions.append(1)
        return _silence(deadline=deadline)

    monkeypatch.setattr(daemons, "answers", silent)
    assert await asyncio.gather(*(asked.dump(RUNS) for _ in range(8))) == [None] * 8
    assert len(questions) <= QUESTIONS


async def test_who_asks_after_the_silence_asks_anew(asked: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that answers again is not told dead by what was before."""
    assert await asked.dump(RUNS) is None
    monkeypatch.setattr(daemons, "answers", _answer)
    assert await asked.dump(RUNS) == ()


async def test_one_question_of_a_reload_without_an_answer_is_nobodys_answer(
    asked: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that reloads loses questions: whoever waits meanwhile asks for the whole time that one may take."""
    monkeypatch.setattr(monitor, "CONFIRM", BUDGET / 8)
    monkeypatch.setattr(daemons, "BUDGET", LONG)  # a machine that stalls does not use it up
    monkeypatch.setattr(Daemon, "alive", lambda _: True)
    begun = threading.Event()

    def silent(*_: object, deadline: float) -> bool:
        begun.set()
        return _silence(deadline=deadline)

    monkeypatch.setattr(daemons, "answers", silent)
    reload = asyncio.create_task(asked.obeyed(Daemon(1, 1), RUNS))
    assert await asyncio.to_thread(begun.wait, LONG)
    waiting = asyncio.create_task(asked.dump(RUNS))
    assert not await reload
    monkeypatch.setattr(daemons, "answers", _answer)
    assert await waiting == ()


def _silence(*_: object, deadline: float) -> bool:
    time.sleep(max(0.0, deadline - time.monotonic()))
    return False


def _answer(*_: object, deadline: float) -> bool:
    return deadline > 0
