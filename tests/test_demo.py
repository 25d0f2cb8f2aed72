"""What the demo measures with."""

import asyncio

from hack.demo import prober, tour
from hack.demo.story import MANIFESTS
from tests import files


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


def test_what_the_tour_is_asked_of_is_what_the_demo_uses() -> None:
    """Pool and group of the demo are those of the table, so that no VIP moves when the story goes on."""
    around = tour.cluster()
    for subject in files.objects(MANIFESTS / "pool.yaml", MANIFESTS / "group.yaml"):
        if subject["kind"] != "Namespace":
            assert subject in around


def test_every_stop_of_the_tour_is_a_refusal() -> None:
    """The chosen cases are there, by kavip's default settings, with nothing but the table's cluster around them."""
    assert [str(case) for case in tour.cases()] == list(tour.CHOSEN)
    assert all(case.causes and case.by == "kavip" and not (case.given or case.settings) for case in tour.cases())
