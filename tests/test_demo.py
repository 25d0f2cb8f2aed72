"""What the demo measures with."""

import asyncio
import socket
import struct
from contextlib import suppress

import pytest

from hack.demo import prober, tour
from hack.demo.page import Reader
from hack.demo.session import MANIFESTS
from tests.cli.ui.serving import serving
from tests.support import manifests


def test_silence_lasts_from_the_last_answer_to_the_next() -> None:
    """The longest row of unanswered requests counts, from answer to answer."""
    answers = [(0.0, 0.01), (0.1, None), (0.2, 0.01), (0.3, None), (0.4, None), (0.5, 0.01)]
    assert prober.longest_silence(answers) == 0.3


def test_a_silence_that_does_not_end_lasts() -> None:
    """Until the last request, and not until the one before it."""
    answers = [(0.0, 0.01), (0.1, None), (0.2, 0.01), (0.3, None), (0.4, None), (0.9, None)]
    assert prober.longest_silence(answers) == pytest.approx(0.7)


def test_where_every_request_is_answered_there_is_no_silence() -> None:
    """The interval between two requests is no silence."""
    assert prober.longest_silence([(0.0, 0.01), (0.1, 0.01)]) == 0.0


async def test_the_problem_of_a_lost_request_is_named() -> None:
    """A connection that is closed, reset, refused or not answered, and an error status, have a problem each."""
    replies = {"closed": b"", "error": b"HTTP/1.0 503 Busy\r\n\r\n"}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().strip("/")
        if name == "silent":
            await reader.read()
        if name == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.write(replies.get(name, b""))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    assert await prober.ask(f"{url}/closed") == prober.Answer(None, "status missing")
    assert await prober.ask(f"{url}/error") == prober.Answer(None, "status 503")
    assert await prober.ask(f"{url}/reset") == prober.Answer(None, "ECONNRESET")
    assert await prober.ask(f"{url}/silent", timeout=0.2) == prober.Answer(None, "no answer")
    server.close()
    await server.wait_closed()
    assert await prober.ask(f"{url}/closed") == prober.Answer(None, "ECONNREFUSED")


@pytest.mark.slow
async def test_a_repeated_connection_attempt_is_no_answer() -> None:
    """A connection for which TCP repeated a packet counts as an outage; a slow answer does not."""
    standing: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        standing.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(1.5)  # longer than TCP waits before it knocks again
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nhere")
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        standing.remove(writer)

    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for each in (first, second):  # one is accepted by the kernel, and the other waits: the place is taken
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        asking = asyncio.create_task(prober.ask(f"http://127.0.0.1:{port}/"))
        await asyncio.sleep(0.5)
        full.setblocking(False)
        server = await asyncio.start_server(answer, sock=full)
        assert await asking == prober.Answer(None, "first packet repeated")
        assert await prober.ask(f"http://127.0.0.1:{port}/") == prober.Answer("here")
        server.close()
        for each in (first, second):
            each.close()
        while standing:
            await asyncio.sleep(0.01)


async def test_the_page_is_read_as_a_browser_does() -> None:
    """With the token of the link: the node of a VIP, twice, and no node for an address that no Service has."""
    async with serving() as server:
        reader = await asyncio.to_thread(Reader, server.links[-1])
        for _ in range(2):
            assert await asyncio.to_thread(reader.nodes_of, "192.0.2.130") == ["node-a1"]
        assert await asyncio.to_thread(reader.nodes_of, "192.0.2.1") == []


def test_the_tour_uses_the_objects_of_the_demo() -> None:
    """Pool and group of the demo are those of the table, so that no VIP moves in later steps."""
    around = tour.cluster()
    for subject in manifests.objects(MANIFESTS / "pool.yaml", MANIFESTS / "group.yaml"):
        if subject["kind"] != "Namespace":
            assert subject in around


def test_every_stop_of_the_tour_is_a_refusal() -> None:
    """The table has the chosen cases, with kavip's default settings and only the objects of the table."""
    assert [str(case) for case in tour.cases()] == list(tour.CHOSEN)
    assert all(case.causes and case.by == "kavip" and not (case.cluster or case.settings) for case in tour.cases())
