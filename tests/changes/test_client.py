"""What the client that watches changes takes for an answer: late ones too, and none for which TCP had to ask again."""

import asyncio
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from hack.testbed import process
from hack.testbed.process import Process
from hack.testbed.segment import Segment
from tests.agent.pod import PATIENCE, connected, entered
from tests.changes.client import EVERY, LOST, UNANSWERED, Row, ask, port, ticks
from tests.changes.rig import _serve
from tests.changes.seen import Seen, _Worker
from tests.changes.server import PORT
from tests.vrrp.livedaemons import BEFORE_OTHERS

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


def half_open(lan: Segment, tick: int) -> None:
    """Leave n1 with a connection of that tick's port that the client has forgotten, as a node that loses its VIP is."""
    host = lan.node("n1")

    def stands() -> socket.socket:
        client = socket.socket()
        client.bind(("", port(tick)))
        client.settimeout(PATIENCE)
        client.connect((host.ipv4, PORT))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends with one packet
        return client

    client = entered(lan.client.netns, stands)
    lan.silence(host)
    client.close()
    lan.mend(host)


def test_a_port_comes_back_when_no_node_keeps_a_connection_of_it(lan: Segment, server: Process) -> None:
    """TCP asks again where one is kept, and nothing was lost; so no port comes again soon, whichever client asks."""
    now, address = next(ticks()), lan.node("n1").ipv4
    half_open(lan, now)

    def asked(tick: int) -> Row:
        return entered(lan.client.netns, lambda: asyncio.run(ask(address, tick)))

    rows = [asked(now), asked(now + 1)]
    assert [who for _, _, who in rows] == [LOST, "n1"]
    assert len({port(tick) for tick in islice(ticks(), round(300 / EVERY))}) == round(300 / EVERY)
    assert next(ticks()) > now
