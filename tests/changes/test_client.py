"""What the client that watches changes takes for an answer: late ones too, and none for which TCP had to ask again."""

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from hack.testbed import process
from hack.testbed.process import Process
from hack.testbed.segment import Segment
from tests.agent.pod import PATIENCE, connected
from tests.changes.client import LOST, UNANSWERED
from tests.changes.rig import _serve
from tests.changes.seen import Seen, _Worker
from tests.changes.server import PORT
from tests.vrrp.lab import BEFORE_OTHERS

pytestmark = pytest.mark.netns


@pytest.fixture
def server(lan: Segment) -> Iterator[Process]:
    """A server on n1, when it answers."""
    host = lan.node("n1")
    made = _serve(host)

    def answers() -> bool:
        try:
            connected(lan.client.netns, host.ipv4, PORT).close()
        except OSError:
            return False
        return True

    process.wait_for("the server answers", answers, timeout=PATIENCE)
    yield made
    process.kill([made])


def asking(lan: Segment) -> _Worker:
    """The client, when it asks n1."""
    command = (*BEFORE_OTHERS, sys.executable, "-m", "tests.changes.client", lan.node("n1").ipv4)
    return _Worker(lan.client.command(*command))


def test_a_late_answer_is_one(lan: Segment, server: Process) -> None:
    """A server that does nothing for a while, as on a busy machine, loses no request."""
    client = asking(lan)
    server.signal(signal.SIGSTOP)
    time.sleep(1.5)
    server.signal(signal.SIGCONT)
    seen = Seen(rows=client.end())
    assert (seen.failures, seen.resets) == ({}, {}), seen.story()
    assert max(took for rows in seen.rows.values() for _, took, _ in rows if took) > 1


def test_what_tcp_asks_for_again_was_lost(lan: Segment, server: Process) -> None:
    """Although there is an answer, in the end."""
    client = asking(lan)
    lan.silence(lan.node("n1"))
    time.sleep(0.5)
    lan.mend(lan.node("n1"))
    time.sleep(0.2)
    seen = Seen(rows=client.end())
    (reasons,) = seen.reasons.values()
    assert LOST in reasons and UNANSWERED not in reasons, seen.story()
    assert next(iter(seen.rows.values()))[-1][1] is not None, seen.story()
