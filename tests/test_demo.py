"""What the demo measures with."""

import asyncio

from hack.demo import prober


def test_silence_lasts_from_the_last_answer_to_the_next() -> None:
    """The longest row of unanswered requests counts, from answer to answer."""
    answers = [(0.0, 0.01), (0.1, None), (0.2, 0.01), (0.3, None), (0.4, None), (0.5, 0.01)]
    assert prober.longest_silence(answers) == 0.3


def test_where_every_request_is_answered_there_is_no_silence() -> None:
    """The interval between two requests is no silence."""
    assert prober.longest_silence([(0.0, 0.01), (0.1, 0.01)]) == 0.0


async def test_a_closed_port_is_no_answer() -> None:
    """Refused, reset and silent ports all mean None."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await prober.ask(f"http://127.0.0.1:{port}/") is None
    server.close()
    await server.wait_closed()
    assert await prober.ask(f"http://127.0.0.1:{port}/") is None
