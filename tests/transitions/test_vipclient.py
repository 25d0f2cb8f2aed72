"""What the client counts as an answer: late answers too, but not where TCP had to repeat a packet."""

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
from tests.transitions.livegroup import serve_vips
from tests.transitions.recording import BackgroundProgram, Recording
from tests.transitions.vipclient import EVERY, LOST, UNANSWERED, Row, ask, port, ticks
from tests.transitions.vipserver import PORT
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns


@pytest.fixture
def server(lan: Segment) -> Iterator[Process]:
    """A server on n1 that answers."""
    host = lan.node("n1")
    made = serve_vips(host)

    def answers() -> bool:
        try:
            connected(lan.client.netns, host.ipv4, PORT).close()
        except OSError:
            return False
        return True

    process.wait_for("the server answers", answers, timeout=PATIENCE)
    yield made
    process.kill([made])


def asking(lan: Segment) -> BackgroundProgram:
    """The client, which requests n1."""
    command = (*BEFORE_OTHERS, sys.executable, "-m", "tests.transitions.vipclient", lan.node("n1").ipv4)
    return BackgroundProgram(lan.client.command(*command))


def test_a_late_answer_is_an_answer(lan: Segment, server: Process) -> None:
    """A server that is stopped for a while, as on a busy machine, loses no request."""
    client = asking(lan)
    server.signal(signal.SIGSTOP)
    time.sleep(1.5)
    server.signal(signal.SIGCONT)
    recorded = Recording(rows=client.end())
    assert (recorded.failures, recorded.resets) == ({}, {}), recorded.timeline()
    assert max(took for rows in recorded.rows.values() for _, took, _ in rows if took) > 1


def test_a_repeated_syn_counts_as_lost(lan: Segment, server: Process) -> None:
    """A request is lost although it is answered in the end."""
    client = asking(lan)
    lan.silence(lan.node("n1"))
    time.sleep(0.5)
    lan.reconnect(lan.node("n1"))
    time.sleep(0.2)
    recorded = Recording(rows=client.end())
    (reasons,) = recorded.reasons.values()
    assert LOST in reasons and UNANSWERED not in reasons, recorded.timeline()
    assert next(iter(recorded.rows.values()))[-1][1] is not None, recorded.timeline()


def half_open(lan: Segment, tick: int) -> None:
    """
    Leave n1 with a connection from that tick's port that the client has forgotten, like a node that loses its VIP.
    """
    host = lan.node("n1")

    def stands() -> socket.socket:
        client = socket.socket()
        client.bind(("", port(tick)))
        client.settimeout(PATIENCE)
        client.connect((host.ipv4, PORT))
        # close() sends one packet, a reset
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return client

    client = entered(lan.client.netns, stands)
    lan.silence(host)
    client.close()
    lan.reconnect(host)


def test_a_source_port_is_reused_only_after_minutes(lan: Segment, server: Process) -> None:
    """
    TCP repeats the SYN where the server still has such a connection. So all clients reuse a port only after minutes.
    """
    now, address = next(ticks()), lan.node("n1").ipv4
    half_open(lan, now)

    def request_at(tick: int) -> Row:
        return entered(lan.client.netns, lambda: asyncio.run(ask(address, tick)))

    rows = [request_at(now), request_at(now + 1)]
    assert [answerer for _, _, answerer in rows] == [LOST, "n1"]
    assert len({port(tick) for tick in islice(ticks(), round(300 / EVERY))}) == round(300 / EVERY)
    assert next(ticks()) > now
